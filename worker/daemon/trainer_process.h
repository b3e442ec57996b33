#ifndef FSDPCTL_WORKER_DAEMON_TRAINER_PROCESS_H_
#define FSDPCTL_WORKER_DAEMON_TRAINER_PROCESS_H_

// One trainer: the child process that runs one rank.

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fsdp/v1/trainer.pb.h"

namespace fsdp::daemon {

// How a process ended: exactly one of the two is meant; signal 0: it exited.
struct TrainerExit {
  int exit_code = 0;
  int signal = 0;
  // SIGTERM or SIGKILL had been sent through Trainer::Signal to a process that nothing else was
  // ending yet.
  bool signalled_by_us = false;
};

// What a trainer does, told from a thread of its own, one call at a time. OnExit is the last call:
// everything the trainer wrote before its end has been given by then, and no process of its group
// is left.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  virtual void OnTrainerMessage(fsdp::v1::TrainerToDaemon message) = 0;
  // See LineSplitter::Sink.
  virtual void OnTrainerLine(fsdp::v1::LogStream stream, std::string text, bool continued) = 0;
  // The link cannot be used any more. OK: the trainer closed it regularly.
  virtual void OnTrainerLinkClosed(absl::Status status) = 0;
  virtual void OnTrainerExit(TrainerExit exit) = 0;
};

// Thread-safe. The destructor kills the trainer and waits for OnExit.
class Trainer {
 public:
  virtual ~Trainer() = default;
  //   UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION  as FramedSocket::Write: the trainer is
  //   gone, or
  //                                                        takes nothing
  virtual absl::Status Send(const fsdp::v1::DaemonToTrainer& message) = 0;
  // To the whole process group; no effect once it is gone. SIGKILL also ends a stopped (SIGSTOP)
  // trainer.
  virtual void Signal(int signal) = 0;
  [[nodiscard]] virtual pid_t pid() const = 0;
};

struct TrainerOptions {
  // Executable.
  std::string path;
  // Besides "--link-fd=N", which comes first.
  std::vector<std::string> arguments;
  // The whole environment.
  std::map<std::string, std::string> environment;
  // After the process has ended: how long to wait for the end of its output, which a stray process
  // that left the group may hold open.
  absl::Duration drain_timeout = absl::Seconds(1);
  // A trainer that takes no bytes from its link for this long counts as gone.
  absl::Duration write_timeout = absl::Seconds(2);
};

// Starts `options.path` in a process group of its own, with a socketpair as its link, stdin from
// /dev/null, stdout and stderr captured, all other descriptors closed. It gets SIGKILL when the
// calling thread ends (PR_SET_PDEATHSIG goes by thread), so the caller is the daemon's core thread.
//   NOT_FOUND, PERMISSION_DENIED, ...  the executable cannot be run: message has path and errno
//   RESOURCE_EXHAUSTED                 no process or descriptor left
absl::StatusOr<std::unique_ptr<Trainer>> StartTrainer(const TrainerOptions& options,
                                                      TrainerObserver* observer);

// When process `pid` started, in clock ticks since boot; with the pid it names one process.
//   NOT_FOUND  there is none
absl::StatusOr<std::int64_t> ProcessStartTicks(pid_t pid);

// Whether the process that `pid` and `start_ticks` name is there and has a thread that has not
// ended. A zombie, which only waits for its parent to read its end, does not live: it holds no
// memory and no device. True when that cannot be known.
bool ProcessLives(pid_t pid, std::int64_t start_ticks);

// The kernel's letter for what process `pid` does: R runs, S sleeps, D waits in the kernel and
// cannot be interrupted, T is stopped by a signal, Z has ended.
//   NOT_FOUND  there is none
absl::StatusOr<char> ProcessState(pid_t pid);

// Whether process `pid` has ended, is on its way out, or has a SIGKILL waiting. False when that
// cannot be known.
bool ProcessIsEnding(pid_t pid);

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_TRAINER_PROCESS_H_
