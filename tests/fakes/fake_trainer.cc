// A trainer that follows a script, for tests of what supervises trainers. It speaks the real link.
//
//   fake_trainer --link-fd=N
//
// The script is the environment variable FSDP_FAKE_SCRIPT: commands separated by ';', run in order.
//   hello                    send TrainerHello, wait for TrainerStart
//   hello_version V          the same with another protocol version, no waiting
//   join                     send RankJoined
//   await_commit             wait for CommitEpoch
//   running                  send RankRunning
//   steps N                  send N StepReports
//   pulse SEQ NAME           send a RankPulse with a pending collective (NAME "-": none)
//   put NAME VALUE, get NAME rendezvous; get waits and prints "got NAME VALUE"
//   manifest STEP            propose a checkpoint and wait; prints "verdict STEP admitted|refused"
//   await_stop               wait for TrainerStop; prints "stop MODE"
//   await_dump               wait for DumpDiagnostics, send a CollectiveDump
//   checkpoint_done STEP     send TrainerDone of an early stop, saved at STEP
//   done                     send TrainerDone of a finished job
//   fail MESSAGE             send RankFailure
//   out TEXT, err TEXT       a line on stdout or stderr
//   out_bytes N              a line of N bytes on stdout
//   print_env NAME           "NAME=value" on stdout
//   spawn                    start a process of the same group that sleeps; prints "spawned PID"
//   ignore_term              SIGTERM has no effect from here on
//   close_link               close the link
//   garbage                  write bytes that are no frame to the link
//   sleep                    wait for ever (until the link ends: exit 7)
//   exit N, signal N         end
// At the script's end it exits with 0. EOF on the link while waiting: exit 7.

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "fsdp/v1/trainer.pb.h"
#include "proto/support/framed_socket.h"

namespace fsdp {
namespace {

constexpr int kExitLinkLost = 7;
constexpr int kExitBadScript = 99;

class FakeTrainer {
 public:
  explicit FakeTrainer(int link_fd) : link_(link_fd) {}

  // The exit code.
  int Run(const std::string& script) {
    const std::vector<std::string> commands = absl::StrSplit(script, ';', absl::SkipWhitespace());
    for (const std::string& command : commands) {
      const std::vector<std::string> words = absl::StrSplit(command, ' ', absl::SkipEmpty());
      Do(words);
      if (exit_code_) return *exit_code_;
    }
    return 0;
  }

 private:
  using Words = std::vector<std::string>;

  static int Number(const Words& words) {
    int number = 0;
    return words.size() > 1 && absl::SimpleAtoi(words[1], &number) ? number : 0;
  }
  static std::string Rest(const Words& words) {
    std::string rest;
    for (std::size_t i = 1; i < words.size(); ++i) rest += (i > 1 ? " " : "") + words[i];
    return rest;
  }
  static void Print(std::FILE* to, const std::string& text) {
    std::fprintf(to, "%s\n", text.c_str());
    std::fflush(to);
  }

  void Do(const Words& words) {
    const std::string& verb = words[0];
    if (DoLink(verb, words) || DoProcess(verb, words)) return;
    Print(stderr, "fake_trainer: unknown command " + verb);
    exit_code_ = kExitBadScript;
  }

  bool DoLink(const std::string& verb, const Words& words) {
    v1::TrainerToDaemon message;
    if (verb == "hello" || verb == "hello_version") {
      message.mutable_hello()->set_protocol_version(verb == "hello" ? 1 : Number(words));
      message.mutable_hello()->set_pid(::getpid());
      message.mutable_hello()->set_backend("cpu");
      Send(message);
      if (verb == "hello") {
        const v1::DaemonToTrainer start = Await(v1::DaemonToTrainer::kStart);
        Print(stdout, "start world " + std::to_string(start.start().assignment().world_size()) +
                          " threads " + std::to_string(start.start().cpu_threads()));
      }
    } else if (verb == "join") {
      message.mutable_joined()->set_plan_hash(42);
      Send(message);
    } else if (verb == "await_commit") {
      Await(v1::DaemonToTrainer::kCommit);
    } else if (verb == "running") {
      message.mutable_running()->set_first_step(step_ + 1);
      Send(message);
    } else if (verb == "steps") {
      for (int i = 0; i < Number(words); ++i) SendStep();
    } else if (verb == "pulse") {
      v1::RankPulse& pulse = *message.mutable_pulse();
      pulse.set_step(step_);
      pulse.set_collective_started(Number(words));
      if (words.at(2) != "-") pulse.set_collective(words.at(2));
      Send(message);
    } else if (verb == "put") {
      message.mutable_rendezvous_put()->set_name(words.at(1));
      message.mutable_rendezvous_put()->set_value(words.at(2));
      Send(message);
    } else if (verb == "get") {
      message.mutable_rendezvous_get()->set_name(words.at(1));
      Send(message);
      const v1::DaemonToTrainer value = Await(v1::DaemonToTrainer::kRendezvousValue);
      Print(stdout, "got " + words.at(1) + " " + value.rendezvous_value().value());
    } else if (verb == "manifest") {
      message.mutable_manifest()->mutable_checkpoint()->set_step(Number(words));
      Send(message);
      const v1::DaemonToTrainer verdict = Await(v1::DaemonToTrainer::kManifestVerdict);
      Print(stdout, "verdict " + words.at(1) +
                        (verdict.manifest_verdict().admitted() ? " admitted" : " refused"));
    } else if (verb == "await_stop") {
      Print(stdout, "stop " + v1::StopMode_Name(Await(v1::DaemonToTrainer::kStop).stop().mode()));
    } else if (verb == "await_dump") {
      Await(v1::DaemonToTrainer::kDump);
      message.mutable_collective_dump()->add_stacks("main");
      Send(message);
    } else if (verb == "done" || verb == "checkpoint_done") {
      v1::TrainerDone& done = *message.mutable_done();
      done.set_finished(verb == "done");
      done.set_last_step(step_);
      done.set_checkpoint_step(Number(words));
      done.mutable_result()->set_steps(step_);
      Send(message);
    } else if (verb == "fail") {
      message.mutable_failure()->set_cause(v1::FAILURE_CAUSE_COMMUNICATION);
      message.mutable_failure()->set_message(Rest(words));
      Send(message);
    } else {
      return false;
    }
    return true;
  }

  bool DoProcess(const std::string& verb, const Words& words) {
    if (verb == "out" || verb == "err") {
      Print(verb == "out" ? stdout : stderr, Rest(words));
    } else if (verb == "out_bytes") {
      Print(stdout, std::string(Number(words), 'x'));
    } else if (verb == "print_env") {
      const char* const value = std::getenv(words.at(1).c_str());
      Print(stdout, words.at(1) + "=" + (value == nullptr ? "(unset)" : value));
    } else if (verb == "spawn") {
      const pid_t pid = ::fork();
      if (pid == 0) {
        for (;;) ::pause();
      }
      Print(stdout, "spawned " + std::to_string(pid));
    } else if (verb == "ignore_term") {
      ::signal(SIGTERM, SIG_IGN);
    } else if (verb == "close_link") {
      link_.Shutdown();
    } else if (verb == "garbage") {
      const std::string bytes("\x02\x00\x00\x00\xff\xff", 6);
      (void)!::send(link_.fd(), bytes.data(), bytes.size(), 0);
    } else if (verb == "sleep") {
      Await(std::nullopt);
    } else if (verb == "pause") {
      for (;;) ::pause();
    } else if (verb == "exit") {
      exit_code_ = Number(words);
    } else if (verb == "signal") {
      std::fflush(nullptr);
      // Sanitizers handle some signals themselves.
      ::signal(Number(words), SIG_DFL);
      ::raise(Number(words));
    } else {
      return false;
    }
    return true;
  }

  void Send(const v1::TrainerToDaemon& message) {
    if (!link_.Write(message).ok()) std::_Exit(kExitLinkLost);
  }

  void SendStep() {
    ++step_;
    v1::TrainerToDaemon message;
    v1::StepReport& report = *message.mutable_step();
    report.mutable_metrics()->set_step(step_);
    report.mutable_metrics()->set_loss(10.0 / step_);
    report.mutable_metrics()->set_tokens(100);
    report.mutable_metrics()->set_step_seconds(0.5);
    report.mutable_metrics()->mutable_phases()->set_compute_seconds(0.25);
    report.set_memory_peak_bytes(1 << 20);
    v1::FamilyVerdict& family = *report.add_families();
    family.set_family("matmul");
    family.set_bound(v1::BOUND_COMPUTE);
    family.set_source(v1::METRIC_SOURCE_ANALYTIC);
    family.set_seconds(0.25 * step_);
    Send(message);
  }

  // Waits for a message of this kind; others are kept for later. nullopt: waits for the end.
  v1::DaemonToTrainer Await(std::optional<v1::DaemonToTrainer::MessageCase> kind) {
    if (kind && !waiting_[*kind].empty()) {
      v1::DaemonToTrainer message = waiting_[*kind].front();
      waiting_[*kind].erase(waiting_[*kind].begin());
      return message;
    }
    v1::DaemonToTrainer message;
    while (link_.Read(&message).ok()) {
      if (kind && message.message_case() == *kind) return message;
      waiting_[message.message_case()].push_back(message);
    }
    std::_Exit(kExitLinkLost);
  }

  FramedSocket link_;
  int step_ = 0;
  std::optional<int> exit_code_;
  std::map<v1::DaemonToTrainer::MessageCase, std::vector<v1::DaemonToTrainer>> waiting_;
};

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  constexpr std::string_view kFlag = "--link-fd=";
  const char* const script = std::getenv("FSDP_FAKE_SCRIPT");
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with(kFlag) || script == nullptr) continue;
    return fsdp::FakeTrainer(std::atoi(argument.c_str() + kFlag.size())).Run(script);
  }
  std::fprintf(stderr, "fake_trainer: needs --link-fd=N and FSDP_FAKE_SCRIPT\n");
  return 98;
}
