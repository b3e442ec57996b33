#include "tests/bench/load/coordinator_process.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kStartTimeout = 60;

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, words[0].c_str(), nullptr, nullptr, arguments.data(), environ);
  if (error != 0) return ErrnoToStatus(error, absl::StrCat("posix_spawn(", words[0], ")"));
  return pid;
}

}  // namespace

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

CoordinatorProcess::CoordinatorProcess(pid_t pid, std::string directory)
    : pid_(pid), directory_(std::move(directory)) {}

absl::StatusOr<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::Start(
    const std::string& executable) {
  char pattern[] = "/tmp/fsdp-load-XXXXXX";
  if (::mkdtemp(pattern) == nullptr) return ErrnoToStatus(errno, "mkdtemp(/tmp/fsdp-load-XXXXXX)");
  const std::string directory = pattern;
  const std::string ports = directory + "/ports.json";
  ASSIGN_OR_RETURN(const pid_t pid,
                   Spawn({executable, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                          absl::StrCat("--state-dir=", directory, "/state"),
                          absl::StrCat("--port-file=", ports)}));
  std::unique_ptr<CoordinatorProcess> process(new CoordinatorProcess(pid, directory));
  for (const double start = Seconds(); Seconds() - start < kStartTimeout;) {
    if (std::ifstream file(ports); file) {
      const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
      if (json.is_object() && json.contains("grpc")) {
        process->address_ = absl::StrCat("127.0.0.1:", json["grpc"].get<int>());
        return process;
      }
    }
    if (::waitpid(pid, nullptr, WNOHANG) == pid) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::UnavailableError(absl::StrCat(executable, " did not come to serve"));
}

CoordinatorProcess::~CoordinatorProcess() {
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Usage CoordinatorProcess::Read() const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // The name, in parentheses, may hold blanks; field 3 follows it.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
  Usage usage{.seconds = Seconds()};
  if (words.size() < 22) return usage;
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  usage.cpu_seconds = (std::stod(words[11]) + std::stod(words[12])) / ticks;
  usage.resident_bytes = std::stod(words[21]) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  return usage;
}

ResourceLog::ResourceLog(const CoordinatorProcess& process) : process_(process), start_(Seconds()) {
  Sample();
}

void ResourceLog::Sample() {
  Usage usage = process_.Read();
  usage.seconds -= start_;
  samples_.push_back(usage);
}

double ResourceLog::cores() const {
  const double wall = samples_.back().seconds - samples_.front().seconds;
  return wall > 0 ? (samples_.back().cpu_seconds - samples_.front().cpu_seconds) / wall : 0;
}

double ResourceLog::max_resident_mib() const {
  return std::ranges::max_element(samples_, {}, &Usage::resident_bytes)->resident_bytes / kMib;
}

double ResourceLog::MeanMib(std::size_t begin, std::size_t end) const {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += samples_[i].resident_bytes;
  return sum / static_cast<double>(end - begin) / kMib;
}

double ResourceLog::first_resident_mib() const {
  return MeanMib(0, std::max<std::size_t>(1, samples_.size() / 4));
}

double ResourceLog::last_resident_mib() const {
  return MeanMib(samples_.size() - std::max<std::size_t>(1, samples_.size() / 4), samples_.size());
}

}  // namespace fsdp::bench
