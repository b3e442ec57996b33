#ifndef FSDPCTL_WORKER_DOCTOR_HOST_FACTS_H_
#define FSDPCTL_WORKER_DOCTOR_HOST_FACTS_H_

// What of this machine bears on training, measured; what it means is for host_checks.h. Reading
// changes nothing but for a file that is made and removed in each folder that is looked at.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "worker/daemon/device_health.h"
#include "worker/daemon/inventory.h"
#include "worker/daemon/job_network.h"

namespace fsdp::doctor {

struct DiskFacts {
  std::string path;
  // Why it cannot be looked at or written to: the system's words; empty: it can.
  std::string error;
  // "tmpfs", "nfs", "ext4", or the number of one that has no name here.
  std::string file_system;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
  // 0 of 0: the file system does not count them.
  std::int64_t total_files = 0;
  std::int64_t free_files = 0;
};

// A library that ranks on GPUs open or link.
struct LibraryFacts {
  // "NCCL".
  std::string name;
  // "libnccl.so.2"; of several tried the one that is there, else the newest.
  std::string file;
  // "2.28.3"; empty: it is not there.
  std::string version;
  // Of the CUDA release that it belongs to; 0: it does not tell.
  int cuda_major = 0;
  // The loader's words when it is there and cannot be loaded.
  std::string error;
};

struct GpuFacts {
  v1::DeviceInfo device;
  std::vector<daemon::Nvml::Process> processes;
  daemon::DeviceReading reading;
  // NVML's words when it could not be read.
  std::string error;
};

struct HostFacts {
  std::string host;
  // RLIMIT_NOFILE; -1: unlimited.
  std::int64_t open_files = 0;
  std::int64_t open_files_max = 0;
  // RLIMIT_MEMLOCK in bytes; -1: unlimited.
  std::int64_t locked_memory_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t memory_available_bytes = 0;
  int processors_online = 0;
  // That this process may use: affinity, and the control group's quota where it is smaller.
  double processors_allowed = 0;
  int numa_nodes = 0;
  // What the kernel's clock discipline says; absent: it could not be asked.
  std::optional<bool> clock_synchronised;
  bool has_rdma = false;
  DiskFacts shared_memory;
  std::vector<DiskFacts> disks;
  std::vector<daemon::InterfaceAddress> interfaces;
  absl::StatusOr<daemon::JobNetwork> network = daemon::JobNetwork{};

  // Version of the kernel's module; empty: it is not loaded.
  std::string driver_module;
  bool nvml_opened = false;
  // The newest CUDA release that the driver can run, "13.0"; empty: none.
  std::string driver_cuda;
  std::vector<GpuFacts> gpus;
  std::vector<LibraryFacts> libraries;
  // What `fsdp-trainer-cuda --version` said when it failed, or that it is missing; empty: it runs.
  // Looked at where there are GPUs.
  std::string cuda_trainer_error;
};

struct HostRequest {
  // Folders of state, spools, checkpoints and data.
  std::vector<std::string> paths;
  // As the flags of fsdp-worker.
  daemon::NetworkRequest network;
  // fsdp-trainer-cuda; empty: it is not looked at.
  std::string cuda_trainer;
};

HostFacts ReadHostFacts(const HostRequest& request);

// Parts of it, for tests. `path` need not exist; its nearest parent that does is measured.
DiskFacts ReadDisk(const std::string& path);
// Of "quota period" or "max period" (cgroup v2's cpu.max); absent: no quota.
std::optional<double> ParseCpuQuota(const std::string& text);
// Of /proc/driver/nvidia/version; empty: not found.
std::string ParseDriverModule(const std::string& text);
// With `nvml` null: no driver.
void ReadGpus(const daemon::Nvml* nvml, HostFacts* facts);
// Opens the CUDA libraries and asks their versions.
std::vector<LibraryFacts> ReadLibraries();
// "13.0" of 13000 (CUDA's) and "2.28.3" of 22803 (NCCL's).
std::string CudaVersionText(int version);
std::string NcclVersionText(int version);

}  // namespace fsdp::doctor

#endif  // FSDPCTL_WORKER_DOCTOR_HOST_FACTS_H_
