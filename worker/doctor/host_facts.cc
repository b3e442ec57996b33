#include "worker/doctor/host_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/status.h"

namespace fsdp::doctor {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::int64_t Limit(rlim_t value) {
  return value == RLIM_INFINITY ? -1 : static_cast<std::int64_t>(value);
}

// statfs's magic numbers of those that matter to us.
std::string FileSystemName(std::int64_t magic) {
  static const auto& names = *new std::map<std::int64_t, std::string>{
      {0x01021994, "tmpfs"}, {0x858458f6, "ramfs"}, {0xef53, "ext4"},        {0x58465342, "xfs"},
      {0x9123683e, "btrfs"}, {0x6969, "nfs"},       {0x794c7630, "overlay"}, {0x0bd00bd0, "lustre"},
      {0x47504653, "gpfs"},  {0x00c36400, "ceph"},  {0x65735546, "fuse"},    {0xfe534d42, "smb2"},
      {0x01021997, "9p"},    {0x2fc12fc1, "zfs"},   {0xff534d42, "cifs"}};
  const auto name = names.find(magic & 0xffffffff);
  return name == names.end() ? absl::StrCat("0x", absl::Hex(magic & 0xffffffff)) : name->second;
}

// Empty: a file can be made there.
std::string TryToWrite(const fs::path& folder) {
  std::string pattern = (folder / ".fsdpctl-doctor-XXXXXX").string();
  const int fd = ::mkstemp(pattern.data());
  if (fd < 0) return absl::StrCat("cannot be written to: ", std::strerror(errno));
  const bool wrote = ::write(fd, "x", 1) == 1;
  const int error = errno;
  ::close(fd);
  ::unlink(pattern.c_str());
  return wrote ? "" : absl::StrCat("cannot be written to: ", std::strerror(error));
}

double ProcessorsAllowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  double allowed = ::sched_getaffinity(0, sizeof set, &set) == 0
                       ? CPU_COUNT(&set)
                       : static_cast<double>(std::thread::hardware_concurrency());
  const std::optional<double> quota = ParseCpuQuota(ReadText("/sys/fs/cgroup/cpu.max"));
  return quota ? std::min(allowed, *quota) : allowed;
}

int NumaNodes() {
  std::error_code error;
  int nodes = 0;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    nodes += absl::StartsWith(name, "node") && name.size() > 4 &&
                     std::all_of(name.begin() + 4, name.end(), ::isdigit)
                 ? 1
                 : 0;
  }
  return nodes;
}

std::optional<bool> ClockSynchronised() {
  timex state{};
  const int result = ::adjtimex(&state);
  if (result < 0) return std::nullopt;
  return result != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

std::int64_t MeminfoBytes(const std::string& name) {
  for (const auto line : absl::StrSplit(ReadText("/proc/meminfo"), '\n')) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, absl::StrCat(name, ":"))) continue;
    absl::ConsumeSuffix(&rest, "kB");
    std::int64_t kib = 0;
    if (absl::SimpleAtoi(rest, &kib)) return kib << 10;
  }
  return 0;
}

void ReadLimits(HostFacts* facts) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts->open_files = Limit(limit.rlim_cur);
    facts->open_files_max = Limit(limit.rlim_max);
  }
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts->locked_memory_bytes = Limit(limit.rlim_cur);
  }
}

// What the program prints when it cannot run; empty: it can.
std::string TryToRun(const std::string& program) {
  if (::access(program.c_str(), X_OK) != 0) {
    return absl::StrCat(program, ": ", std::strerror(errno));
  }
  std::string quoted = "'";
  for (const char c : program) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  std::FILE* const pipe = ::popen((quoted + "' --version 2>&1 </dev/null").c_str(), "re");
  if (pipe == nullptr) return absl::StrCat("popen(", program, "): ", std::strerror(errno));
  std::string text;
  char buffer[512];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe))
    text.append(buffer, got);
  const int status = ::pclose(pipe);
  if (status == 0) return "";
  text = text.substr(0, 400);
  return text.empty() ? absl::StrCat(program, " --version ended with status ", status)
                      : std::string(absl::StripTrailingAsciiWhitespace(text));
}

}  // namespace

DiskFacts ReadDisk(const std::string& path) {
  DiskFacts facts{.path = path};
  std::error_code error;
  fs::path folder = fs::absolute(path, error);
  const bool exists = fs::exists(folder, error);
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  struct statvfs counts{};
  struct statfs kind{};
  if (::statvfs(folder.c_str(), &counts) != 0 || ::statfs(folder.c_str(), &kind) != 0) {
    facts.error = std::strerror(errno);
    return facts;
  }
  facts.file_system = FileSystemName(static_cast<std::int64_t>(kind.f_type));
  const auto unit = static_cast<std::int64_t>(counts.f_frsize);
  facts.total_bytes = static_cast<std::int64_t>(counts.f_blocks) * unit;
  facts.free_bytes = static_cast<std::int64_t>(counts.f_bavail) * unit;
  facts.total_files = static_cast<std::int64_t>(counts.f_files);
  facts.free_files = static_cast<std::int64_t>(counts.f_favail);
  if (!exists) {
    facts.error = absl::StrCat("does not exist (measured at ", folder.string(), ")");
  } else if (!fs::is_directory(folder, error)) {
    facts.error = "is no folder";
  } else {
    facts.error = TryToWrite(folder);
  }
  return facts;
}

std::optional<double> ParseCpuQuota(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"));
  double quota = 0;
  double period = 0;
  if (words.size() < 2 || !absl::SimpleAtod(words[0], &quota) ||
      !absl::SimpleAtod(words[1], &period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

std::string ParseDriverModule(const std::string& text) {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build …"
  const std::string line = text.substr(0, text.find('\n'));
  for (const auto word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    if (word.find('.') == absl::string_view::npos) continue;
    if (word.find_first_not_of("0123456789.") == absl::string_view::npos) return std::string(word);
  }
  return "";
}

void ReadGpus(const daemon::Nvml* nvml, HostFacts* facts) {
  facts->nvml_opened = nvml != nullptr;
  for (int i = 0; nvml != nullptr && i < nvml->device_count(); ++i) {
    GpuFacts& gpu = facts->gpus.emplace_back();
    gpu.device.set_type(v1::DEVICE_TYPE_CUDA);
    gpu.device.set_index(i);
    const auto device = nvml->Describe(i);
    if (!device.ok()) {
      gpu.error = std::string(device.status().message());
      continue;
    }
    gpu.device = *device;
    if (auto processes = nvml->Processes(i); processes.ok()) gpu.processes = *std::move(processes);
    if (auto reading = nvml->ReadHealth(i); reading.ok()) gpu.reading = *std::move(reading);
  }
}

HostFacts ReadHostFacts(const HostRequest& request) {
  HostFacts facts;
  facts.host = daemon::HostName();
  ReadLimits(&facts);
  facts.memory_bytes = MeminfoBytes("MemTotal");
  facts.memory_available_bytes = MeminfoBytes("MemAvailable");
  facts.processors_online = ::get_nprocs();
  facts.processors_allowed = ProcessorsAllowed();
  facts.numa_nodes = NumaNodes();
  facts.clock_synchronised = ClockSynchronised();
  std::error_code error;
  facts.has_rdma =
      fs::exists("/sys/class/infiniband", error) && !fs::is_empty("/sys/class/infiniband", error);
  facts.shared_memory = ReadDisk("/dev/shm");
  for (const std::string& path : request.paths) facts.disks.push_back(ReadDisk(path));
  auto interfaces = daemon::ListInterfaces();
  if (interfaces.ok()) facts.interfaces = *interfaces;
  facts.network = [&]() -> absl::StatusOr<daemon::JobNetwork> {
    RETURN_IF_ERROR(interfaces.status());
    ASSIGN_OR_RETURN(const daemon::NetworkRequest resolved,
                     daemon::ResolveBindAddress(request.network, *interfaces));
    return daemon::ChooseJobNetwork(resolved, *interfaces);
  }();
  facts.driver_module = ParseDriverModule(ReadText("/proc/driver/nvidia/version"));
  ReadGpus(daemon::Nvml::Open().get(), &facts);
  if (facts.gpus.empty()) return facts;
  facts.libraries = ReadLibraries();
  for (const LibraryFacts& library : facts.libraries) {
    if (library.name == "CUDA driver") facts.driver_cuda = library.version;
  }
  if (!request.cuda_trainer.empty()) facts.cuda_trainer_error = TryToRun(request.cuda_trainer);
  return facts;
}

}  // namespace fsdp::doctor
