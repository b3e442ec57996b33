#ifndef FSDPCTL_WORKER_DAEMON_HOST_H_
#define FSDPCTL_WORKER_DAEMON_HOST_H_

// The supervising process of a host with several devices: one daemon process per device, restarted
// when it dies, and one metrics endpoint for all of them.
//
// A child is this executable again, with flags for its device and a socket on which it sends
// DeviceSnapshots. It gets SIGKILL when the parent dies; SIGTERM and SIGINT are passed on.

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/support/framed_socket.h"
#include "worker/daemon/daemon_link.pb.h"

namespace fsdp::daemon {

// A child's exit code for "my configuration is wrong": no restart can heal it, so the parent ends
// too.
inline constexpr int kExitUsage = 2;

// One device's daemon, as the parent sees it.
struct ChildSpec {
  std::string name;
  // After the executable; "--parent-fd=N" is added.
  std::vector<std::string> arguments;
};

// All calls from one thread, which must live as long as the children (PR_SET_PDEATHSIG goes by
// thread), except Snapshots.
class Host {
 public:
  struct Options {
    std::string executable;
    std::vector<ChildSpec> children;
    // Between a child's death and its restart; doubles up to the maximum while children die young.
    absl::Duration restart_initial = absl::Milliseconds(100);
    absl::Duration restart_max = absl::Seconds(5);
    // A child that lived this long starts again with the initial delay.
    absl::Duration healthy_after = absl::Seconds(30);
  };

  explicit Host(Options options);
  // Kills what is left.
  ~Host();

  // Runs the children until SIGTERM or SIGINT arrives and they have ended. `signal_fd` is a
  // signalfd of SIGTERM, SIGINT and SIGCHLD, which the caller has blocked.
  //   INVALID_ARGUMENT  a child ended with kExitUsage; its stderr has said why
  absl::Status Run(int signal_fd);

  // The newest snapshot of each child that has sent one.
  [[nodiscard]] std::vector<DeviceSnapshot> Snapshots() const;

 private:
  struct Child {
    ChildSpec spec;
    pid_t pid = 0;
    MonotonicTime start_time;
    // When to start it; unused while it runs.
    MonotonicTime restart_time;
    absl::Duration restart_delay;
    std::int64_t num_restarts = 0;
    std::unique_ptr<FramedSocket> link;
    std::thread reader;
    // Guarded by Host::mutex_.
    bool has_snapshot = false;
    DeviceSnapshot snapshot;
  };

  void StartDue();
  absl::Status StartChild(Child& child);
  void ReadSnapshots(Child& child);
  absl::Status ReapChildren();
  absl::Status HandleEnd(Child& child, int wait_status);
  void SignalAll(int signal);
  [[nodiscard]] bool any_alive() const;
  absl::Status HandleSignal(int signal);

  const Options options_;
  std::vector<std::unique_ptr<Child>> children_;
  mutable std::mutex mutex_;
  bool stopping_ = false;
};

// The child's side: sends snapshots to the parent until it goes, which also ends the sender.
class SnapshotSender {
 public:
  // Takes `fd`. `source` is called every `period` and once more in the destructor.
  SnapshotSender(int fd, absl::Duration period, std::function<DeviceSnapshot()> source);
  ~SnapshotSender();

 private:
  FramedSocket link_;
  const std::function<DeviceSnapshot()> source_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_HOST_H_
