#ifndef FSDPCTL_WORKER_TRAIN_CLEANED_RUN_H_
#define FSDPCTL_WORKER_TRAIN_CLEANED_RUN_H_

// A run that leaves nothing behind, however it ends.

#include <functional>

namespace fsdp {

// Runs `body` in a child process and returns its exit code; `clean` runs here afterwards, also when
// the child died or this process was told to end by SIGINT, SIGTERM or SIGHUP: then the child is
// killed and this process ends by that signal. To be called while the process has one thread.
//
// The child dies with this process. Without a process to spare (fork fails) `body` runs here.
int RunCleaned(const std::function<int()>& body, const std::function<void()>& clean);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_CLEANED_RUN_H_
