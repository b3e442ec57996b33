#include "worker/data/tokenize_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/clock.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr int kPollMs = 20;
// Of what the child prints and is no report: enough for a loader's error.
constexpr std::size_t kMaxWords = 2048;

// Closes when it goes.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  void Reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

absl::Status MakePipe(Fd* read_end, Fd* write_end) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "pipe2");
  read_end->Reset(fds[0]);
  write_end->Reset(fds[1]);
  return absl::OkStatus();
}

// The sources' names as the child's standard input: a file without a name, so that neither side
// waits for the other.
absl::Status WriteNames(const std::vector<std::string>& sources, Fd* file) {
  file->Reset(::memfd_create("sources", MFD_CLOEXEC));
  if (file->get() < 0) return ErrnoToStatus(errno, "memfd_create");
  std::string text;
  for (const std::string& source : sources) text.append(source).push_back('\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file->get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoToStatus(errno, "write(memfd)");
    done += static_cast<std::size_t>(count);
  }
  if (::lseek(file->get(), 0, SEEK_SET) != 0) return ErrnoToStatus(errno, "lseek(memfd)");
  return absl::OkStatus();
}

// In the child between fork and exec: async-signal-safe calls only. Tells errno through `error_fd`.
[[noreturn]] void ExecChild(char* const* argv, int in_fd, int out_fd, int error_fd, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(in_fd, STDIN_FILENO);
  ::dup2(out_fd, STDOUT_FILENO);
  ::dup2(out_fd, STDERR_FILENO);
  // Libraries leave descriptors open across exec: sockets to peers, the device.
  ::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execv(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(error_fd, &error, sizeof(error));
  ::_exit(127);
}

// The running child.
class Child {
 public:
  absl::Status Start(const TokenizeProcess& process);
  ~Child() {
    if (pid_ > 0) Kill();
  }
  // Reads until the child has closed its output, telling what it tells.
  absl::Status Follow(const TokenizeProcess& process);
  // Waits for it; what it ended with.
  absl::Status End();

 private:
  void Kill() {
    ::kill(pid_, SIGKILL);
    int ignored = 0;
    while (::waitpid(pid_, &ignored, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  absl::Status WaitForExec(int error_fd, const std::string& program);
  // False: it says nothing more.
  bool Read();
  void TakeLines(const TokenizeProcess& process);
  void TakeLine(const std::string& line, const TokenizeProcess& process);

  pid_t pid_ = -1;
  Fd out_;
  std::string pending_;  // a line that is not complete
  std::string words_;    // what was no report
  absl::Status told_;
};

absl::Status Child::Start(const TokenizeProcess& process) {
  Fd names, out, error_read, error_write;
  RETURN_IF_ERROR(WriteNames(process.sources, &names));
  RETURN_IF_ERROR(MakePipe(&out_, &out));
  RETURN_IF_ERROR(MakePipe(&error_read, &error_write));
  std::vector<std::string> arguments = {process.program};
  arguments.insert(arguments.end(), process.arguments.begin(), process.arguments.end());
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) return ErrnoToStatus(errno, "fork");
  if (pid_ == 0) ExecChild(argv.data(), names.get(), out.get(), error_write.get(), parent);
  error_write.Reset();
  return WaitForExec(error_read.get(), process.program);
}

absl::Status Child::WaitForExec(int error_fd, const std::string& program) {
  int error = 0;
  ssize_t count = 0;
  do {
    count = ::read(error_fd, &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  if (count == 0) return absl::OkStatus();
  Kill();
  const char* const remedy =
      error == ENOENT ? ": it belongs beside fsdp-trainer; install both from one package" : "";
  return absl::FailedPreconditionError(
      absl::StrCat(program, " cannot be run: ", std::strerror(error), remedy));
}

bool Child::Read() {
  char buffer[4096];
  const ssize_t count = ::read(out_.get(), buffer, sizeof(buffer));
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (count <= 0) return false;
  pending_.append(buffer, static_cast<std::size_t>(count));
  return true;
}

void Child::TakeLines(const TokenizeProcess& process) {
  for (std::size_t end = 0; (end = pending_.find('\n')) != std::string::npos;) {
    TakeLine(pending_.substr(0, end), process);
    pending_.erase(0, end + 1);
  }
}

void Child::TakeLine(const std::string& line, const TokenizeProcess& process) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto number = [](const nlohmann::json& from, const char* key) {
    const auto found = from.find(key);
    return found != from.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  if (json.is_object() && json.contains("doneBytes")) {
    if (process.on_progress) {
      process.on_progress(
          {number(json, "doneBytes"), number(json, "totalBytes"), number(json, "tokens")});
    }
    return;
  }
  const auto error = json.is_object() ? json.find("error") : json.end();
  if (error != json.end() && error->is_object()) {
    const auto message = error->find("message");
    told_ =
        absl::Status(static_cast<absl::StatusCode>(number(*error, "code")),
                     message != error->end() && message->is_string() ? message->get<std::string>()
                                                                     : std::string("no message"));
    return;
  }
  if (words_.size() < kMaxWords) absl::StrAppend(&words_, words_.empty() ? "" : " ", line);
}

absl::Status Child::Follow(const TokenizeProcess& process) {
  MonotonicTime heard = Clock::Real().Now();
  for (;;) {
    if (process.stop_requested && process.stop_requested()) {
      Kill();
      return absl::CancelledError("the making of tokens was stopped");
    }
    pollfd ready{out_.get(), POLLIN, 0};
    if (::poll(&ready, 1, kPollMs) > 0) {
      if (!Read()) return absl::OkStatus();
      TakeLines(process);
      heard = Clock::Real().Now();
    }
    if (Clock::Real().Now() - heard < process.stall_limit) continue;
    Kill();
    return absl::DeadlineExceededError(absl::StrCat(process.program, " made no progress for ",
                                                    absl::FormatDuration(process.stall_limit),
                                                    " and was ended"));
  }
}

absl::Status Child::End() {
  int state = 0;
  while (::waitpid(pid_, &state, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return absl::OkStatus();
  if (!told_.ok()) return told_;
  const std::string how = WIFSIGNALED(state) ? absl::StrCat("was ended by signal ", WTERMSIG(state))
                                             : absl::StrCat("ended with code ", WEXITSTATUS(state));
  return absl::AbortedError(
      absl::StrCat("fsdp-tokenize ", how, words_.empty() ? "" : ": ", words_, pending_));
}

}  // namespace

absl::Status RunTokenizeProcess(const TokenizeProcess& process) {
  Child child;
  RETURN_IF_ERROR(child.Start(process));
  RETURN_IF_ERROR(child.Follow(process));
  return child.End();
}

}  // namespace fsdp
