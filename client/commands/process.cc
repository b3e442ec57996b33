#include "client/commands/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/status.h"

extern char** environ;

namespace fsdp {
namespace {

// What the child needs, laid out before fork: afterwards only async-signal-safe calls are allowed.
struct Prepared {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  int log_fd = -1;
  int error_fd = -1;
  pid_t parent = 0;
};

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  return pointers;
}

[[noreturn]] void RunChild(const Prepared& prepared, bool own_group) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Our parent died before the line above took effect.
  if (getppid() != prepared.parent) _exit(127);
  if (own_group) setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (prepared.log_fd >= 0) {
    const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null_fd, STDIN_FILENO);
    dup2(prepared.log_fd, STDOUT_FILENO);
    dup2(prepared.log_fd, STDERR_FILENO);
  }
  environ = const_cast<char**>(prepared.environment.data());
  execvp(prepared.arguments[0], prepared.arguments.data());
  const int error = errno;
  // The pipe closes by itself on success; on failure the parent reads why.
  static_cast<void>(!write(prepared.error_fd, &error, sizeof(error)));
  _exit(127);
}

absl::StatusOr<int> OpenLog(const std::string& path) {
  if (path.empty()) return -1;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  return fd;
}

std::set<pid_t> ChildrenOf(const std::string& process) {
  std::set<pid_t> children;
  std::error_code ignored;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + process + "/task", ignored)) {
    std::ifstream file(task.path() / "children");
    for (pid_t pid = 0; file >> pid;) children.insert(pid);
  }
  return children;
}

std::set<pid_t> Children() { return ChildrenOf("self"); }

// Children started here whose end nobody has read yet.
std::set<pid_t>& OwnChildren() {
  static std::set<pid_t> pids;
  return pids;
}

// What came to us when its parent died, with its children.
std::set<pid_t> Inherited() {
  std::set<pid_t> found;
  std::vector<pid_t> next;
  for (const pid_t pid : Children()) {
    if (!OwnChildren().contains(pid)) next.push_back(pid);
  }
  while (!next.empty()) {
    const pid_t pid = next.back();
    next.pop_back();
    if (!found.insert(pid).second) continue;
    for (const pid_t child : ChildrenOf(absl::StrCat(pid))) next.push_back(child);
  }
  return found;
}

}  // namespace

absl::StatusOr<Child> Child::Start(const ChildOptions& options) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const auto& extra : options.extra_environment) replaced |= extra.rfind(name, 0) == 0;
    if (!replaced) environment.push_back(text);
  }
  environment.insert(environment.end(), options.extra_environment.begin(),
                     options.extra_environment.end());
  Prepared prepared;
  prepared.arguments = Pointers(options.command);
  prepared.arguments.push_back(nullptr);
  prepared.environment = Pointers(environment);
  prepared.environment.push_back(nullptr);
  ASSIGN_OR_RETURN(prepared.log_fd, OpenLog(options.log_path));
  prepared.parent = getpid();
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "pipe2");
  prepared.error_fd = pipe_fds[1];
  const pid_t pid = fork();
  if (pid == 0) RunChild(prepared, options.own_group);
  const int fork_error = errno;
  close(pipe_fds[1]);
  if (prepared.log_fd >= 0) close(prepared.log_fd);
  int exec_error = 0;
  if (pid > 0 && read(pipe_fds[0], &exec_error, sizeof(exec_error)) != sizeof(exec_error)) {
    exec_error = 0;
  }
  close(pipe_fds[0]);
  if (pid < 0) return ErrnoToStatus(fork_error, "fork");
  if (exec_error != 0) {
    waitpid(pid, nullptr, 0);
    return ErrnoToStatus(exec_error, absl::StrCat("cannot run ", options.command[0]));
  }
  if (options.own_group) setpgid(pid, pid);
  OwnChildren().insert(pid);
  return Child(pid, options.own_group);
}

std::optional<int> Child::Poll() {
  if (wait_status_.has_value()) return wait_status_;
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == pid_) wait_status_ = status;
  if (ended < 0 && errno == ECHILD) wait_status_ = 0;
  if (wait_status_.has_value()) OwnChildren().erase(pid_);
  return wait_status_;
}

void Child::Signal(int signal) {
  // After it was reaped the number may belong to somebody else.
  if (!wait_status_.has_value()) kill(own_group_ ? -pid_ : pid_, signal);
}

void Child::Stop(absl::Duration grace) {
  Signal(SIGTERM);
  const absl::Time kill_at = absl::Now() + grace;
  while (!Poll().has_value()) {
    if (absl::Now() >= kill_at) Signal(SIGKILL);
    absl::SleepFor(absl::Milliseconds(10));
  }
}

int ShellExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string DescribeWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("killed by signal ", WTERMSIG(wait_status));
  }
  return absl::StrCat("exited with ", WEXITSTATUS(wait_status));
}

void BecomeReaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void ReapInherited() {
  for (;;) {
    siginfo_t info{};
    // Looks without taking: the wait status of a child of ours is its Child's to read.
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    // It hides those behind it only until its Child is polled.
    if (OwnChildren().contains(info.si_pid)) return;
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

void StopInherited(absl::Duration grace) {
  ReapInherited();
  // Once: what they start to tidy up is theirs.
  for (const pid_t pid : Inherited()) kill(pid, SIGTERM);
  const absl::Time kill_at = absl::Now() + grace;
  for (std::set<pid_t> left = Inherited(); !left.empty(); left = Inherited()) {
    if (absl::Now() >= kill_at) {
      for (const pid_t pid : left) kill(pid, SIGKILL);
    }
    absl::SleepFor(absl::Milliseconds(10));
    ReapInherited();
  }
}

void KillDescendants() {
  // A killed child's own children become ours, one level at a time.
  const absl::Time give_up = absl::Now() + absl::Seconds(5);
  for (std::set<pid_t> children = Children(); !children.empty() && absl::Now() < give_up;
       children = Children()) {
    for (const pid_t pid : children) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
}

}  // namespace fsdp
