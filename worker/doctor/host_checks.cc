#include "worker/doctor/host_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/doctor/gpu_checks.h"

namespace fsdp::doctor {
namespace {

// A rank has a socket to every peer for each communicator, a coordinator one for every worker and
// watcher: a thousand is a small cluster's.
constexpr std::int64_t kFewFiles = 1024;
constexpr std::int64_t kManyFiles = 8192;
// NCCL takes some 10 MiB a rank and peer of the host; 64 MiB is what container engines give.
constexpr std::int64_t kSmallShmBytes = 64 * kMiB;
constexpr std::int64_t kGoodShmBytes = kGiB;
constexpr std::int64_t kFullDiskBytes = kGiB;
constexpr std::int64_t kLowDiskBytes = 10 * kGiB;
constexpr std::int64_t kFewDiskFiles = 1000;
constexpr std::int64_t kLowMemoryBytes = 2 * kGiB;
constexpr std::int64_t kLockedBytes = 64 * kMiB;
constexpr double kProcessorsPerGpu = 2;

std::string Bytes(std::int64_t bytes) {
  return bytes >= kGiB ? absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGiB)
                       : absl::StrFormat("%d MiB", bytes / kMiB);
}

std::string Count(std::int64_t limit) { return limit < 0 ? "unlimited" : absl::StrCat(limit); }

Finding CheckOpenFiles(const HostFacts& facts) {
  Finding finding = HostFinding("open-files", absl::StrCat(Count(facts.open_files), ", at most ",
                                                           Count(facts.open_files_max)));
  const std::string remedy =
      "raise it for the daemons: LimitNOFILE= of their units (65536 and more), or ulimit -n";
  if (facts.open_files < 0 || facts.open_files >= kManyFiles) return finding;
  Say(&finding, facts.open_files < kFewFiles ? Level::kFault : Level::kWarning, remedy);
  return finding;
}

Finding CheckLockedMemory(const HostFacts& facts) {
  const std::int64_t bytes = facts.locked_memory_bytes;
  Finding finding = HostFinding("locked-memory", bytes < 0 ? "unlimited" : Bytes(bytes));
  const bool pins = facts.has_rdma || !facts.gpus.empty();
  if (bytes < 0 || !pins) return finding;
  Say(&finding, facts.has_rdma && bytes < kLockedBytes ? Level::kFault : Level::kWarning,
      "NCCL and RDMA pin memory: LimitMEMLOCK=infinity of the worker's unit, or ulimit -l "
      "unlimited");
  return finding;
}

Finding CheckSharedMemory(const HostFacts& facts) {
  const DiskFacts& shm = facts.shared_memory;
  Finding finding = HostFinding(
      "shared-memory",
      shm.error.empty() ? absl::StrCat(Bytes(shm.free_bytes), " free of ", Bytes(shm.total_bytes))
                        : absl::StrCat("/dev/shm ", shm.error));
  // Ranks on the CPU use none.
  const Level worst = facts.gpus.empty() ? Level::kWarning : Level::kFault;
  if (!shm.error.empty()) {
    Say(&finding, worst, "mount a tmpfs at /dev/shm that the worker's user may write to");
  } else if (!facts.gpus.empty() && shm.free_bytes <= kSmallShmBytes) {
    Say(&finding, facts.gpus.size() > 1 ? Level::kFault : Level::kWarning,
        "NCCL puts its buffers there: run the container with --shm-size=8g (the chart's "
        "worker.shm.size), or remount /dev/shm larger");
  } else if (!facts.gpus.empty() && shm.free_bytes < kGoodShmBytes) {
    Say(&finding, Level::kWarning, "give it 1 GiB or more: mount -o remount,size=8g /dev/shm");
  }
  return finding;
}

Finding CheckMemory(const HostFacts& facts) {
  Finding finding =
      HostFinding("memory", absl::StrCat(Bytes(facts.memory_available_bytes), " available of ",
                                         Bytes(facts.memory_bytes)));
  if (facts.memory_bytes > 0 && facts.memory_available_bytes < kLowMemoryBytes) {
    Say(&finding, Level::kWarning,
        "end what else uses it: the kernel kills ranks when it runs out");
  }
  return finding;
}

Finding CheckProcessors(const HostFacts& facts) {
  Finding finding = HostFinding(
      "processors", absl::StrFormat("%g of %d usable, %d NUMA %s", facts.processors_allowed,
                                    facts.processors_online, std::max(1, facts.numa_nodes),
                                    facts.numa_nodes > 1 ? "nodes" : "node"));
  const double wanted = kProcessorsPerGpu * static_cast<double>(facts.gpus.size());
  if (facts.processors_allowed < wanted) {
    Say(&finding, Level::kWarning,
        absl::StrFormat("ranks on %d GPUs want %g: widen the affinity or the control group's quota",
                        facts.gpus.size(), wanted));
  }
  return finding;
}

Finding CheckClock(const HostFacts& facts) {
  Finding finding = HostFinding("clock-synchronised", "yes");
  if (!facts.clock_synchronised) {
    finding.measured = "unknown";
  } else if (!*facts.clock_synchronised) {
    finding.measured = "no";
    Say(&finding, Level::kWarning,
        "run chrony or systemd-timesyncd: times in logs and events come from the hosts' clocks");
  }
  return finding;
}

Finding CheckDisk(const DiskFacts& disk) {
  Finding finding =
      HostFinding("disk", absl::StrCat(Bytes(disk.free_bytes), " free of ", Bytes(disk.total_bytes),
                                       " ", disk.file_system));
  finding.subject = disk.path;
  if (!disk.error.empty()) {
    finding.measured = absl::StrCat(disk.error, ", ", finding.measured);
    Say(&finding, Level::kFault,
        absl::StrCat("make the folder ", disk.path, " and give it to the user who writes there"));
  } else if (disk.free_bytes < kFullDiskBytes) {
    Say(&finding, Level::kFault,
        "free space: checkpoints, spools and the coordinator's store fail");
  } else if (disk.total_files > 0 && disk.free_files < kFewDiskFiles) {
    finding.measured = absl::StrFormat("%d of %d files left", disk.free_files, disk.total_files);
    Say(&finding, Level::kFault, "free inodes: no file can be made when they are used up");
  } else if (disk.free_bytes < kLowDiskBytes) {
    Say(&finding, Level::kWarning, "free space, or lower checkpoint.keep of the jobs");
  } else if (disk.file_system == "tmpfs" || disk.file_system == "ramfs") {
    Say(&finding, Level::kWarning, "this is memory, gone after a reboot: use a disk");
  }
  return finding;
}

Finding CheckNetwork(const HostFacts& facts) {
  if (!facts.network.ok()) {
    Finding finding = HostFinding("job-network", std::string(facts.network.status().message()));
    Say(&finding, Level::kFault, "name one of these interfaces, or bring the wanted one up");
    return finding;
  }
  Finding finding = HostFinding(
      "job-network", absl::StrCat(facts.network->address, " of ", facts.network->interface));
  if (facts.network->loopback) {
    finding.measured = absl::StrCat("loopback (", facts.network->address, ")");
    Say(&finding, Level::kWarning,
        "jobs over several hosts need fsdp-worker --job-network, --interface or --bind-address; "
        "ask here with the same flags");
  }
  return finding;
}

}  // namespace

Findings CheckHost(const HostFacts& facts) {
  Findings findings = {CheckOpenFiles(facts), CheckLockedMemory(facts), CheckSharedMemory(facts),
                       CheckMemory(facts),    CheckProcessors(facts),   CheckClock(facts),
                       CheckNetwork(facts)};
  for (const DiskFacts& disk : facts.disks) findings.push_back(CheckDisk(disk));
  for (Finding& finding : CheckGpus(facts)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace fsdp::doctor
