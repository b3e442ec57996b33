#include "worker/daemon/host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::daemon {
namespace {

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void ExecChild(const char* path, char* const* argv, int link_fd, pid_t parent) {
  // A terminal's Ctrl-C reaches the parent only, which passes it on once.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::fcntl(link_fd, F_SETFD, 0);
  ::execv(path, argv);
  ::_exit(127);
}

}  // namespace

Host::Host(Options options) : options_(std::move(options)) {
  for (const ChildSpec& spec : options_.children) {
    auto child = std::make_unique<Child>();
    child->spec = spec;
    child->restart_delay = options_.restart_initial;
    children_.push_back(std::move(child));
  }
}

Host::~Host() {
  SignalAll(SIGKILL);
  for (const auto& child : children_) {
    if (child->pid > 0) ::waitpid(child->pid, nullptr, 0);
    if (child->link != nullptr) child->link->Shutdown();
    if (child->reader.joinable()) child->reader.join();
  }
}

absl::Status Host::Run(int signal_fd) {
  while (!(stopping_ && !any_alive())) {
    if (!stopping_) StartDue();
    pollfd entry{signal_fd, POLLIN, 0};
    if (::poll(&entry, 1, 100) <= 0) continue;
    signalfd_siginfo info{};
    if (::read(signal_fd, &info, sizeof info) != sizeof info) continue;
    RETURN_IF_ERROR(HandleSignal(static_cast<int>(info.ssi_signo)));
  }
  return absl::OkStatus();
}

absl::Status Host::HandleSignal(int signal) {
  if (signal == SIGCHLD) return ReapChildren();
  LOG_INFO("signal %d (%s): passed on to %d workers", signal, ::strsignal(signal),
           children_.size());
  stopping_ = true;
  SignalAll(SIGTERM);
  return absl::OkStatus();
}

bool Host::any_alive() const {
  return std::ranges::any_of(children_, [](const auto& child) { return child->pid > 0; });
}

void Host::SignalAll(int signal) {
  for (const auto& child : children_) {
    if (child->pid > 0) ::kill(child->pid, signal);
  }
}

void Host::StartDue() {
  const MonotonicTime now = Clock::Real().Now();
  for (const auto& child : children_) {
    if (child->pid > 0 || now < child->restart_time) continue;
    const absl::Status started = StartChild(*child);
    if (!started.ok()) {
      LOG_ERROR("worker %s: %s", child->spec.name, started.message());
      child->restart_time = now + options_.restart_max;
    }
  }
}

absl::Status Host::StartChild(Child& child) {
  ASSIGN_OR_RETURN(const auto fds, MakeSocketPair());
  auto link = std::make_unique<FramedSocket>(fds.first);
  std::vector<std::string> arguments = {options_.executable};
  arguments.insert(arguments.end(), child.spec.arguments.begin(), child.spec.arguments.end());
  arguments.push_back(absl::StrCat("--parent-fd=", fds.second));
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) ExecChild(options_.executable.c_str(), argv.data(), fds.second, parent);
  const int error = errno;
  ::close(fds.second);
  if (pid < 0) return ErrnoToStatus(error, "fork");
  if (child.reader.joinable()) child.reader.join();
  child.pid = pid;
  child.start_time = Clock::Real().Now();
  child.link = std::move(link);
  child.reader = std::thread([this, &child] { ReadSnapshots(child); });
  LOG_INFO("worker %s started, pid %d", child.spec.name, pid);
  return absl::OkStatus();
}

void Host::ReadSnapshots(Child& child) {
  DeviceSnapshot snapshot;
  while (child.link->Read(&snapshot).ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    child.snapshot = std::exchange(snapshot, {});
    child.has_snapshot = true;
  }
}

absl::Status Host::ReapChildren() {
  // Signals merge: one SIGCHLD may stand for several ends.
  for (const auto& child : children_) {
    int wait_status = 0;
    if (child->pid <= 0 || ::waitpid(child->pid, &wait_status, WNOHANG) != child->pid) continue;
    RETURN_IF_ERROR(HandleEnd(*child, wait_status));
  }
  return absl::OkStatus();
}

absl::Status Host::HandleEnd(Child& child, int wait_status) {
  child.pid = 0;
  const MonotonicTime now = Clock::Real().Now();
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitUsage) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", child.spec.name, " refuses its configuration"));
  }
  if (stopping_) return absl::OkStatus();
  LOG_WARNING("worker %s ended (%s %d), starting it again", child.spec.name,
              WIFSIGNALED(wait_status) ? "signal" : "exit code",
              WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
  if (now - child.start_time >= options_.healthy_after) {
    child.restart_delay = options_.restart_initial;
  }
  child.restart_time = now + child.restart_delay;
  child.restart_delay = std::min(child.restart_delay * 2, options_.restart_max);
  const std::lock_guard<std::mutex> lock(mutex_);
  ++child.num_restarts;
  // What it showed is over; the next one starts with what it knows.
  child.snapshot.clear_ranks();
  child.snapshot.set_connected(false);
  child.snapshot.set_rank_active(false);
  return absl::OkStatus();
}

std::vector<DeviceSnapshot> Host::Snapshots() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<DeviceSnapshot> snapshots;
  for (const auto& child : children_) {
    if (!child->has_snapshot) continue;
    snapshots.push_back(child->snapshot);
    snapshots.back().set_num_child_restarts(child->num_restarts);
  }
  return snapshots;
}

SnapshotSender::SnapshotSender(int fd, absl::Duration period,
                               std::function<DeviceSnapshot()> source)
    // A stopped parent must not hold up its children.
    : link_(fd, {.write_timeout = absl::Seconds(1)}), source_(std::move(source)) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  thread_ = std::thread([this, period] {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      const bool sent = link_.Write(source_()).ok();
      lock.lock();
      if (!sent) return;
      wake_.wait_for(lock, absl::ToChronoNanoseconds(period), [this] { return stopping_; });
    }
  });
}

SnapshotSender::~SnapshotSender() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  (void)link_.Write(source_());
}

}  // namespace fsdp::daemon
