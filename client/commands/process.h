#ifndef FSDPCTL_CLIENT_COMMANDS_PROCESS_H_
#define FSDPCTL_CLIENT_COMMANDS_PROCESS_H_

// Child processes of `fsdpctl local`. None outlives this process: each gets SIGKILL from the kernel
// when the thread that started it ends, so all of this belongs to one thread.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp {

struct ChildOptions {
  // Executable and arguments; an executable without a slash is looked up in PATH.
  std::vector<std::string> command;
  // Standard output and error are appended there; empty: ours.
  std::string log_path;
  // "NAME=value", added to our environment.
  std::vector<std::string> extra_environment;
  // A group of its own, so that Ctrl-C on the terminal does not reach it.
  bool own_group = false;
};

class Child {
 public:
  //   NOT_FOUND, PERMISSION_DENIED  the executable cannot be run
  static absl::StatusOr<Child> Start(const ChildOptions& options);

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Wait status once it has ended; does not block.
  std::optional<int> Poll();
  void Signal(int signal);
  // SIGTERM, then SIGKILL after `grace`; returns when it is gone.
  void Stop(absl::Duration grace);

 private:
  Child(pid_t pid, bool own_group) : pid_(pid), own_group_(own_group) {}
  pid_t pid_;
  bool own_group_;
  std::optional<int> wait_status_;
};

// Exit code as a shell gives it: 128 + signal for a death by signal.
int ShellExitCode(int wait_status);
// "exited with 3", "killed by signal 9".
std::string DescribeWaitStatus(int wait_status);

// Makes orphaned grandchildren ours, so that KillDescendants finds them; ReapInherited is then due
// a few times a second.
void BecomeReaper();
// Reaps the inherited children that have ended, which would stay zombies. The end of a Child is
// left to its Poll.
void ReapInherited();
// Ends what became ours when its parent ended, and its children: SIGTERM, after `grace` SIGKILL.
void StopInherited(absl::Duration grace);
// SIGKILL to whatever still descends from us, until nothing does (at most a few seconds).
void KillDescendants();

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_PROCESS_H_
