#ifndef FSDPCTL_COORDINATOR_RPC_WORKER_SERVICE_H_
#define FSDPCTL_COORDINATOR_RPC_WORKER_SERVICE_H_

// WorkerService on the wire: a stream per worker, handed to the coordinator message by message.

#include <memory>

#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/rpc/gate.h"
#include "fsdp/v1/worker_service.grpc.pb.h"

namespace fsdp::coordinator {

// Streams that have not said hello yet.
class UngreetedStreams;

class WorkerServiceImpl : public v1::WorkerService::CallbackService {
 public:
  // Both outlive the service.
  WorkerServiceImpl(Coordinator& coordinator, Gate& gate, const Clock& clock);
  ~WorkerServiceImpl() override;

  // Ends the streams that have been open for `timeout` without a hello (DEADLINE_EXCEEDED,
  // HELLO_MISSING). To be called now and then, from any thread.
  void CloseSilent(absl::Duration timeout);

  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator& coordinator_;
  Gate& gate_;
  const Clock& clock_;
  const std::shared_ptr<UngreetedStreams> ungreeted_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_WORKER_SERVICE_H_
