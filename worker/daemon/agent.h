#ifndef FSDPCTL_WORKER_DAEMON_AGENT_H_
#define FSDPCTL_WORKER_DAEMON_AGENT_H_

// The worker's end of the stream to the coordinator: dials out, says hello, keeps the heartbeat
// going, delivers the spool, and comes back after every loss. Flow steps 4 and 14.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/tls/tls_files.h"
#include "worker/daemon/spool.h"

namespace fsdp::daemon {

// What the agent asks and tells. Each method says on which thread; none may wait for long.
class AgentDelegate {
 public:
  virtual ~AgentDelegate() = default;
  // Agent thread. The agent fills in versions, the spool's range (nothing when it is empty) and the
  // time.
  virtual fsdp::v1::WorkerHello MakeHello() = 0;
  // Heartbeat thread; must not wait for I/O.
  virtual fsdp::v1::Heartbeat MakeHeartbeat() = 0;
  // Agent thread, in stream order: OnWelcome, any OnCommand, OnDisconnected.
  virtual void OnWelcome(const fsdp::v1::Welcome& welcome) = 0;
  virtual void OnCommand(fsdp::v1::ConnectResponse command) = 0;
  virtual void OnDisconnected(const absl::Status& status) = 0;
  // Agent thread. ABORTED: a newer incarnation of this worker is connected, so this process is to
  // end. The agent dials no more.
  virtual void OnReplaced(const absl::Status& status) = 0;
};

// How long to wait before dialling again: doubles from `initial` to `max`, each drawn from the
// upper half.
class Backoff {
 public:
  Backoff(absl::Duration initial, absl::Duration max, std::uint64_t seed)
      : initial_(initial), max_(max), next_(initial), random_(seed) {}
  void Reset() { next_ = initial_; }
  absl::Duration Next();

 private:
  const absl::Duration initial_;
  const absl::Duration max_;
  absl::Duration next_;
  std::mt19937_64 random_;
};

// Thread-safe.
class Agent {
 public:
  struct Options {
    // HOST:PORT, or several with commas between, of coordinators that stand in for each other: each
    // dial that fails is followed by one to the next.
    std::string coordinator;
    // File of the token that says that this is a worker, read at each dial; empty: none is sent.
    std::string token_file;
    // Read at every dial, so that a renewed certificate is used from the next one on; empty: in the
    // clear.
    TlsFiles tls;
    // The name that the coordinator's certificate must have; empty: the host of `coordinator`.
    std::string tls_server_name;
    absl::Duration backoff_initial = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(2);
    // A coordinator that takes the connection but does not answer the hello is given up.
    absl::Duration welcome_timeout = absl::Seconds(10);
    // Until a welcome says otherwise.
    absl::Duration heartbeat = absl::Seconds(1);
    // Reports read from the spool at a time.
    std::int64_t batch_bytes = std::int64_t{256} << 10;
  };

  // `spool` and `delegate` outlive it.
  Agent(Options options, Spool& spool, AgentDelegate& delegate);
  // As Shutdown without flushing.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Once.
  void Start();

  // Queues a message for the open stream; dropped when there is none.
  void Send(fsdp::v1::ConnectRequest request);
  // The spool has grown.
  void NotifySpool();
  // A heartbeat is due at once: something in it has changed.
  void BeatNow();

  // Waits up to `flush_timeout` for the coordinator to acknowledge the spool, says goodbye, closes
  // the stream and ends the threads.
  void Shutdown(const std::string& reason, absl::Duration flush_timeout);

  // Welcomed and not lost since.
  [[nodiscard]] bool connected() const;
  [[nodiscard]] std::int64_t num_connects() const;

 private:
  struct Connection;

  void RunAgent();
  void RunSender();
  void RunHeartbeat();
  absl::Status Converse(const std::shared_ptr<Connection>& connection);
  // What to say of a failure to connect: certificates, where they are the reason.
  [[nodiscard]] absl::Status Explain(const absl::Status& status, const std::string& address) const;
  void HandleWelcome(Connection& connection, const fsdp::v1::Welcome& welcome);
  void HandleResponse(fsdp::v1::ConnectResponse response);
  void SendSpool(Connection& connection);
  // Of the present connection; null while there is none.
  std::shared_ptr<Connection> current() const;

  const Options options_;
  // At least one.
  const std::vector<std::string> addresses_;
  Spool& spool_;
  AgentDelegate& delegate_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // All below guarded by mutex_.
  std::shared_ptr<Connection> connection_;
  bool stopping_ = false;
  bool spool_grew_ = false;
  bool beat_now_ = false;
  absl::Duration heartbeat_;
  std::deque<fsdp::v1::ConnectRequest> outbox_;
  std::int64_t num_connects_ = 0;

  std::thread agent_;
  std::thread sender_;
  std::thread beater_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_AGENT_H_
