#ifndef FSDPCTL_TESTS_FAKES_FAKE_WORKER_H_
#define FSDPCTL_TESTS_FAKES_FAKE_WORKER_H_

// A worker daemon and its trainer in one object: speaks WorkerService over real gRPC, trains
// nothing. By default a rank joins, steps to the end of the job and exits; tests hold it at a step
// and break it.
//
// Thread-safe.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "fsdp/v1/worker_service.grpc.pb.h"
#include "fsdp/v1/worker_service.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace fsdp::testing {

// Ranks pass a step only when the gate allows it. Shared by the ranks of a test.
class StepGate {
 public:
  void AllowUpTo(std::int64_t step);
  void Open() { AllowUpTo(INT64_MAX); }
  // False: `stopped` became true first.
  bool WaitFor(std::int64_t step, const std::function<bool()>& stopped);
  // Lets waiters look at `stopped` again.
  void Poke();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t allowed_ = INT64_MAX;
};

struct FakeWorkerOptions {
  std::string name = "w0";
  std::string host = "host-0";
  int index = 0;
  // Rank 0 proposes a checkpoint after every N steps; 0: none.
  std::int64_t checkpoint_every = 0;
  bool join = true;
  std::uint64_t plan_hash = 42;
  std::uint64_t data_fingerprint = 7;
  std::string data_path = "/data/corpus.bin";
  // 0: does not tell.
  std::int64_t device_memory_bytes = 0;
  // A stream that is open for longer ends: a test that hangs says so.
  std::chrono::seconds stream_limit{60};
  // Its wall clock is fast by this.
  absl::Duration clock_ahead = absl::ZeroDuration();
};

class FakeWorker {
 public:
  FakeWorker(std::string address, FakeWorkerOptions options, StepGate* gate);
  ~FakeWorker();

  // Opens a stream in the current incarnation; what it still runs and has not had acknowledged goes
  // along.
  void Connect();
  // To another address: a restarted coordinator.
  void ConnectTo(const std::string& address);
  // The stream closes; the rank goes on and its reports are kept.
  void Disconnect();
  // The daemon dies with its trainer. Start: a new incarnation.
  void Die();
  void Revive();

  // The trainer dies by a signal, as the daemon reports it.
  void KillRank(int signal);
  // The trainer is on its way out already: a stop that arrives before KillRank or ExitRank changes
  // nothing.
  void BeginDying();
  void ExitRank(int code, const std::vector<std::string>& last_lines);
  void FailRank(v1::FailureCause cause, const std::string& message, std::optional<int> peer);
  // Heartbeats with this pulse (its key is filled in).
  void Pulse(v1::RankPulse pulse);
  void Beat();
  void Log(const std::string& line);
  // Any report, with any key.
  void SendReport(v1::Report report);
  void Send(const v1::ConnectRequest& request);
  void Put(const std::string& name, const std::string& value);
  void Get(const std::string& name);

  // What came in, newest last.
  [[nodiscard]] std::vector<v1::ConnectResponse> received() const;
  [[nodiscard]] int CountReceived(v1::ConnectResponse::MessageCase kind) const;
  [[nodiscard]] bool running() const;
  [[nodiscard]] bool connected() const;
  [[nodiscard]] std::int64_t step() const;
  [[nodiscard]] v1::EpochKey key() const;
  [[nodiscard]] int num_unacked() const;
  // All starts of this rank's training: the step after which each began.
  [[nodiscard]] std::vector<std::int64_t> resumed_after() const;
  // How the last stream ended; absent while it is open.
  [[nodiscard]] std::optional<grpc::Status> stream_status() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>;
  struct Connection {
    grpc::ClientContext context;
    std::unique_ptr<Stream> stream;
    std::thread reader;
  };

  void ReadLoop(Connection* connection);
  void Handle(const v1::ConnectResponse& response);
  void StartTrainer(const v1::StartRank& start);
  void StopTrainer(const v1::StopRank& stop);
  void Train(v1::StartRank start, std::uint64_t generation);
  void EndRank(v1::RankExited exited);
  void Spool(v1::Report report);
  void WriteLocked(const v1::ConnectRequest& request);
  void CloseConnection();

  const FakeWorkerOptions options_;
  StepGate* const gate_;
  std::string address_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int life_ = 0;
  bool dying_ = false;
  std::unique_ptr<Connection> connection_;
  std::optional<grpc::Status> stream_status_;
  std::vector<v1::ConnectResponse> received_;
  std::vector<v1::Report> spool_;
  std::int64_t last_sequence_ = 0;
  std::optional<v1::StartRank> rank_;
  std::uint64_t generation_ = 0;
  bool committed_ = false;
  std::int64_t verdict_step_ = 0;
  std::int64_t step_ = 0;
  std::vector<std::int64_t> resumed_after_;
  std::vector<std::thread> trainers_;
};

}  // namespace fsdp::testing

#endif  // FSDPCTL_TESTS_FAKES_FAKE_WORKER_H_
