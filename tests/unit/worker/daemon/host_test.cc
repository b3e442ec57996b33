// The fsdp-worker executable: several devices under one parent, killed in every way.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/worker/daemon/fake_coordinator.h"
#include "tests/unit/worker/daemon/temp_dir.h"

namespace fsdp::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Received = FakeCoordinator::Received;

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Real processes take real time: looks every 10 ms, for at most 20 s.
bool Eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool ProcessIsGone(pid_t pid) {
  const std::string stat = FileText(absl::StrCat("/proc/", pid, "/stat"));
  return stat.empty() || absl::StrContains(stat, ") Z ");
}

// Output of a shell command.
std::string Shell(const std::string& command, int* status = nullptr) {
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    output.append(buffer, got);
  }
  const int result = ::pclose(pipe);
  if (status != nullptr) *status = WEXITSTATUS(result);
  return output;
}

class HostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    coordinator_ = std::make_unique<FakeCoordinator>(FakeCoordinator::Options());
  }
  void TearDown() override {
    if (pid_ > 0) Signal(SIGKILL);
  }

  void StartWorker(const std::string& devices, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {FSDP_BINARY_DIR "/fsdp-worker",
                                          "--coordinator=" + coordinator_->address(),
                                          "--state-dir=" + dir_.path() + "/state",
                                          "--devices=" + devices,
                                          "--name=t",
                                          "--port-file=" + dir_.path() + "/ports",
                                          "--trainer=" FSDP_BINARY_DIR "/fake_trainer"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ASSERT_EQ(::posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  }
  // Returns waitpid's status.
  int Signal(int signal) {
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

  // The newest incarnation of each worker that said hello.
  std::map<std::string, std::string> Incarnations() const {
    std::map<std::string, std::string> found;
    for (const v1::ConnectRequest& request : coordinator_->received()) {
      if (request.has_hello()) found[request.hello().worker()] = request.hello().incarnation();
    }
    return found;
  }
  bool WaitForWorkers(std::size_t count) {
    return coordinator_->WaitFor([&](const Received& received) {
      std::set<std::string> names;
      for (const auto& request : received) {
        if (request.has_hello()) names.insert(request.hello().worker());
      }
      return names.size() == count;
    });
  }
  std::string Scrape() const {
    const auto ports = nlohmann::json::parse(FileText(dir_.path() + "/ports"));
    return Shell(
        absl::StrCat("curl -s http://127.0.0.1:", ports["metrics"].get<int>(), "/metrics"));
  }
  // The child processes of the parent.
  std::vector<pid_t> Children() const {
    std::istringstream text(FileText(absl::StrCat("/proc/", pid_, "/task/", pid_, "/children")));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; text >> pid;) pids.push_back(pid);
    return pids;
  }
  void StartRank(const std::string& script) {
    v1::ConnectResponse response;
    v1::StartRank& start = *response.mutable_start_rank();
    start.mutable_key()->set_job("jobs/test-1");
    start.mutable_key()->set_epoch(1);
    start.set_world_size(1);
    (*start.mutable_job()->mutable_spec()->mutable_env())["FSDP_FAKE_SCRIPT"] = script;
    coordinator_->Send(response);
  }
  // The pid of the trainer that joined.
  pid_t WaitForTrainer() {
    const auto joined = coordinator_->WaitForMessage(
        [](const auto& m) { return m.has_report() && m.report().has_joined(); });
    return joined ? joined->report().joined().pid() : -1;
  }

  TempDir dir_;
  std::unique_ptr<FakeCoordinator> coordinator_;
  pid_t pid_ = 0;
};

TEST_F(HostTest, OneEndpointForAllDevicesAndItIsClean) {
  StartWorker("cpu:2");
  ASSERT_TRUE(WaitForWorkers(2));
  ASSERT_TRUE(Eventually([&] {
    const std::string text = Scrape();
    return absl::StrContains(text, "fsdp_worker_connected{worker=\"t-cpu-0\"} 1") &&
           absl::StrContains(text, "fsdp_worker_connected{worker=\"t-cpu-1\"} 1");
  }));
  const auto ports = nlohmann::json::parse(FileText(dir_.path() + "/ports"));
  EXPECT_THAT(ports["workers"].get<std::vector<std::string>>(),
              UnorderedElementsAre("t-cpu-0", "t-cpu-1"));
  const auto hello = coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); });
  EXPECT_EQ(hello->hello().metrics_address(), ports["metrics_address"].get<std::string>());

  StartRank("hello;join;await_commit;running;steps 3;sleep");
  WaitForTrainer();
  v1::ConnectResponse commit;
  commit.mutable_commit_epoch()->mutable_key()->set_job("jobs/test-1");
  commit.mutable_commit_epoch()->mutable_key()->set_epoch(1);
  coordinator_->Send(commit);
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(Scrape(), "fsdp_steps_total{job_id=\"test-1\",rank=\"0\"} 3");
  }));
  const std::string text = Scrape();
  EXPECT_THAT(text,
              HasSubstr("fsdp_kernel_seconds_total{job_id=\"test-1\",rank=\"0\",kernel_family="
                        "\"matmul\",bound=\"compute\",source=\"analytic\"} 0.75"));
  std::ofstream(dir_.path() + "/scrape") << text;
  int status = -1;
  EXPECT_EQ(Shell("promtool check metrics < " + dir_.path() + "/scrape", &status), "");
  EXPECT_EQ(status, 0);
}

TEST_F(HostTest, TheOnlyWorkerHasTheNameThatWasGiven) {
  StartWorker("cpu:1");
  ASSERT_TRUE(WaitForWorkers(1));
  const auto hello = coordinator_->WaitForMessage([](const auto& m) { return m.has_hello(); });
  EXPECT_EQ(hello->hello().worker(), "t");
  EXPECT_THAT(FileText(dir_.path() + "/ports"), HasSubstr("[\"t\"]"));
}

TEST_F(HostTest, AKilledChildComesBackAsANewIncarnationAndItsTrainerIsGone) {
  StartWorker("cpu:1");
  ASSERT_TRUE(WaitForWorkers(1));
  const auto before = Incarnations();
  StartRank("ignore_term;hello;join;pause");
  const pid_t trainer = WaitForTrainer();
  ASSERT_FALSE(ProcessIsGone(trainer));
  ASSERT_EQ(Children().size(), 1u);
  ::kill(Children()[0], SIGKILL);
  EXPECT_TRUE(Eventually([&] { return ProcessIsGone(trainer); }));
  EXPECT_TRUE(Eventually([&] { return Incarnations() != before; }));
  // Nobody was left to report the trainer's end, so the new life does.
  const auto exited = coordinator_->WaitForMessage(
      [](const auto& m) { return m.has_report() && m.report().has_exited(); });
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->report().exited().signal(), SIGKILL);
  EXPECT_EQ(exited->report().key().job(), "jobs/test-1");
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(Scrape(), "fsdp_worker_child_restarts_total{worker=\"t\"} 1");
  }));
}

TEST_F(HostTest, SigtermStopsEverythingInOrder) {
  StartWorker("cpu:2");
  ASSERT_TRUE(WaitForWorkers(2));
  const std::vector<pid_t> children = Children();
  StartRank("hello;join;await_commit;running;sleep");
  const pid_t trainer = WaitForTrainer();
  const int status = Signal(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(ProcessIsGone(trainer));
  for (const pid_t child : children) EXPECT_TRUE(ProcessIsGone(child));
  const Received received = coordinator_->received();
  EXPECT_EQ(std::ranges::count_if(received, [](const auto& m) { return m.has_goodbye(); }), 2);
  EXPECT_TRUE(std::ranges::any_of(
      received, [](const auto& m) { return m.has_report() && m.report().has_exited(); }));
}

TEST_F(HostTest, WhenTheParentIsKilledNothingIsLeft) {
  StartWorker("cpu:2");
  ASSERT_TRUE(WaitForWorkers(2));
  const std::vector<pid_t> children = Children();
  ASSERT_EQ(children.size(), 2u);
  StartRank("ignore_term;hello;join;pause");
  const pid_t trainer = WaitForTrainer();
  Signal(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return ProcessIsGone(trainer); }));
  for (const pid_t child : children) {
    EXPECT_TRUE(Eventually([&] { return ProcessIsGone(child); }));
  }
}

TEST_F(HostTest, OneDeviceNeedsNoParent) {
  StartWorker("cpu");
  ASSERT_TRUE(WaitForWorkers(1));
  EXPECT_EQ(Incarnations().begin()->first, "t");
  EXPECT_TRUE(Children().empty());
  EXPECT_TRUE(Eventually(
      [&] { return absl::StrContains(Scrape(), "fsdp_worker_connected{worker=\"t\"} 1"); }));
  EXPECT_EQ(WEXITSTATUS(Signal(SIGINT)), 0);
}

TEST_F(HostTest, TheStateDirectoryBelongsToOneProcess) {
  StartWorker("cpu");
  ASSERT_TRUE(WaitForWorkers(1));
  const pid_t first = pid_;
  StartWorker("cpu");
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = first;
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(HostTest, BadFlagsAreNamedWithTheRemedy) {
  const std::string worker = FSDP_BINARY_DIR "/fsdp-worker --state-dir=" + dir_.path() + " ";
  const std::pair<const char*, const char*> cases[] = {
      {"--devices=gpu", "--devices=gpu: use all, cpu"},
      {"--coordinator=nowhere", "--coordinator=nowhere: want HOST:PORT"},
      {"--metrics-listen=1:2:x", "--metrics-listen=1:2:x: want HOST:PORT"},
      {"--devices=cpu --metrics-listen=0.0.0.0:0",
       "--metrics-listen=0.0.0.0:0 is reachable from other machines and nothing is encrypted: bind "
       "to 127.0.0.1, give it a certificate"},
      {"--devices=cpu:2 --metrics-listen=[::]:0", "add --insecure"},
      {"--devices=cpu --tls-key=/etc/key.pem", "add --tls-certificate"},
      {"--devices=cpu --cpu-threads=-1", "--cpu-threads=-1: use 0 to 4096"},
      {"--devices=cpu --name=a/b", "worker name 'a/b'"},
      {"--devices=cpu --state-dir=", "--state-dir=: is required"},
      {"--devices=cpu --spool-bytes=5", "use at least"},
      {"stray", "unexpected argument 'stray'"},
  };
  for (const auto& [flags, message] : cases) {
    int status = -1;
    EXPECT_THAT(Shell(worker + flags, &status), HasSubstr(message)) << flags;
    EXPECT_EQ(status, 2) << flags;
  }
}

}  // namespace
}  // namespace fsdp::daemon
