// Whatever ends `fsdpctl local`, nothing that it started is left running.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace {

using ::testing::HasSubstr;

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool IsAlive(pid_t pid) {
  if (kill(pid, 0) != 0) return false;
  // A zombie that nobody reaps (a container without init) does not run either.
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(stat), {}};
  const std::size_t state = text.rfind(')');
  return state != std::string::npos && state + 2 < text.size() && text[state + 2] != 'Z';
}

// True when `condition` holds before a generous limit.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  while (absl::Now() < limit) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

class LocalTest : public ::testing::Test {
 protected:
  LocalTest()
      : dir_(std::filesystem::path(::testing::TempDir()) / ("local-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~LocalTest() override {
    for (const pid_t pid : started_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove_all(dir_);
  }

  // fsdpctl local ... -- command; output goes to dir_/NAME.out.
  pid_t Start(const std::string& name, const std::vector<std::string>& command,
              const std::string& bin_dir = FAKE_BIN) {
    std::vector<std::string> words = {std::string(FSDP_BINARY_DIR) + "/fsdpctl",
                                      "local",
                                      "--bin-dir",
                                      bin_dir,
                                      "--state-dir",
                                      StateDir().string()};
    if (!command.empty()) words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (auto& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const std::string out = (dir_ / (name + ".out")).string();
    const pid_t pid = fork();
    if (pid == 0) {
      const int fd = open(out.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
      dup2(fd, STDOUT_FILENO);
      dup2(fd, STDERR_FILENO);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    started_.push_back(pid);
    return pid;
  }
  int Wait(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    std::erase(started_, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  [[nodiscard]] std::filesystem::path StateDir() const { return dir_ / "state"; }
  [[nodiscard]] std::string Output(const std::string& name) const {
    return ReadAll(dir_ / (name + ".out"));
  }
  [[nodiscard]] std::vector<pid_t> Pids(const std::string& file) const {
    std::ifstream in(StateDir() / file);
    std::vector<pid_t> pids;
    for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
    return pids;
  }
  void WaitUntilReady(const std::string& name) {
    ASSERT_TRUE(Eventually([&] { return Output(name).find("ready") != std::string::npos; }))
        << Output(name);
  }
  void ExpectNothingLeft(const std::vector<std::string>& files) {
    for (const auto& file : files) {
      EXPECT_FALSE(Pids(file).empty()) << file;
      for (const pid_t pid : Pids(file)) {
        EXPECT_TRUE(Eventually([pid] { return !IsAlive(pid); })) << file << " " << pid;
      }
    }
  }

  std::filesystem::path dir_;
  std::vector<pid_t> started_;
};

const std::vector<std::string> kEverything = {"coordinator/pids", "worker/pids", "worker/orphans"};

TEST_F(LocalTest, TheCommandsExitCodeIsOursAndNothingIsLeft) {
  const pid_t pid = Start("a", {FSDP_BINARY_DIR "/fsdpctl", "workers", "-o", "name"});
  EXPECT_EQ(Wait(pid), 0) << Output("a");
  EXPECT_THAT(Output("a"), HasSubstr("local-3\n"));
  ExpectNothingLeft(kEverything);
  EXPECT_EQ(Wait(Start("b", {"sh", "-c", "exit 7"})), 7);
  EXPECT_EQ(Wait(Start("c", {"sh", "-c", "kill -9 $$"})), 128 + 9);
  EXPECT_EQ(Wait(Start("d", {"/nowhere/command"})), 2);
  EXPECT_THAT(Output("d"), HasSubstr("/nowhere/command"));
  ExpectNothingLeft(kEverything);
}

// An unpacked archive is on nobody's PATH.
TEST_F(LocalTest, TheCommandFindsTheFsdpctlThatStartedIt) {
  EXPECT_EQ(Wait(Start("a", {"sh", "-c", "command -v fsdpctl"})), 0) << Output("a");
  EXPECT_THAT(Output("a"), HasSubstr("\n" FSDP_BINARY_DIR "/fsdpctl\n"));
}

TEST_F(LocalTest, SigtermStopsEverything) {
  const pid_t pid = Start("a", {});
  WaitUntilReady("a");
  EXPECT_THAT(ReadAll(StateDir() / "server"), HasSubstr("127.0.0.1:"));
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 0) << Output("a");
  ExpectNothingLeft(kEverything);
  EXPECT_FALSE(std::filesystem::exists(StateDir() / "server"));
}

TEST_F(LocalTest, SigtermStopsACommandThatGoesOn) {
  const pid_t pid =
      Start("a", {"sh", "-c", "echo $$ > " + (dir_ / "command").string() + "; exec sleep 1000"});
  ASSERT_TRUE(Eventually([&] { return !ReadAll(dir_ / "command").empty(); })) << Output("a");
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 128 + SIGTERM) << Output("a");
  EXPECT_FALSE(IsAlive(std::stoi(ReadAll(dir_ / "command"))));
  ExpectNothingLeft(kEverything);
}

// A shell that is stopped leaves its command behind, which would tell of a cluster that breaks.
TEST_F(LocalTest, WhatTheCommandStartedEndsBeforeTheCluster) {
  const std::string inner = (dir_ / "inner.sh").string();
  const std::string seen = (dir_ / "seen").string();
  const std::string coordinator = (StateDir() / "coordinator/pids").string();
  std::ofstream(inner) << "trap 'kill -0 $(tail -n 1 " << coordinator << ") && echo alive > "
                       << seen << "; exit' TERM\necho $$ > " << (dir_ / "command").string()
                       << "\nwhile :; do sleep 0.05; done\n";
  const pid_t pid = Start("a", {"sh", "-c", "sh " + inner + "; true"});
  ASSERT_TRUE(Eventually([&] { return !ReadAll(dir_ / "command").empty(); })) << Output("a");
  kill(pid, SIGINT);
  EXPECT_EQ(Wait(pid), 128 + SIGTERM) << Output("a");
  EXPECT_EQ(ReadAll(seen), "alive\n");
  EXPECT_FALSE(IsAlive(std::stoi(ReadAll(dir_ / "command"))));
  EXPECT_THAT(Output("a"), HasSubstr("stopping; unfinished jobs go on with"));
  ExpectNothingLeft(kEverything);
}

TEST_F(LocalTest, TheMetricsAddressesSayWhoseTheyAre) {
  EXPECT_EQ(Wait(Start("a", {"true"})), 0);
  EXPECT_THAT(Output("a"), HasSubstr("\n  worker metrics       http://127.0.0.1:1/metrics\n"));
  EXPECT_THAT(Output("a"), HasSubstr("\n  coordinator metrics  http://"));
  EXPECT_THAT(Output("a"), HasSubstr("\n  status page          http://127.0.0.1:40002/\n"));
}

TEST_F(LocalTest, KillingItTakesTheProcessesAlongAndTheNextOneStarts) {
  const pid_t pid = Start("a", {});
  WaitUntilReady("a");
  kill(pid, SIGKILL);
  Wait(pid);
  // The orphan is the stand-in's own; a real trainer dies with its daemon.
  ExpectNothingLeft({"coordinator/pids", "worker/pids"});
  for (const pid_t orphan : Pids("worker/orphans")) kill(orphan, SIGKILL);
  EXPECT_EQ(Wait(Start("b", {"true"})), 0) << Output("b");
}

TEST_F(LocalTest, ASecondOneInTheSameDirectoryIsRefused) {
  const pid_t pid = Start("a", {});
  WaitUntilReady("a");
  EXPECT_EQ(Wait(Start("b", {"true"})), 2);
  EXPECT_THAT(Output("b"), HasSubstr("(pid " + std::to_string(pid) + ")"));
  kill(pid, SIGTERM);
  Wait(pid);
}

TEST_F(LocalTest, ProcessesThatDieComeBackAtTheSameAddress) {
  const pid_t pid = Start("a", {});
  WaitUntilReady("a");
  const std::string server = ReadAll(StateDir() / "server");
  kill(Pids("coordinator/pids").back(), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Pids("coordinator/pids").size() == 2; })) << Output("a");
  kill(Pids("worker/pids").back(), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Pids("worker/pids").size() == 2; })) << Output("a");
  EXPECT_EQ(ReadAll(StateDir() / "server"), server);
  // So do scrapers and browsers find it.
  EXPECT_EQ(ReadAll(StateDir() / "coordinator/listens"),
            "127.0.0.1:0 127.0.0.1:0\n127.0.0.1:40001 127.0.0.1:40002\n");
  EXPECT_TRUE(Eventually([&] {
    return std::system((FSDP_BINARY_DIR "/fsdpctl workers --call-timeout 1s >/dev/null 2>&1 "
                                        "--server " +
                        server.substr(0, server.size() - 1))
                           .c_str()) == 0;
  }));
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 0);
  ExpectNothingLeft(kEverything);
}

TEST_F(LocalTest, ACoordinatorThatCannotStartIsShown) {
  std::filesystem::create_directories(StateDir() / "coordinator");
  std::ofstream(StateDir() / "coordinator/die") << "x";
  EXPECT_EQ(Wait(Start("a", {"true"})), 1);
  EXPECT_THAT(Output("a"), HasSubstr("the coordinator exited with 3"));
  EXPECT_THAT(Output("a"), HasSubstr("| the store is corrupt"));
}

// As bin_dir: the stand-ins, with or without a CUDA trainer beside them.
std::string WithCudaTrainer(const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir);
  for (const char* name : {"fsdp-coordinator", "fsdp-worker"}) {
    std::filesystem::create_symlink(std::filesystem::path(FAKE_BIN) / name, dir / name);
  }
  std::filesystem::create_symlink("/bin/true", dir / "fsdp-trainer-cuda");
  return dir.string();
}

TEST_F(LocalTest, EveryGpuThatTheWorkerFindsIsUsed) {
  ::setenv("FAKE_DEVICES", R"({"type":"cuda","index":0,"model":"NVIDIA H200"})", 1);
  const std::string command = "echo $FSDPCTL_LOCAL_DEVICE:$FSDPCTL_LOCAL_WORKERS";
  EXPECT_EQ(Wait(Start("a", {"sh", "-c", command}, WithCudaTrainer(dir_ / "bin"))), 0);
  EXPECT_THAT(Output("a"), HasSubstr("1 GPU worker (NVIDIA H200)"));
  EXPECT_THAT(Output("a"), HasSubstr("\ncuda:1\n"));
  EXPECT_THAT(ReadAll(StateDir() / "worker/arguments"), HasSubstr("--devices=all --workers=1"));
  // Without the executable for it the GPU is no use.
  EXPECT_EQ(Wait(Start("b", {"sh", "-c", command})), 0);
  EXPECT_THAT(Output("b"), HasSubstr("4 CPU workers"));
  EXPECT_THAT(Output("b"), HasSubstr("NVIDIA H200 stays unused"));
  EXPECT_THAT(Output("b"), HasSubstr("\ncpu:4\n"));
  ::unsetenv("FAKE_DEVICES");
}

TEST_F(LocalTest, MissingExecutablesAreNamed) {
  EXPECT_EQ(Wait(Start("a", {"true"}, dir_.string())), 2);
  EXPECT_THAT(Output("a"), HasSubstr("fsdp-coordinator is missing"));
}

TEST_F(LocalTest, CleanForgetsEarlierRuns) {
  std::filesystem::create_directories(StateDir() / "coordinator");
  std::ofstream(StateDir() / "coordinator/old") << "x";
  std::ofstream(StateDir() / "mine") << "x";
  EXPECT_EQ(Wait(Start("a", {"true"})), 0);
  EXPECT_TRUE(std::filesystem::exists(StateDir() / "coordinator/old"));
  const std::string command = FSDP_BINARY_DIR "/fsdpctl local --clean --bin-dir " FAKE_BIN
                                              " --state-dir " +
                              StateDir().string() + " -- true 2>/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_FALSE(std::filesystem::exists(StateDir() / "coordinator/old"));
  EXPECT_TRUE(std::filesystem::exists(StateDir() / "mine"));
}

}  // namespace
