#include "worker/train/cleaned_run.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "proto/support/log.h"

namespace fsdp {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};

sigset_t Watched() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kEnding) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  return set;
}

// The child's wait status.
int Reap(pid_t child) {
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return state;
}

// Until the child has ended, or a signal says that all shall: that signal; 0: the child has.
int WaitForEnd(pid_t child, const sigset_t& watched, int* state) {
  while (true) {
    int signal = 0;
    if (sigwait(&watched, &signal) != 0) continue;
    if (signal != SIGCHLD) return signal;
    if (waitpid(child, state, WNOHANG) == child) return 0;
  }
}

void EndBy(int signal, const sigset_t& mask) {
  ::signal(signal, SIG_DFL);
  raise(signal);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

int RunCleaned(const std::function<int()>& body, const std::function<void()>& clean) {
  const sigset_t watched = Watched();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &watched, &before);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (getppid() != parent) _exit(1);
    const int code = body();
    std::fflush(nullptr);
    _exit(code);
  }
  if (child < 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const int code = body();
    clean();
    return code;
  }
  int state = 0;
  const int signal = WaitForEnd(child, watched, &state);
  if (signal != 0) {
    kill(child, SIGKILL);
    state = Reap(child);
  }
  clean();
  if (signal != 0) EndBy(signal, before);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFEXITED(state)) return WEXITSTATUS(state);
  LOG_ERROR("the run was ended by signal %d", WTERMSIG(state));
  return 128 + WTERMSIG(state);
}

}  // namespace fsdp
