// The process around RunCli: terminal, environment, signals.

#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <streambuf>
#include <string>
#include <thread>

#include "client/cli.h"
#include "client/exit_code.h"

namespace {

int TerminalColumns() {
  winsize size{};
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  return 80;
}

std::string ExecutablePath() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size <= 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

// Standard input that ends at an interrupt: a read(2) alone would go on waiting.
class InterruptibleInput final : public std::streambuf {
 public:
  explicit InterruptibleInput(const fsdp::Interrupt* interrupt) : interrupt_(*interrupt) {}

 private:
  int_type underflow() override {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (poll(&input, 1, /*timeout=*/100) <= 0) {
      if (interrupt_.cancelled()) return traits_type::eof();
    }
    const ssize_t size = read(STDIN_FILENO, buffer_.data(), buffer_.size());
    if (size <= 0) return traits_type::eof();
    setg(buffer_.data(), buffer_.data(), buffer_.data() + size);
    return traits_type::to_int_type(buffer_[0]);
  }

  const fsdp::Interrupt& interrupt_;
  std::array<char, 16384> buffer_{};
};

// Turns Ctrl-C and SIGTERM into Interrupt::Cancel; a second one ends the process the hard way.
void WatchSignals(sigset_t signals, fsdp::Interrupt* interrupt) {
  int signal = 0;
  sigwait(&signals, &signal);
  interrupt->Cancel();
  sigwait(&signals, &signal);
  // Children of `local` die with us: each asked for it (PR_SET_PDEATHSIG).
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
}

}  // namespace

int main(int argc, char** argv) {
  // Before any other thread exists, so that only the watcher takes them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  static fsdp::Interrupt interrupt;
  std::thread(WatchSignals, signals, &interrupt).detach();
  // gRPC's own log lines would mix with ours; the errors reach us as statuses.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  std::ios::sync_with_stdio(false);
  fsdp::CliWorld world;
  InterruptibleInput input(&interrupt);
  std::istream in(&input);
  world.in = &in;
  world.out = &std::cout;
  world.err = &std::cerr;
  world.out_is_terminal = isatty(STDOUT_FILENO) == 1;
  world.err_is_terminal = isatty(STDERR_FILENO) == 1;
  world.columns = TerminalColumns();
  world.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
  world.interrupt = &interrupt;
  world.clock = &fsdp::Clock::Real();
  world.executable = ExecutablePath();
  const int exit_code = fsdp::RunCli({argv + 1, argv + argc}, world);
  std::cout.flush();
  return exit_code;
}
