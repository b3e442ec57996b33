// fsdp-worker: the worker daemon, one per device.

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/access_token.h"
#include "proto/support/address_list.h"
#include "proto/support/listen_address.h"
#include "proto/support/log.h"
#include "proto/support/program_flags.h"
#include "proto/support/spec_paths.h"
#include "proto/support/status.h"
#include "proto/support/tls/tls_files.h"
#include "proto/support/tls/tls_reloader.h"
#include "worker/daemon/build_version.h"
#include "worker/daemon/daemon.h"
#include "worker/daemon/files.h"
#include "worker/daemon/host.h"
#include "worker/daemon/identity_folder.h"
#include "worker/daemon/job_network.h"
#include "worker/daemon/worker_families.h"
#include "worker/daemon/worker_tls.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:7070",
          "HOST:PORT of the coordinator; of several that stand in for each other all, with commas "
          "between");
ABSL_FLAG(std::string, tls_certificate, "", "PEM file of this worker's certificate");
ABSL_FLAG(std::string, tls_key, "", "PEM file of its private key");
ABSL_FLAG(std::string, tls_ca, "",
          "PEM file of the authorities that the coordinator is checked by, or the word system; "
          "without it nothing is encrypted");
ABSL_FLAG(std::string, tls_server_name, "",
          "Name in the coordinator's certificate, when it is not the host of --coordinator");
ABSL_FLAG(std::string, identity, "",
          "Folder that `fsdp-worker enroll` wrote: certificate, key and authority, instead of the "
          "three --tls files; the certificate is renewed before it ends");
ABSL_FLAG(std::string, join_token_file, "", "File of a one-time join token (enroll)");
ABSL_FLAG(std::string, metrics_tls_certificate, "",
          "PEM file of the Prometheus endpoint's certificate");
ABSL_FLAG(std::string, metrics_tls_key, "", "PEM file of its private key");
ABSL_FLAG(std::string, metrics_tls_client_ca, "",
          "PEM file of the authorities whose scrapers are answered; empty: all are");
ABSL_FLAG(absl::Duration, tls_reload_period, fsdp::kTlsReloadPeriod,
          "How often replaced certificate files are looked for");
ABSL_FLAG(std::string, state_dir, "", "Directory for the spool and caches (required)");
ABSL_FLAG(std::string, name, "",
          "The worker's id; with several workers a prefix: \"a\" gives \"a-cuda-0\", \"a-cuda-1\". "
          "Default: host and device, \"node1-cuda-0\"");
ABSL_FLAG(std::string, devices, "all",
          "all (every CUDA device), cuda:I, cpu (one slot) or cpu:N (N slots)");
ABSL_FLAG(int, workers, 0,
          "Workers on the CUDA devices that --devices names; 0: one on each. More than devices: "
          "with --share-device");
ABSL_FLAG(bool, list_devices, false,
          "Print the devices that --devices names, JSON lines, and end; all of a host without GPUs "
          "is its CPU");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:0", "HOST:PORT of the Prometheus endpoint");
ABSL_FLAG(absl::Duration, metrics_linger, absl::Seconds(60),
          "How long a finished rank's series stay, so that the last scrape sees them");
ABSL_FLAG(std::string, port_file, "", "JSON file to write once the endpoint is up");
ABSL_FLAG(std::string, trainer, "",
          "Executable that runs ranks. Default: fsdp-trainer (fsdp-trainer-cuda for CUDA devices) "
          "beside this one");
ABSL_FLAG(std::string, bind_address, "",
          "Address of this host that ranks bind and peers dial, in a network that you trust: what "
          "they exchange is never encrypted. Default: loopback");
ABSL_FLAG(std::string, interface, "",
          "Network interface that ranks use among themselves, in place of --bind-address: its IPv4 "
          "address, else its IPv6 one");
ABSL_FLAG(
    std::string, job_network, "",
    "The same for all hosts at once, 10.1.0.0/16 or fd00:1::/64: ranks use the interface that "
    "has an address in it");
ABSL_FLAG(bool, insecure, false,
          "Allow a metrics address that other machines reach, and a token sent to one, without "
          "encryption");
ABSL_FLAG(std::string, token_file, "",
          "File of a token with the role worker, for a coordinator that wants one");
ABSL_FLAG(
    std::vector<std::string>, allow_path, {},
    "Folder that paths of jobs must lie in on this host, links resolved; may be given several "
    "times. Without it anywhere");
ABSL_FLAG(bool, share_device, false,
          "Take a device whose memory others use, and let ranks of one job share it (correctness "
          "tests only)");
ABSL_FLAG(int, cpu_threads, 0, "Threads of a rank; 0: the machine's divided by its ranks");
ABSL_FLAG(
    int64_t, spool_bytes, int64_t{256} << 20,
    "Reports kept while the coordinator is away; beyond, old steps and log lines are dropped");
// Of the processes that a supervising fsdp-worker starts.
ABSL_FLAG(int, parent_fd, -1, "Internal: socket to the supervising process");
ABSL_FLAG(int, device_index, 0, "Internal: which CPU slot");
ABSL_FLAG(int, num_slots, 1, "Internal: of how many");

namespace fsdp::daemon {
namespace {

constexpr absl::Duration kSnapshotPeriod = absl::Milliseconds(250);

struct Flags {
  std::string coordinator;
  std::string state_dir;
  std::string name;
  std::string devices;
  std::string metrics_listen;
  absl::Duration metrics_linger;
  std::string port_file;
  std::string trainer;
  NetworkRequest network;
  bool insecure = false;
  bool share_device = false;
  int workers = 0;
  int cpu_threads = 0;
  std::int64_t spool_bytes = 0;
  std::string token_file;
  std::vector<std::string> allowed_paths;
  int parent_fd = -1;
  int device_index = 0;
  int num_slots = 1;
  WorkerTls::Options tls;
};

absl::Status Bad(const std::string& flag, const std::string& value, const std::string& remedy) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", remedy));
}

absl::StatusOr<WorkerTls::Options> TlsFromFlags() {
  TlsFiles files{.certificate = absl::GetFlag(FLAGS_tls_certificate),
                 .key = absl::GetFlag(FLAGS_tls_key),
                 .ca = absl::GetFlag(FLAGS_tls_ca)};
  const std::string identity = absl::GetFlag(FLAGS_identity);
  if (!identity.empty()) {
    if (!files.empty()) {
      return Bad("identity", identity, "leave out --tls-certificate, --tls-key and --tls-ca");
    }
    files = IdentityFiles(identity);
  }
  return WorkerTls::Options{.coordinator = std::move(files),
                            .metrics = {.certificate = absl::GetFlag(FLAGS_metrics_tls_certificate),
                                        .key = absl::GetFlag(FLAGS_metrics_tls_key),
                                        .ca = absl::GetFlag(FLAGS_metrics_tls_client_ca)},
                            .coordinator_address = absl::GetFlag(FLAGS_coordinator),
                            .server_name = absl::GetFlag(FLAGS_tls_server_name),
                            .identity = identity,
                            .reload_period = absl::GetFlag(FLAGS_tls_reload_period)};
}

absl::StatusOr<Flags> ReadFlags(bool enroll) {
  Flags flags{absl::GetFlag(FLAGS_coordinator),
              absl::GetFlag(FLAGS_state_dir),
              absl::GetFlag(FLAGS_name),
              absl::GetFlag(FLAGS_devices),
              absl::GetFlag(FLAGS_metrics_listen),
              absl::GetFlag(FLAGS_metrics_linger),
              absl::GetFlag(FLAGS_port_file),
              absl::GetFlag(FLAGS_trainer),
              NetworkRequest{absl::GetFlag(FLAGS_bind_address), absl::GetFlag(FLAGS_interface),
                             absl::GetFlag(FLAGS_job_network)},
              absl::GetFlag(FLAGS_insecure),
              absl::GetFlag(FLAGS_share_device),
              absl::GetFlag(FLAGS_workers),
              absl::GetFlag(FLAGS_cpu_threads),
              absl::GetFlag(FLAGS_spool_bytes),
              absl::GetFlag(FLAGS_token_file),
              absl::GetFlag(FLAGS_allow_path),
              absl::GetFlag(FLAGS_parent_fd),
              absl::GetFlag(FLAGS_device_index),
              absl::GetFlag(FLAGS_num_slots)};
  ASSIGN_OR_RETURN(flags.tls, TlsFromFlags());
  if (flags.state_dir.empty() && !enroll)
    return Bad("state-dir", "", "is required: a directory of this worker");
  for (const std::string& address : SplitAddresses(flags.coordinator)) {
    if (!IsHostPort(address)) return Bad("coordinator", address, HostPortRemedy(address));
  }
  RETURN_IF_ERROR(CheckListenAddress("metrics-listen", flags.metrics_listen,
                                     flags.insecure || !flags.tls.metrics.empty()));
  if (!flags.token_file.empty()) {
    RETURN_IF_ERROR(ReadTokenFile(flags.token_file).status());
    const bool in_the_clear = flags.tls.coordinator.empty() && !AllLoopback(flags.coordinator);
    if (in_the_clear && !flags.insecure) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the token of ", flags.token_file, " would travel in the clear to ", flags.coordinator,
          ": use TLS (--tls-ca), or add --insecure to accept that"));
    }
  }
  RETURN_IF_ERROR(PathRoots::Create(flags.allowed_paths).status());
  if (flags.cpu_threads < 0 || flags.cpu_threads > 4096) {
    return Bad("cpu-threads", absl::StrCat(flags.cpu_threads), "use 0 to 4096");
  }
  if (flags.spool_bytes < (1 << 20)) {
    return Bad("spool-bytes", absl::StrCat(flags.spool_bytes), "use at least 1048576");
  }
  if (flags.metrics_linger < absl::ZeroDuration()) {
    return Bad("metrics-linger", absl::FormatDuration(flags.metrics_linger), "use 0s or more");
  }
  return flags;
}

std::string OwnPath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string TrainerPath(const Flags& flags, const v1::DeviceInfo& device) {
  if (!flags.trainer.empty()) return flags.trainer;
  const char* const name =
      device.type() == v1::DEVICE_TYPE_CUDA ? "fsdp-trainer-cuda" : "fsdp-trainer";
  return (std::filesystem::path(OwnPath()).parent_path() / name).string();
}

absl::Status WritePortFile(const Flags& flags, const MetricsServer& server,
                           const std::vector<std::string>& workers) {
  if (flags.port_file.empty()) return absl::OkStatus();
  std::string names;
  // Names are [a-zA-Z0-9._-]: nothing to escape.
  for (const std::string& worker : workers) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", "\"", worker, "\"");
  }
  return WriteFileAtomically(
      flags.port_file,
      absl::StrFormat(
          "{\"metrics\": %d, \"metrics_address\": \"%s\", \"pid\": %d, \"workers\": [%s]}\n",
          server.port(), server.address(), ::getpid(), names));
}

// Blocks the signals in this and all later threads.
sigset_t BlockSignals(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

// Hands SIGTERM and SIGINT to the daemon until it is destroyed.
class StopSignals {
 public:
  StopSignals(const sigset_t& set, Daemon& daemon)
      : fd_(::signalfd(-1, &set, SFD_CLOEXEC)), thread_([this, &daemon] {
          signalfd_siginfo info{};
          while (::read(fd_, &info, sizeof info) == sizeof info && info.ssi_signo != SIGUSR1) {
            daemon.RequestStop(::strsignal(static_cast<int>(info.ssi_signo)));
          }
        }) {}
  ~StopSignals() {
    // SIGUSR1 is in the set for this alone.
    ::pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
    ::close(fd_);
  }

 private:
  const int fd_;
  std::thread thread_;
};

// What scrapes show: nothing before the source is set and after it is cleared, whatever threads the
// server still has.
class ScrapeSource {
 public:
  void Set(MetricsServer::Source source) {
    const std::lock_guard<std::mutex> lock(mutex_);
    source_ = std::move(source);
  }
  std::vector<DeviceSnapshot> Get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return source_ ? source_() : std::vector<DeviceSnapshot>();
  }

 private:
  std::mutex mutex_;
  MetricsServer::Source source_;
};

// The endpoint of this process. Never destroyed: the library takes 2 s to end its threads, and the
// process ends right after (quick_exit in main).
class Endpoint {
 public:
  static absl::StatusOr<std::unique_ptr<Endpoint>> Start(const std::string& address,
                                                         const WorkerTls& tls) {
    auto* const source = new ScrapeSource;
    ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server,
                     MetricsServer::Start(address, [source] { return source->Get(); },
                                          {.endpoint = tls.endpoint(), .shown = tls.shown()}));
    return std::unique_ptr<Endpoint>(new Endpoint(source, server.release()));
  }
  // What the source reads may go away afterwards.
  ~Endpoint() { source_.Set(nullptr); }
  void SetSource(MetricsServer::Source source) { source_.Set(std::move(source)); }
  [[nodiscard]] const MetricsServer& server() const { return server_; }

 private:
  Endpoint(ScrapeSource* source, MetricsServer* server) : source_(*source), server_(*server) {}
  ScrapeSource& source_;
  const MetricsServer& server_;
};

absl::StatusOr<JobNetwork> FindJobNetwork(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> interfaces, ListInterfaces());
  ASSIGN_OR_RETURN(const NetworkRequest request, ResolveBindAddress(flags.network, interfaces));
  return ChooseJobNetwork(request, interfaces);
}

absl::Status RunDevice(const Flags& flags, v1::DeviceInfo device, std::unique_ptr<Nvml> nvml,
                       const std::string& name) {
  const sigset_t signals = BlockSignals({SIGTERM, SIGINT, SIGUSR1});
  RETURN_IF_ERROR(ValidateWorkerName(name));
  Daemon::Options options;
  ASSIGN_OR_RETURN(options.network, FindJobNetwork(flags));
  const JobNetwork network = options.network;
  const std::string home = absl::StrCat(flags.state_dir, "/", name);
  RETURN_IF_ERROR(MakeDirectories(home));
  RETURN_IF_ERROR(LockFile(home + "/lock"));

  // The endpoint's address goes into the hello, so it is up before the daemon; until then it is
  // empty.
  options.metrics_address = flags.metrics_listen;
  std::unique_ptr<WorkerTls> tls;
  std::unique_ptr<Endpoint> endpoint;
  if (flags.parent_fd < 0) {
    ASSIGN_OR_RETURN(tls, WorkerTls::Create(flags.tls, Clock::Real()));
    ASSIGN_OR_RETURN(endpoint, Endpoint::Start(flags.metrics_listen, *tls));
    options.metrics_address = endpoint->server().address();
  }
  options.name = name;
  options.state_dir = flags.state_dir;
  options.device = std::move(device);
  options.trainer = TrainerPath(flags, options.device);
  options.share_device = flags.share_device;
  options.agent.coordinator = flags.coordinator;
  options.agent.token_file = flags.token_file;
  options.allowed_paths = flags.allowed_paths;
  options.agent.tls = flags.tls.coordinator;
  options.agent.tls_server_name = flags.tls.server_name;
  options.supervisor.cpu_threads = flags.cpu_threads;
  options.spool.max_bytes = flags.spool_bytes;
  options.metrics.linger = flags.metrics_linger;
  ASSIGN_OR_RETURN(const std::unique_ptr<Daemon> daemon,
                   Daemon::Create(std::move(options), std::move(nvml)));
  std::unique_ptr<SnapshotSender> sender;
  if (flags.parent_fd >= 0) {
    sender = std::make_unique<SnapshotSender>(flags.parent_fd, kSnapshotPeriod,
                                              [&] { return daemon->Snapshot(); });
  }
  if (endpoint != nullptr) {
    RETURN_IF_ERROR(WritePortFile(flags, endpoint->server(), {name}));
    endpoint->SetSource([&] { return std::vector<DeviceSnapshot>{daemon->Snapshot()}; });
  }
  LOG_INFO("worker %s (incarnation %s), coordinator %s, ranks at %s of %s", name,
           daemon->incarnation(), flags.coordinator, network.address, network.interface);
  const StopSignals stop(signals, *daemon);
  const absl::Status status = daemon->Run();
  // Before the daemon goes.
  endpoint.reset();
  return status;
}

ChildSpec MakeChild(const Flags& flags, const v1::DeviceInfo& device, const std::string& name,
                    int num_devices, const std::string& metrics_address) {
  const bool cuda = device.type() == v1::DEVICE_TYPE_CUDA;
  return {
      name,
      {absl::StrCat("--coordinator=", flags.coordinator),
       absl::StrCat("--state_dir=", flags.state_dir), absl::StrCat("--name=", name),
       cuda ? absl::StrCat("--devices=cuda:", device.index()) : "--devices=cpu",
       absl::StrCat("--device_index=", device.index()), absl::StrCat("--num_slots=", num_devices),
       absl::StrCat("--metrics_listen=", metrics_address),
       absl::StrCat("--metrics_linger=", absl::FormatDuration(flags.metrics_linger)),
       absl::StrCat("--trainer=", flags.trainer),
       absl::StrCat("--bind_address=", flags.network.bind_address),
       absl::StrCat("--interface=", flags.network.interface),
       absl::StrCat("--job_network=", flags.network.job_network),
       // The endpoint that a child names is its parent's, which has been checked.
       "--insecure=true", absl::StrCat("--tls_ca=", flags.tls.coordinator.ca),
       absl::StrCat("--tls_certificate=", flags.tls.coordinator.certificate),
       absl::StrCat("--tls_key=", flags.tls.coordinator.key),
       absl::StrCat("--tls_server_name=", flags.tls.server_name),
       absl::StrCat("--share_device=", flags.share_device ? "true" : "false"),
       absl::StrCat("--cpu_threads=", flags.cpu_threads),
       absl::StrCat("--spool_bytes=", flags.spool_bytes),
       absl::StrCat("--token_file=", flags.token_file),
       absl::StrCat("--allow_path=", absl::StrJoin(flags.allowed_paths, ","))}};
}

std::string WorkerName(const Flags& flags, const v1::DeviceInfo& device) {
  const std::string prefix = flags.name.empty() ? HostName() : flags.name;
  return absl::StrCat(prefix, "-", DeviceLabel(device));
}

// A name that was given is the only worker's as it is, and a prefix where there are several.
// Workers that share a device are told apart by a number: "node1-cuda-0", "node1-cuda-0-1".
std::vector<std::string> WorkerNames(const Flags& flags,
                                     const std::vector<v1::DeviceInfo>& devices) {
  if (devices.size() == 1 && !flags.name.empty()) return {flags.name};
  std::map<std::string, int> taken;
  std::vector<std::string> names;
  for (const v1::DeviceInfo& device : devices) {
    const std::string name = WorkerName(flags, device);
    const int number = taken[name]++;
    names.push_back(number == 0 ? name : absl::StrCat(name, "-", number));
  }
  return names;
}

absl::Status RunHost(const Flags& flags, const std::vector<v1::DeviceInfo>& devices) {
  const sigset_t signals = BlockSignals({SIGTERM, SIGINT, SIGCHLD});
  const int signal_fd = ::signalfd(-1, &signals, SFD_CLOEXEC);
  if (signal_fd < 0) return ErrnoToStatus(errno, "signalfd");
  // Said once, before every child would say it.
  RETURN_IF_ERROR(FindJobNetwork(flags).status());
  // Children tell their workers' metrics address, which is the parent's, so it comes first.
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerTls> tls,
                   WorkerTls::Create(flags.tls, Clock::Real()));
  ASSIGN_OR_RETURN(std::unique_ptr<Endpoint> endpoint, Endpoint::Start(flags.metrics_listen, *tls));
  Host::Options options{.executable = OwnPath()};
  const std::vector<std::string> names = WorkerNames(flags, devices);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    RETURN_IF_ERROR(ValidateWorkerName(names[i]));
    options.children.push_back(MakeChild(flags, devices[i], names[i],
                                         static_cast<int>(devices.size()),
                                         endpoint->server().address()));
  }
  Host host(std::move(options));
  RETURN_IF_ERROR(WritePortFile(flags, endpoint->server(), names));
  endpoint->SetSource([&] { return host.Snapshots(); });
  const absl::Status status = host.Run(signal_fd);
  // Before the host goes.
  endpoint.reset();
  return status;
}

absl::Status ListDevices(const DeviceRequest& request) {
  const std::unique_ptr<Nvml> nvml =
      request.kind == DeviceRequest::Kind::kCpu ? nullptr : Nvml::Open();
  absl::StatusOr<std::vector<v1::DeviceInfo>> devices = FindDevices(request, nvml.get());
  // Every device of a host without GPUs is its CPU.
  if (request.kind == DeviceRequest::Kind::kAll && absl::IsNotFound(devices.status())) {
    std::fprintf(stderr, "fsdp-worker: %s\n", std::string(devices.status().message()).c_str());
    devices = std::vector<v1::DeviceInfo>{CpuSlot(0, 1)};
  }
  if (!devices.ok()) return devices.status();
  std::fputs(DeviceLines(*devices).c_str(), stdout);
  return absl::OkStatus();
}

// `fsdp-worker enroll`: for the workers that the same flags would start.
absl::Status EnrollHost(const Flags& flags, const std::vector<v1::DeviceInfo>& devices) {
  EnrollOptions options{.coordinator = flags.coordinator,
                        .tls_server_name = flags.tls.server_name,
                        .workers = WorkerNames(flags, devices),
                        .join_token_file = absl::GetFlag(FLAGS_join_token_file),
                        .folder = flags.tls.identity};
  if (options.folder.empty()) return Bad("identity", "", "is required: the folder to make");
  if (options.join_token_file.empty()) {
    return Bad("join-token-file", "", "is required: the token of fsdpctl ca join-token, in a file");
  }
  for (const std::string& name : options.workers) RETURN_IF_ERROR(ValidateWorkerName(name));
  RETURN_IF_ERROR(Enroll(options));
  std::printf("%s: enrolled as %s; start with --identity=%s\n", options.folder.c_str(),
              absl::StrJoin(options.workers, ", ").c_str(), options.folder.c_str());
  return absl::OkStatus();
}

absl::Status RunWorker(bool enroll) {
  if (absl::GetFlag(FLAGS_list_devices)) {
    ASSIGN_OR_RETURN(const DeviceRequest listed, ParseDevices(absl::GetFlag(FLAGS_devices)));
    return ListDevices(listed);
  }
  ASSIGN_OR_RETURN(const Flags flags, ReadFlags(enroll));
  ASSIGN_OR_RETURN(const DeviceRequest request, ParseDevices(flags.devices));
  std::unique_ptr<Nvml> nvml;
  if (request.kind != DeviceRequest::Kind::kCpu) nvml = Nvml::Open();
  ASSIGN_OR_RETURN(std::vector<v1::DeviceInfo> devices, FindDevices(request, nvml.get()));
  ASSIGN_OR_RETURN(devices, SpreadWorkers(std::move(devices), flags.workers, flags.share_device));
  if (enroll) return EnrollHost(flags, devices);
  const bool single = flags.parent_fd >= 0 || (devices.size() == 1 && flags.devices != "all" &&
                                               !flags.devices.starts_with("cpu:"));
  if (!single) return RunHost(flags, devices);
  v1::DeviceInfo device = devices.front();
  if (device.type() == v1::DEVICE_TYPE_CPU) device = CpuSlot(flags.device_index, flags.num_slots);
  const std::string name = flags.name.empty() ? WorkerName(flags, device) : flags.name;
  return RunDevice(flags, std::move(device), std::move(nvml), name);
}

int Main(bool enroll) {
  // Before any library starts a thread of its own, which would take the signals otherwise.
  BlockSignals({SIGTERM, SIGINT, SIGCHLD, SIGUSR1});
  std::signal(SIGPIPE, SIG_IGN);
  const absl::Status status = RunWorker(enroll);
  if (status.ok()) return 0;
  std::fprintf(stderr, "fsdp-worker: %s\n", std::string(status.message()).c_str());
  const bool usage = absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
                     absl::IsAlreadyExists(status) || absl::IsFailedPrecondition(status) ||
                     absl::IsUnimplemented(status);
  return usage ? kExitUsage : 1;
}

}  // namespace
}  // namespace fsdp::daemon

int main(int argc, char** argv) {
  const bool enroll = argc > 1 && std::string_view(argv[1]) == "enroll";
  // The flags of the verb are the daemon's.
  if (enroll) {
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  const absl::StatusOr<bool> parsed = fsdp::ParseProgramFlags(
      argc, argv,
      {.name = "fsdp-worker",
       .version = fsdp::daemon::kVersion,
       .usage =
           "runs the ranks of training jobs on this host's devices.\n\n"
           "  fsdp-worker --coordinator=10.0.0.1:7070 --state-dir=/var/lib/fsdp --devices=all\n"
           "  fsdp-worker --coordinator=127.0.0.1:7070 --state-dir=.fsdp --devices=cpu:4\n"
           "  fsdp-worker enroll --coordinator=10.0.0.1:7070 --join-token-file=token "
           "--identity=/etc/fsdp/identity\n\n"
           "enroll gets this host a certificate, for the workers that the other flags would start, "
           "and ends."});
  if (!parsed.ok()) {
    std::fprintf(stderr, "fsdp-worker: %s\n", std::string(parsed.status().message()).c_str());
    return fsdp::daemon::kExitUsage;
  }
  if (!*parsed) return 0;
  // gRPC's own lines would mix with ours; its errors reach us as statuses.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const int code = fsdp::daemon::Main(enroll);
  // See Endpoint.
  std::fflush(nullptr);
  std::quick_exit(code);
}
