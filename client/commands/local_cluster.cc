#include "client/commands/local_cluster.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr int kPreferredPort = 7070;
constexpr std::size_t kLastLines = 15;

std::string ReadFirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The well-known port when it is free, so that fsdpctl finds it without a flag; else 0 (any).
int ChoosePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPreferredPort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return is_free ? kPreferredPort : 0;
}

// The ports in the coordinator's {"grpc": PORT, ...}; empty while it is not written, or not whole.
std::map<std::string, int> PortsOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::map<std::string, int> ports;
  for (const char* name : {"grpc", "metrics", "web"}) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_number_integer()) continue;
    const auto port = json[name].get<std::int64_t>();
    if (port >= 1 && port <= 65535) ports[name] = static_cast<int>(port);
  }
  if (!ports.contains("grpc")) ports.clear();
  return ports;
}

std::string Loopback(int port) { return absl::StrCat("127.0.0.1:", port); }

absl::StatusOr<int> TakeLock(const std::filesystem::path& state_dir) {
  const std::filesystem::path path = state_dir / "lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path.string(), ")"));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat("another `fsdpctl local` (pid ", ReadFirstLine(path), ") runs in ",
                     state_dir.string(), "; stop it, or give this one its own --state-dir"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || write(fd, pid.data(), pid.size()) < 0) {
    const int error = errno;
    close(fd);
    return ErrnoToStatus(error, absl::StrCat("write(", path.string(), ")"));
  }
  return fd;
}

absl::Status PrepareFolders(const LocalClusterOptions& options) {
  std::error_code error;
  const auto& dir = options.state_dir;
  for (const char* name : {"port.json", "server"}) std::filesystem::remove(dir / name, error);
  if (options.clean) {
    for (const char* name : {"coordinator", "worker", "logs"}) {
      std::filesystem::remove_all(dir / name, error);
    }
  }
  for (const char* name : {"coordinator", "worker", "logs"}) {
    std::filesystem::create_directories(dir / name, error);
    if (error)
      return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", (dir / name).string(), ")"));
  }
  for (const char* name : {"coordinator", "worker"}) {
    const auto log = dir / "logs" / absl::StrCat(name, ".log");
    if (!std::filesystem::exists(log, error)) continue;
    std::filesystem::rename(log, absl::StrCat(log.string(), ".previous"), error);
  }
  return absl::OkStatus();
}

absl::Status CheckExecutables(const std::filesystem::path& dir) {
  for (const char* name : {"fsdp-coordinator", "fsdp-worker"}) {
    if (access((dir / name).c_str(), X_OK) == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat((dir / name).string(), " is missing: `local` runs what lies beside fsdpctl"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Create(LocalClusterOptions options) {
  RETURN_IF_ERROR(CheckExecutables(options.executable_dir));
  std::error_code error;
  std::filesystem::create_directories(options.state_dir, error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", options.state_dir.string(), ")"));
  }
  // The children run with this path whatever their working directory is.
  options.state_dir = std::filesystem::canonical(options.state_dir, error);
  ASSIGN_OR_RETURN(const int lock_fd, TakeLock(options.state_dir));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(options), lock_fd));
  RETURN_IF_ERROR(PrepareFolders(cluster->options_));
  return cluster;
}

LocalCluster::LocalCluster(LocalClusterOptions options, int lock_fd)
    : options_(std::move(options)), lock_fd_(lock_fd) {
  BecomeReaper();
  coordinator_.name = "coordinator";
  workers_.name = "worker";
}

LocalCluster::~LocalCluster() {
  Stop();
  close(lock_fd_);
}

std::filesystem::path LocalCluster::LogPath(const Process& process) const {
  return options_.state_dir / "logs" / absl::StrCat(process.name, ".log");
}

std::string LocalCluster::LastLines(const Process& process) const {
  std::ifstream file(LogPath(process));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kLastLines) lines.pop_front();
  }
  std::string text = absl::StrCat("\n  last lines of ", LogPath(process).string(), ":");
  for (const auto& line : lines) absl::StrAppend(&text, "\n  | ", line);
  return text;
}

bool LocalCluster::Pause() const { return options_.interrupt->WaitFor(absl::Milliseconds(20)); }

absl::Status LocalCluster::StartProcess(Process& process) {
  ASSIGN_OR_RETURN(Child child, Child::Start({.command = process.command,
                                              .log_path = LogPath(process).string(),
                                              .extra_environment = {},
                                              .own_group = true}));
  process.child = child;
  process.starts.push_back(absl::Now());
  return absl::OkStatus();
}

absl::Status LocalCluster::CheckProcess(Process& process) {
  if (!process.child.has_value()) return absl::OkStatus();
  const auto wait_status = process.child->Poll();
  if (!wait_status.has_value()) return absl::OkStatus();
  const absl::Time minute_ago = absl::Now() - absl::Minutes(1);
  std::erase_if(process.starts, [minute_ago](absl::Time start) { return start < minute_ago; });
  if (static_cast<int>(process.starts.size()) > options_.max_restarts_per_minute) {
    return absl::AbortedError(absl::StrCat("the ", process.name, " keeps dying (",
                                           DescribeWaitStatus(*wait_status), ")",
                                           LastLines(process)));
  }
  return StartProcess(process);
}

absl::StatusOr<LocalCluster::Ports> LocalCluster::WaitForPorts(absl::Time deadline) {
  for (;;) {
    Ports ports = PortsOf(options_.state_dir / "port.json");
    if (!ports.empty()) return ports;
    if (const auto ended = coordinator_.child->Poll()) {
      return absl::AbortedError(
          absl::StrCat("the coordinator ", DescribeWaitStatus(*ended), LastLines(coordinator_)));
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the coordinator does not listen yet", LastLines(coordinator_)));
    }
    if (Pause()) return absl::CancelledError("interrupted");
  }
}

absl::StatusOr<LocalAddresses> LocalCluster::WaitForWorkers(const std::string& server,
                                                            absl::Time deadline) {
  ClientOptions client_options;
  client_options.server = server;
  client_options.call_timeout = absl::Seconds(2);
  client_options.interrupt = options_.interrupt;
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(client_options));
  for (;;) {
    RETURN_IF_ERROR(Supervise());
    const auto workers = client->ListWorkers();
    const auto cluster = client->GetCluster();
    if (workers.ok() && cluster.ok()) {
      LocalAddresses addresses;
      addresses.server = server;
      addresses.coordinator_metrics = cluster->metrics_address();
      std::set<std::string> metrics;
      int num_usable = 0;
      for (const auto& worker : *workers) {
        const bool usable =
            worker.state() == v1::WORKER_STATE_READY || worker.state() == v1::WORKER_STATE_BUSY;
        num_usable += usable ? 1 : 0;
        if (usable && !worker.metrics_address().empty()) metrics.insert(worker.metrics_address());
      }
      addresses.worker_metrics.assign(metrics.begin(), metrics.end());
      addresses.workers = chosen_;
      if (num_usable >= chosen_.num_workers) return addresses;
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the workers are not all connected",
                       workers.ok() ? "" : absl::StrCat(" (", workers.status().message(), ")"),
                       LastLines(workers_)));
    }
    if (Pause()) return absl::CancelledError("interrupted");
  }
}

// The worker knows how to ask the driver; a program of its own may also hang in a sick one.
absl::StatusOr<LocalDevices> LocalCluster::FindDevices(absl::Time deadline) {
  Process list;
  list.name = "devices";
  std::error_code ignored;
  std::filesystem::remove(LogPath(list), ignored);
  list.command = {(options_.executable_dir / "fsdp-worker").string(), "--list-devices"};
  RETURN_IF_ERROR(StartProcess(list));
  while (!list.child->Poll().has_value()) {
    if (absl::Now() < deadline && !Pause()) continue;
    list.child->Stop(options_.stop_grace);
    if (absl::Now() < deadline) return absl::CancelledError("interrupted");
    return absl::DeadlineExceededError(
        "the driver does not tell which GPUs there are; --devices=cpu does without");
  }
  std::ifstream file(LogPath(list));
  LocalDevices devices = ParseDeviceList({std::istreambuf_iterator<char>(file), {}});
  devices.has_cuda_trainer =
      access((options_.executable_dir / "fsdp-trainer-cuda").c_str(), X_OK) == 0;
  return devices;
}

absl::StatusOr<LocalAddresses> LocalCluster::Start() {
  const absl::Time deadline = absl::Now() + options_.ready_timeout;
  LocalDevices devices;
  if (options_.workers.devices != "cpu") {
    ASSIGN_OR_RETURN(devices, FindDevices(deadline));
  }
  ASSIGN_OR_RETURN(chosen_, ChooseLocalWorkers(options_.workers, devices));
  const auto coordinator_command = [this](int grpc, int metrics, int web) {
    return std::vector<std::string>{
        (options_.executable_dir / "fsdp-coordinator").string(),
        absl::StrCat("--listen=", Loopback(grpc)),
        absl::StrCat("--state-dir=", (options_.state_dir / "coordinator").string()),
        absl::StrCat("--metrics-listen=", Loopback(metrics)),
        absl::StrCat("--web-listen=", Loopback(web)),
        absl::StrCat("--port-file=", (options_.state_dir / "port.json").string())};
  };
  coordinator_.command = coordinator_command(ChoosePort(), 0, 0);
  RETURN_IF_ERROR(StartProcess(coordinator_));
  ASSIGN_OR_RETURN(Ports ports, WaitForPorts(deadline));
  const std::string server = Loopback(ports["grpc"]);
  // Should it have to be started again, the workers and everybody else know these addresses.
  coordinator_.command = coordinator_command(ports["grpc"], ports["metrics"], ports["web"]);
  workers_.command = {(options_.executable_dir / "fsdp-worker").string(),
                      absl::StrCat("--coordinator=", server),
                      absl::StrCat("--state-dir=", (options_.state_dir / "worker").string()),
                      "--metrics-listen=127.0.0.1:0"};
  workers_.command.insert(workers_.command.end(), chosen_.flags.begin(), chosen_.flags.end());
  RETURN_IF_ERROR(StartProcess(workers_));
  ASSIGN_OR_RETURN(LocalAddresses addresses, WaitForWorkers(server, deadline));
  if (ports["web"] > 0) addresses.status_page = Loopback(ports["web"]);
  std::ofstream(options_.state_dir / "server") << server << "\n";
  return addresses;
}

absl::Status LocalCluster::Supervise() {
  RETURN_IF_ERROR(CheckProcess(coordinator_));
  RETURN_IF_ERROR(CheckProcess(workers_));
  // A killed daemon's trainer comes to us.
  ReapInherited();
  return absl::OkStatus();
}

void LocalCluster::Stop() {
  for (Process* process : {&workers_, &coordinator_}) {
    if (process->child.has_value()) process->child->Stop(options_.stop_grace);
    process->child.reset();
  }
  KillDescendants();
  std::error_code ignored;
  for (const char* name : {"port.json", "server"}) {
    std::filesystem::remove(options_.state_dir / name, ignored);
  }
}

}  // namespace fsdp
