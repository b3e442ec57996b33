#ifndef FSDPCTL_COORDINATOR_RPC_WORKER_SERVICE_H_
#define FSDPCTL_COORDINATOR_RPC_WORKER_SERVICE_H_

// WorkerService on the wire: a stream per worker, handed to the coordinator message by message.

#include <atomic>

#include "coordinator/coordinator.h"
#include "fsdp/v1/worker_service.grpc.pb.h"

namespace fsdp::coordinator {

class WorkerServiceImpl : public v1::WorkerService::CallbackService {
 public:
  // Both outlive the service.
  WorkerServiceImpl(Coordinator& coordinator, Counters& counters)
      : coordinator_(coordinator), counters_(counters) {}

  grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator& coordinator_;
  Counters& counters_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_WORKER_SERVICE_H_
