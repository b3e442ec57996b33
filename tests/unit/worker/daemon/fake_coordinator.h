#ifndef FSDPCTL_TESTS_UNIT_WORKER_DAEMON_FAKE_COORDINATOR_H_
#define FSDPCTL_TESTS_UNIT_WORKER_DAEMON_FAKE_COORDINATOR_H_

// WorkerService over real gRPC on a loopback port, with everything that workers sent for tests to
// look at and everything they get under the test's control.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fsdp/v1/worker_service.grpc.pb.h"
#include "grpcpp/server.h"

namespace fsdp::daemon {

// Thread-safe.
class FakeCoordinator : public v1::WorkerService::Service {
 public:
  struct Options {
    // 0: a free one.
    int port = 0;
    bool acknowledge = true;
    bool keep_running_rank = true;
    // Dedupes by sequence over streams, as the real one does; what a restarted one has stored.
    std::int64_t durable_sequence = 0;
    // Refuses every stream with this.
    grpc::Status refuse = grpc::Status::OK;
    double heartbeat_seconds = 0.05;
  };

  explicit FakeCoordinator(Options options);
  // Ends all streams as a killed coordinator does.
  ~FakeCoordinator() override;

  [[nodiscard]] std::string address() const;
  [[nodiscard]] int port() const { return port_; }

  // To the newest stream.
  void Send(const v1::ConnectResponse& response);
  // Ends the newest stream.
  void Drop();
  void SetAcknowledge(bool acknowledge);
  [[nodiscard]] std::int64_t durable_sequence() const;

  // Waits up to 20 s until `done` holds for all that was received. False: it never did.
  using Received = std::vector<v1::ConnectRequest>;
  bool WaitFor(const std::function<bool(const Received&)>& done) const;
  // The first message for which `match` holds.
  std::optional<v1::ConnectRequest> WaitForMessage(
      const std::function<bool(const v1::ConnectRequest&)>& match) const;
  [[nodiscard]] Received received() const;

  grpc::Status Connect(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream) override;

 private:
  using Stream = grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>;

  void Take(Stream* stream, const v1::ConnectRequest& request);

  Options options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Received received_;
  Stream* stream_ = nullptr;
  grpc::ServerContext* context_ = nullptr;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_TESTS_UNIT_WORKER_DAEMON_FAKE_COORDINATOR_H_
