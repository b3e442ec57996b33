#include "worker/daemon/trainer_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/clock.h"
#include "proto/support/framed_socket.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/daemon/files.h"
#include "worker/daemon/line_splitter.h"

namespace fsdp::daemon {
namespace {

// Closes when it goes.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read_end;
  Fd write_end;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "pipe2");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

// All that the child needs between fork and exec, where nothing may allocate.
struct ExecPlan {
  const char* path;
  char* const* argv;
  char* const* envp;
  int link_fd;
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;
  int error_fd;
  pid_t parent;
};

// In the child. Only async-signal-safe calls. Reports errno through error_fd when exec fails.
[[noreturn]] void ExecInChild(const ExecPlan& plan) {
  const auto fail = [&] {
    const int error = errno;
    (void)!::write(plan.error_fd, &error, sizeof error);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The daemon may have died before prctl.
  if (::getppid() != plan.parent) ::_exit(127);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGHUP, SIGUSR1, SIGUSR2}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(plan.stdin_fd, STDIN_FILENO) < 0 || ::dup2(plan.stdout_fd, STDOUT_FILENO) < 0 ||
      ::dup2(plan.stderr_fd, STDERR_FILENO) < 0) {
    fail();
  }
  // Whatever libraries opened without O_CLOEXEC must not reach the trainer. Kernels before 5.11
  // lack the call; there such descriptors leak.
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  if (::fcntl(plan.link_fd, F_SETFD, 0) != 0) fail();
  ::execve(plan.path, plan.argv, plan.envp);
  fail();
  ::_exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Started {
  pid_t pid = 0;
  Fd link;
  Fd out;
  Fd err;
};

// errno of a failed exec; 0: it succeeded.
int ReadExecError(int fd) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

absl::StatusOr<Started> ForkAndExec(const TrainerOptions& options) {
  ASSIGN_OR_RETURN(auto link_fds, MakeSocketPair());
  Fd our_link(link_fds.first);
  const Fd their_link(link_fds.second);
  ASSIGN_OR_RETURN(Pipe out, MakePipe());
  ASSIGN_OR_RETURN(Pipe err, MakePipe());
  ASSIGN_OR_RETURN(Pipe exec_error, MakePipe());
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));

  std::vector<std::string> arguments = {options.path, absl::StrCat("--link-fd=", their_link.get())};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment;
  environment.reserve(options.environment.size());
  for (const auto& [name, value] : options.environment) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const ExecPlan plan{options.path.c_str(),
                      argv.data(),
                      envp.data(),
                      their_link.get(),
                      null.get(),
                      out.write_end.get(),
                      err.write_end.get(),
                      exec_error.write_end.get(),
                      ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoToStatus(errno, "fork");
  if (pid == 0) ExecInChild(plan);
  exec_error.write_end.Reset();
  if (const int error = ReadExecError(exec_error.read_end.get()); error != 0) {
    ::waitpid(pid, nullptr, 0);
    return ErrnoToStatus(error, absl::StrCat("cannot run the trainer ", options.path));
  }
  return Started{pid, std::move(our_link), std::move(out.read_end), std::move(err.read_end)};
}

class TrainerProcess final : public Trainer {
 public:
  TrainerProcess(Started started, const TrainerOptions& options, TrainerObserver* observer)
      : pid_(started.pid),
        options_(options),
        observer_(*observer),
        out_fd_(std::move(started.out)),
        err_fd_(std::move(started.err)),
        link_(started.link.Release(), {.write_timeout = options.write_timeout}),
        exited_fd_(::eventfd(0, EFD_CLOEXEC)),
        out_([this](std::string text, bool continued) {
          observer_.OnTrainerLine(v1::LOG_STREAM_STDOUT, std::move(text), continued);
        }),
        err_([this](std::string text, bool continued) {
          observer_.OnTrainerLine(v1::LOG_STREAM_STDERR, std::move(text), continued);
        }) {
    waiter_ = std::thread([this] { WaitForEnd(); });
    reader_ = std::thread([this] { ReadAll(); });
  }

  ~TrainerProcess() override {
    Signal(SIGKILL);
    waiter_.join();
    reader_.join();
  }

  absl::Status Send(const v1::DaemonToTrainer& message) override { return link_.Write(message); }

  void Signal(int signal) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reaped_) return;
    // A trainer that somebody else has killed may be half-way out: its end is not ours then.
    const bool ends_it = signal == SIGTERM || signal == SIGKILL;
    if (ends_it && !exit_.signalled_by_us) exit_.signalled_by_us = !ProcessIsEnding(pid_);
    ::kill(-pid_, signal);
  }

  [[nodiscard]] pid_t pid() const override { return pid_; }

 private:
  // Its own thread: waits, ends what is left of the group, wakes the reader.
  void WaitForEnd() {
    siginfo_t info{};
    // WNOWAIT keeps the zombie, and with it the process group's number, until the group is killed.
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
    int status = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ::kill(-pid_, SIGKILL);
      while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
      reaped_ = true;
      if (WIFSIGNALED(status)) {
        exit_.signal = WTERMSIG(status);
      } else {
        exit_.exit_code = WEXITSTATUS(status);
      }
    }
    const std::uint64_t one = 1;
    (void)!::write(exited_fd_.get(), &one, sizeof one);
  }

  // Its own thread: all of the observer's calls come from here.
  void ReadAll() {
    enum { kOut, kErr, kLink, kExited, kNum };
    std::array<pollfd, kNum> fds = {{{out_fd_.get(), POLLIN, 0},
                                     {err_fd_.get(), POLLIN, 0},
                                     {link_.fd(), POLLIN, 0},
                                     {exited_fd_.get(), POLLIN, 0}}};
    std::optional<MonotonicTime> deadline;
    const auto open = [&] { return fds[kOut].fd >= 0 || fds[kErr].fd >= 0 || fds[kLink].fd >= 0; };
    while (open() || !deadline) {
      int timeout_ms = -1;
      if (deadline) {
        const absl::Duration left = *deadline - Clock::Real().Now();
        if (left <= absl::ZeroDuration()) break;
        timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
      }
      if (::poll(fds.data(), fds.size(), timeout_ms) < 0) continue;
      if (fds[kOut].revents != 0 && !ReadOutput(out_fd_.get(), &out_)) fds[kOut].fd = -1;
      if (fds[kErr].revents != 0 && !ReadOutput(err_fd_.get(), &err_)) fds[kErr].fd = -1;
      if (fds[kLink].revents != 0 && !ReadLink()) fds[kLink].fd = -1;
      if (fds[kExited].revents != 0) {
        fds[kExited].fd = -1;
        deadline = Clock::Real().Now() + options_.drain_timeout;
      }
    }
    out_.Finish();
    err_.Finish();
    observer_.OnTrainerExit(exit_);
  }

  // False: nothing more will come.
  static bool ReadOutput(int fd, LineSplitter* lines) {
    char buffer[1 << 16];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got > 0) lines->Append({buffer, static_cast<std::size_t>(got)});
    return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
  }

  bool ReadLink() {
    char buffer[1 << 16];
    const ssize_t got = ::recv(link_.fd(), buffer, sizeof buffer, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (got <= 0) {
      observer_.OnTrainerLinkClosed(
          decoder_.num_pending_bytes() == 0
              ? absl::OkStatus()
              : absl::DataLossError("the trainer's link ended inside a message"));
      return false;
    }
    decoder_.Append({buffer, static_cast<std::size_t>(got)});
    const absl::Status status = DeliverMessages();
    if (!status.ok()) observer_.OnTrainerLinkClosed(status);
    return status.ok();
  }

  absl::Status DeliverMessages() {
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<std::string> payload, decoder_.Next());
      if (!payload) return absl::OkStatus();
      v1::TrainerToDaemon message;
      RETURN_IF_ERROR(ParsePayload(*payload, &message));
      observer_.OnTrainerMessage(std::move(message));
    }
  }

  const pid_t pid_;
  const TrainerOptions options_;
  TrainerObserver& observer_;
  const Fd out_fd_;
  const Fd err_fd_;
  FramedSocket link_;
  const Fd exited_fd_;
  // Of the reader thread.
  LineSplitter out_;
  LineSplitter err_;
  FrameDecoder decoder_;

  std::mutex mutex_;
  // Guarded by mutex_; exit_ is read by the reader after the eventfd was written.
  bool reaped_ = false;
  TrainerExit exit_;

  std::thread waiter_;
  std::thread reader_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> StartTrainer(const TrainerOptions& options,
                                                      TrainerObserver* observer) {
  ASSIGN_OR_RETURN(Started started, ForkAndExec(options));
  return std::make_unique<TrainerProcess>(std::move(started), options, observer);
}

namespace {

// /proc/PID/stat from its third field, the state, on.
absl::StatusOr<std::vector<std::string>> ReadStat(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  const absl::StatusOr<std::string> read = ReadFile(path);
  if (!read.ok()) {
    // Reaped between the opening of the file and its reading (ESRCH).
    if (::access(path.c_str(), F_OK) != 0) return absl::NotFoundError(path);
    return read.status();
  }
  const std::string& stat = *read;
  // The command's name, in parentheses, may hold anything; fields are counted after it.
  const std::size_t after_name = stat.rfind(')');
  std::vector<std::string> fields;
  if (after_name != std::string::npos) {
    fields = absl::StrSplit(stat.substr(after_name + 1), ' ', absl::SkipEmpty());
  }
  if (fields.size() < 20) return absl::InternalError(absl::StrCat(path, " is not as expected"));
  return fields;
}

bool HasEnded(const std::vector<std::string>& fields) {
  return fields[0] == "Z" || fields[0] == "X";
}

bool LooksEnding(pid_t pid) {
  const absl::StatusOr<std::vector<std::string>> fields = ReadStat(pid);
  if (!fields.ok()) return absl::IsNotFound(fields.status());
  if (HasEnded(*fields)) return true;
  // Of linux/sched.h: the process gets ready to end; a signal ends it.
  constexpr std::uint64_t kExiting = 0x4;
  constexpr std::uint64_t kSignaled = 0x400;
  std::uint64_t flags = 0;
  std::uint64_t pending = 0;
  // Fields 9 and 31 of the file.
  if (!absl::SimpleAtoi((*fields)[9 - 3], &flags)) return false;
  if ((flags & (kExiting | kSignaled)) != 0) return true;
  return fields->size() > 31 - 3 && absl::SimpleAtoi((*fields)[31 - 3], &pending) &&
         (pending & (std::uint64_t{1} << (SIGKILL - 1))) != 0;
}

absl::StatusOr<std::int64_t> StartTicks(pid_t pid, const std::vector<std::string>& fields) {
  // Field 22 of the file.
  std::int64_t ticks = 0;
  if (!absl::SimpleAtoi(fields[22 - 3], &ticks)) {
    return absl::InternalError(absl::StrCat("start time '", fields[22 - 3], "' of pid ", pid));
  }
  return ticks;
}

}  // namespace

absl::StatusOr<std::int64_t> ProcessStartTicks(pid_t pid) {
  ASSIGN_OR_RETURN(const std::vector<std::string> fields, ReadStat(pid));
  return StartTicks(pid, fields);
}

bool ProcessLives(pid_t pid, std::int64_t start_ticks) {
  // One reading, so that the start time and the state are of the same process.
  const absl::StatusOr<std::vector<std::string>> fields = ReadStat(pid);
  if (!fields.ok()) return !absl::IsNotFound(fields.status());
  const absl::StatusOr<std::int64_t> ticks = StartTicks(pid, *fields);
  if (ticks.ok() && *ticks != start_ticks) return false;
  // The state is the first thread's, which may have ended before the others: field 20 counts them.
  std::int64_t num_threads = 0;
  return !HasEnded(*fields) ||
         (absl::SimpleAtoi((*fields)[20 - 3], &num_threads) && num_threads > 1);
}

absl::StatusOr<char> ProcessState(pid_t pid) {
  ASSIGN_OR_RETURN(const std::vector<std::string> fields, ReadStat(pid));
  return fields[0][0];
}

bool ProcessIsEnding(pid_t pid) {
  // The kernel reads the flags before the pending signals: a process that takes its SIGKILL in
  // between shows neither, and its flags the next time.
  return LooksEnding(pid) || LooksEnding(pid);
}

}  // namespace fsdp::daemon
