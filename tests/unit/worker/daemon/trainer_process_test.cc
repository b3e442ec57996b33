#include "worker/daemon/trainer_process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::daemon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kFakeTrainer[] = FSDP_BINARY_DIR "/fake_trainer";

// Collects what a trainer does; waits for it with a limit that only a broken build reaches.
class Recorder : public TrainerObserver {
 public:
  void OnTrainerMessage(v1::TrainerToDaemon message) override {
    Change([&] { messages.push_back(std::move(message)); });
  }
  void OnTrainerLine(v1::LogStream stream, std::string text, bool continued) override {
    Change([&] {
      EXPECT_FALSE(exit) << "a line after the exit: " << text;
      lines.push_back((stream == v1::LOG_STREAM_STDERR ? "err: " : "out: ") + text +
                      (continued ? "..." : ""));
    });
  }
  void OnTrainerLinkClosed(absl::Status status) override {
    Change([&] { link_closed = std::move(status); });
  }
  void OnTrainerExit(TrainerExit value) override {
    Change([&] { exit = value; });
  }

  TrainerExit WaitForExit() {
    WaitFor([this] { return exit.has_value(); });
    return exit.value_or(TrainerExit{-1, -1});
  }
  bool WaitForLine(const std::string& prefix, std::string* found = nullptr) {
    return WaitFor([&] {
      for (const std::string& line : lines) {
        if (!absl::StartsWith(line, prefix)) continue;
        if (found != nullptr) *found = line;
        return true;
      }
      return false;
    });
  }
  bool WaitFor(const std::function<bool()>& done) {
    std::unique_lock<std::mutex> lock(mutex);
    return WaitLocked(lock, done);
  }

  // Also looks now and then unasked: the state of processes changes without a call.
  bool WaitLocked(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
    for (int i = 0; i < 2000; ++i) {
      if (changed.wait_for(lock, std::chrono::milliseconds(10), done)) return true;
    }
    return false;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<v1::TrainerToDaemon> messages;
  std::vector<std::string> lines;
  std::optional<absl::Status> link_closed;
  std::optional<TrainerExit> exit;

 private:
  void Change(const std::function<void()>& change) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      change();
    }
    changed.notify_all();
  }
};

class TrainerProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<Trainer> Start(const std::string& script) {
    return StartTrainer({.path = kFakeTrainer, .environment = {{"FSDP_FAKE_SCRIPT", script}}},
                        &recorder_)
        .value();
  }

  Recorder recorder_;
};

// Not a zombie either.
bool ProcessIsGone(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(status, text)) return true;
  return absl::StrContains(text, ") Z ");
}

TEST_F(TrainerProcessTest, AllOutputComesBeforeTheExitCode) {
  const auto trainer = Start("out one;err two;out_bytes 20000;exit 5");
  const TrainerExit exit = recorder_.WaitForExit();
  EXPECT_EQ(exit.exit_code, 5);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_THAT(recorder_.lines, Contains("out: one"));
  EXPECT_THAT(recorder_.lines, Contains("err: two"));
  EXPECT_THAT(recorder_.lines, Contains("out: " + std::string(16384, 'x') + "..."));
  EXPECT_THAT(recorder_.lines, Contains("out: " + std::string(20000 - 16384, 'x')));
}

TEST_F(TrainerProcessTest, ASignalIsToldAsSuch) {
  const auto trainer = Start("err last words;signal 11");
  const TrainerExit exit = recorder_.WaitForExit();
  EXPECT_EQ(exit.signal, SIGSEGV);
  EXPECT_THAT(recorder_.lines, ElementsAre("err: last words"));
}

TEST_F(TrainerProcessTest, MessagesGoBothWays) {
  const auto trainer = Start("hello;join;await_commit;running;done");
  v1::DaemonToTrainer message;
  message.mutable_start()->mutable_assignment()->set_world_size(3);
  ASSERT_TRUE(trainer->Send(message).ok());
  ASSERT_TRUE(recorder_.WaitFor([&] { return recorder_.messages.size() == 2; }));
  message.mutable_commit();
  ASSERT_TRUE(trainer->Send(message).ok());
  EXPECT_EQ(recorder_.WaitForExit().exit_code, 0);
  ASSERT_EQ(recorder_.messages.size(), 4u);
  EXPECT_EQ(recorder_.messages[0].hello().pid(), trainer->pid());
  EXPECT_TRUE(recorder_.messages[3].has_done());
  EXPECT_THAT(recorder_.lines, Contains("out: start world 3 threads 0"));
  ASSERT_TRUE(recorder_.link_closed);
  EXPECT_TRUE(recorder_.link_closed->ok());
}

TEST_F(TrainerProcessTest, TheEnvironmentIsExactlyTheOneGiven) {
  ::setenv("FSDP_TEST_SECRET", "x", 1);
  const auto trainer = Start("print_env FSDP_TEST_SECRET;print_env FSDP_FAKE_SCRIPT");
  recorder_.WaitForExit();
  EXPECT_THAT(recorder_.lines, Contains("out: FSDP_TEST_SECRET=(unset)"));
}

TEST_F(TrainerProcessTest, GarbageOnTheLinkIsAnError) {
  const auto trainer = Start("garbage;sleep");
  ASSERT_TRUE(recorder_.WaitFor([&] { return recorder_.link_closed.has_value(); }));
  EXPECT_TRUE(absl::IsDataLoss(*recorder_.link_closed));
  trainer->Signal(SIGKILL);
  EXPECT_EQ(recorder_.WaitForExit().signal, SIGKILL);
}

TEST_F(TrainerProcessTest, SigtermEndsItUnlessIgnored) {
  const auto trainer = Start("out ready;sleep");
  ASSERT_TRUE(recorder_.WaitForLine("out: ready"));
  trainer->Signal(SIGTERM);
  const TrainerExit exit = recorder_.WaitForExit();
  EXPECT_EQ(exit.signal, SIGTERM);
  EXPECT_TRUE(exit.signalled_by_us);
}

TEST_F(TrainerProcessTest, AKillThatComesAfterSomebodyElsesIsNotOurs) {
  for (int i = 0; i < 20; ++i) {
    Recorder recorder;
    const auto trainer =
        StartTrainer({.path = kFakeTrainer, .environment = {{"FSDP_FAKE_SCRIPT", "sleep"}}},
                     &recorder)
            .value();
    EXPECT_FALSE(ProcessIsEnding(trainer->pid()));
    ASSERT_EQ(::kill(trainer->pid(), SIGKILL), 0);
    EXPECT_TRUE(ProcessIsEnding(trainer->pid()));
    trainer->Signal(SIGKILL);
    const TrainerExit exit = recorder.WaitForExit();
    EXPECT_EQ(exit.signal, SIGKILL);
    EXPECT_FALSE(exit.signalled_by_us);
  }
}

TEST_F(TrainerProcessTest, AStoppedTrainerIsKillable) {
  const auto trainer = Start("ignore_term;out ready;sleep");
  ASSERT_TRUE(recorder_.WaitForLine("out: ready"));
  trainer->Signal(SIGSTOP);
  ASSERT_TRUE(recorder_.WaitFor([&] { return ProcessState(trainer->pid()).value_or('?') == 'T'; }));
  trainer->Signal(SIGTERM);
  trainer->Signal(SIGKILL);
  EXPECT_EQ(recorder_.WaitForExit().signal, SIGKILL);
}

TEST_F(TrainerProcessTest, ItsChildrenDieWithIt) {
  const auto trainer = Start("spawn;exit 1");
  EXPECT_EQ(recorder_.WaitForExit().exit_code, 1);
  std::string line;
  ASSERT_TRUE(recorder_.WaitForLine("out: spawned ", &line));
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(line.substr(std::string("out: spawned ").size()), &pid));
  // Killed before the exit was told; init reaps it in its own time.
  ASSERT_TRUE(recorder_.WaitFor([&] { return ProcessIsGone(pid); }));
}

TEST_F(TrainerProcessTest, TheDestructorKills) {
  pid_t pid = 0;
  {
    const auto trainer = Start("ignore_term;out ready;sleep");
    pid = trainer->pid();
    ASSERT_TRUE(recorder_.WaitForLine("out: ready"));
  }
  EXPECT_EQ(recorder_.WaitForExit().signal, SIGKILL);
  EXPECT_TRUE(ProcessIsGone(pid));
  EXPECT_FALSE(ProcessStartTicks(pid).ok());
}

TEST_F(TrainerProcessTest, SendingToAGoneTrainerIsUnavailable) {
  const auto trainer = Start("exit 0");
  recorder_.WaitForExit();
  EXPECT_TRUE(absl::IsUnavailable(trainer->Send(v1::DaemonToTrainer())));
  trainer->Signal(SIGKILL);  // No effect, above all on nobody else.
}

TEST_F(TrainerProcessTest, AMissingExecutableIsNamed) {
  const auto trainer = StartTrainer({.path = "/nonexistent/fsdp-trainer"}, &recorder_);
  EXPECT_TRUE(absl::IsNotFound(trainer.status()));
  EXPECT_THAT(std::string(trainer.status().message()), HasSubstr("/nonexistent/fsdp-trainer"));
  const auto directory = StartTrainer({.path = "/tmp"}, &recorder_);
  EXPECT_TRUE(absl::IsPermissionDenied(directory.status()));
}

TEST_F(TrainerProcessTest, StartTicksNameTheProcess) {
  EXPECT_GT(ProcessStartTicks(::getpid()).value(), 0);
  EXPECT_TRUE(absl::IsNotFound(ProcessStartTicks(0x7fffffff).status()));
}

TEST_F(TrainerProcessTest, AZombieDoesNotLive) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  const std::int64_t ticks = ProcessStartTicks(pid).value();
  EXPECT_TRUE(ProcessLives(pid, ticks));
  // The number is another process's.
  EXPECT_FALSE(ProcessLives(pid, ticks - 1));
  ::kill(pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
  // Nobody has reaped it: it still has its number and its start time.
  EXPECT_EQ(ProcessStartTicks(pid).value(), ticks);
  EXPECT_FALSE(ProcessLives(pid, ticks));
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_FALSE(ProcessLives(pid, ticks));
}

// The state in /proc is the first thread's.
TEST_F(TrainerProcessTest, AProcessWhoseFirstThreadHasEndedLives) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::thread([] {
      for (;;) ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);
  }
  const std::int64_t ticks = ProcessStartTicks(pid).value();
  EXPECT_TRUE(recorder_.WaitFor([&] { return ProcessState(pid).value() == 'Z'; }));
  EXPECT_TRUE(ProcessLives(pid, ticks));
  ::kill(pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(ProcessLives(pid, ticks));
  ::waitpid(pid, nullptr, 0);
}

// PR_SET_PDEATHSIG: the trainer of a daemon that is killed dies at once, though it ignores the
// link.
TEST_F(TrainerProcessTest, ItDiesWithTheDaemon) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    Recorder recorder;
    const auto trainer =
        StartTrainer({.path = kFakeTrainer,
                      .environment = {{"FSDP_FAKE_SCRIPT", "ignore_term;out ready;pause"}}},
                     &recorder)
            .value();
    recorder.WaitForLine("out: ready");
    const pid_t pid = trainer->pid();
    (void)!::write(fds[1], &pid, sizeof pid);
    for (;;) ::pause();
  }
  pid_t trainer = 0;
  ASSERT_EQ(::read(fds[0], &trainer, sizeof trainer), static_cast<ssize_t>(sizeof trainer));
  EXPECT_FALSE(ProcessIsGone(trainer));
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);
  EXPECT_TRUE(recorder_.WaitFor([&] { return ProcessIsGone(trainer); }));
  ::close(fds[0]);
  ::close(fds[1]);
}

}  // namespace
}  // namespace fsdp::daemon
