#include "worker/doctor/host_checks.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

DiskFacts GoodDisk(const std::string& path) {
  return {.path = path,
          .file_system = "ext4",
          .total_bytes = 500 * kGiB,
          .free_bytes = 200 * kGiB,
          .total_files = 1'000'000,
          .free_files = 900'000};
}

// A host on which nothing is wrong, without a GPU.
HostFacts GoodHost() {
  HostFacts facts;
  facts.open_files = 65536;
  facts.open_files_max = 524288;
  facts.locked_memory_bytes = -1;
  facts.memory_bytes = 64 * kGiB;
  facts.memory_available_bytes = 32 * kGiB;
  facts.processors_online = 32;
  facts.processors_allowed = 32;
  facts.numa_nodes = 2;
  facts.clock_synchronised = true;
  facts.shared_memory = GoodDisk("/dev/shm");
  facts.disks = {GoodDisk("/var/lib/fsdp-worker")};
  facts.network = daemon::JobNetwork{"eth1", "10.1.0.4", false};
  return facts;
}

// With two GPUs and all of CUDA 13.
HostFacts GoodGpuHost() {
  HostFacts facts = GoodHost();
  facts.driver_module = "580.1";
  facts.nvml_opened = true;
  facts.driver_cuda = "13.0";
  for (int i = 0; i < 2; ++i) {
    GpuFacts& gpu = facts.gpus.emplace_back();
    gpu.device.set_type(v1::DEVICE_TYPE_CUDA);
    gpu.device.set_index(i);
    gpu.device.set_model("NVIDIA H200");
    gpu.device.set_driver_version("580.1");
    gpu.device.set_memory_bytes(139 * kGiB);
    gpu.device.set_memory_used_bytes(400 * kMiB);
  }
  facts.libraries = {
      {.name = "CUDA driver", .file = "libcuda.so.1", .version = "13.0"},
      {.name = "cuBLASLt", .file = "libcublasLt.so.13", .version = "13.1.0", .cuda_major = 13},
      {.name = "NCCL", .file = "libnccl.so.2", .version = "2.28.3"},
      {.name = "cuDNN", .file = "libcudnn.so.9", .version = "9.19.0"},
      {.name = "CUPTI", .file = "libcupti.so.13", .version = "13.0", .cuda_major = 13}};
  return facts;
}

Finding Find(const HostFacts& facts, const std::string& check, const std::string& subject = "") {
  for (const Finding& finding : CheckHost(facts)) {
    if (finding.check == check && finding.subject == subject) return finding;
  }
  ADD_FAILURE() << "no finding " << check << " of " << subject;
  return {};
}

TEST(HostChecksTest, AGoodHostIsWellAndEveryCheckSaysWhatItMeasured) {
  for (const HostFacts& facts : {GoodHost(), GoodGpuHost()}) {
    for (const Finding& finding : CheckHost(facts)) {
      EXPECT_EQ(finding.level, Level::kOk) << finding.check << ": " << finding.measured;
      EXPECT_NE(finding.measured, "") << finding.check;
      EXPECT_EQ(finding.remedy, "") << finding.check;
      EXPECT_EQ(finding.scope, "host");
    }
  }
}

// One thing wrong at a time: which check says so, how bad it is, what its measured value holds.
struct Case {
  const char* name;
  std::function<void(HostFacts&)> break_it;
  const char* check;
  const char* subject;
  Level level;
  const char* measured;
  const char* remedy;
};

class HostCaseTest : public ::testing::TestWithParam<Case> {};

TEST_P(HostCaseTest, IsFoundWithItsValueAndRemedyAndNothingElseIs) {
  const Case& test = GetParam();
  HostFacts facts = std::string(test.name).starts_with("gpu") ? GoodGpuHost() : GoodHost();
  test.break_it(facts);
  const Finding finding = Find(facts, test.check, test.subject);
  EXPECT_EQ(finding.level, test.level) << finding.measured;
  EXPECT_THAT(finding.measured, HasSubstr(test.measured));
  EXPECT_THAT(finding.remedy, HasSubstr(test.remedy));
  int bad = 0;
  for (const Finding& one : CheckHost(facts)) bad += one.level == Level::kOk ? 0 : 1;
  EXPECT_EQ(bad, test.level == Level::kOk ? 0 : 1);
}

constexpr auto kOk = Level::kOk;
constexpr auto kWarning = Level::kWarning;
constexpr auto kFault = Level::kFault;

const Case kCases[] = {
    {"few_files", [](HostFacts& f) { f.open_files = 1023; }, "open-files", "", kFault,
     "1023, at most 524288", "LimitNOFILE="},
    {"some_files", [](HostFacts& f) { f.open_files = 1024; }, "open-files", "", kWarning, "1024",
     "ulimit -n"},
    {"unlimited_files", [](HostFacts& f) { f.open_files = -1; }, "open-files", "", kOk, "unlimited",
     ""},
    {"locked_memory_matters_to_gpus_only", [](HostFacts& f) { f.locked_memory_bytes = 8 * kMiB; },
     "locked-memory", "", kOk, "8 MiB", ""},
    {"gpu_locked_memory", [](HostFacts& f) { f.locked_memory_bytes = 8 * kMiB; }, "locked-memory",
     "", kWarning, "8 MiB", "LimitMEMLOCK=infinity"},
    {"rdma_locked_memory",
     [](HostFacts& f) {
       f.has_rdma = true;
       f.locked_memory_bytes = 8 * kMiB;
     },
     "locked-memory", "", kFault, "8 MiB", "LimitMEMLOCK=infinity"},
    {"no_shm", [](HostFacts& f) { f.shared_memory.error = "does not exist"; }, "shared-memory", "",
     kWarning, "/dev/shm does not exist", "mount a tmpfs"},
    {"gpu_no_shm", [](HostFacts& f) { f.shared_memory.error = "cannot be written to"; },
     "shared-memory", "", kFault, "/dev/shm cannot be written to", "mount a tmpfs"},
    {"small_shm_on_the_cpu", [](HostFacts& f) { f.shared_memory.free_bytes = 64 * kMiB; },
     "shared-memory", "", kOk, "64 MiB free", ""},
    {"gpu_shm_of_a_container", [](HostFacts& f) { f.shared_memory.free_bytes = 64 * kMiB; },
     "shared-memory", "", kFault, "64 MiB free", "--shm-size"},
    {"gpu_one_with_shm_of_a_container",
     [](HostFacts& f) {
       f.gpus.pop_back();
       f.shared_memory.free_bytes = 64 * kMiB;
     },
     "shared-memory", "", kWarning, "64 MiB free", "--shm-size"},
    {"gpu_low_shm", [](HostFacts& f) { f.shared_memory.free_bytes = 512 * kMiB; }, "shared-memory",
     "", kWarning, "512 MiB free", "remount"},
    {"memory", [](HostFacts& f) { f.memory_available_bytes = kGiB; }, "memory", "", kWarning,
     "1.0 GiB available of 64.0 GiB", "the kernel kills"},
    {"gpu_few_processors", [](HostFacts& f) { f.processors_allowed = 3; }, "processors", "",
     kWarning, "3 of 32 usable", "ranks on 2 GPUs want 4"},
    {"clock_runs_free", [](HostFacts& f) { f.clock_synchronised = false; }, "clock-synchronised",
     "", kWarning, "no", "chrony"},
    {"clock_unknown", [](HostFacts& f) { f.clock_synchronised.reset(); }, "clock-synchronised", "",
     kOk, "unknown", ""},
    {"loopback", [](HostFacts& f) { f.network = daemon::JobNetwork{}; }, "job-network", "",
     kWarning, "loopback (127.0.0.1)", "--job-network"},
    {"wrong_interface",
     [](HostFacts& f) { f.network = absl::NotFoundError("--interface=eth9: no such interface"); },
     "job-network", "", kFault, "--interface=eth9", "name one of these"},
    {"disk_missing", [](HostFacts& f) { f.disks[0].error = "does not exist"; }, "disk",
     "/var/lib/fsdp-worker", kFault, "does not exist", "make the folder /var/lib/fsdp-worker"},
    {"disk_full", [](HostFacts& f) { f.disks[0].free_bytes = 100 * kMiB; }, "disk",
     "/var/lib/fsdp-worker", kFault, "100 MiB free of 500.0 GiB ext4", "free space"},
    {"disk_low", [](HostFacts& f) { f.disks[0].free_bytes = 5 * kGiB; }, "disk",
     "/var/lib/fsdp-worker", kWarning, "5.0 GiB free", "checkpoint.keep"},
    {"disk_inodes", [](HostFacts& f) { f.disks[0].free_files = 10; }, "disk",
     "/var/lib/fsdp-worker", kFault, "10 of 1000000 files left", "inodes"},
    {"disk_without_inodes",
     [](HostFacts& f) { f.disks[0].total_files = f.disks[0].free_files = 0; }, "disk",
     "/var/lib/fsdp-worker", kOk, "200.0 GiB free", ""},
    {"disk_in_memory", [](HostFacts& f) { f.disks[0].file_system = "tmpfs"; }, "disk",
     "/var/lib/fsdp-worker", kWarning, "tmpfs", "gone after a reboot"},
    {"gpu_driver_library_missing",
     [](HostFacts& f) {
       f.nvml_opened = false;
       f.gpus.clear();
     },
     "driver", "", kFault, "module 580.1 is loaded", "install the driver anew"},
    {"gpu_no_device", [](HostFacts& f) { f.gpus.clear(); }, "driver", "", kFault, "shows no device",
     "dmesg"},
    {"gpu_driver_mismatch", [](HostFacts& f) { f.driver_module = "570.2"; }, "driver", "", kFault,
     "580.1, module 570.2", "reboot"},
    {"gpu_no_nccl", [](HostFacts& f) { f.libraries[2].version.clear(); }, "library", "NCCL", kFault,
     "missing", "libnccl.so.2"},
    {"gpu_no_cudnn", [](HostFacts& f) { f.libraries[3].version.clear(); }, "library", "cuDNN",
     kWarning, "missing", "attention is slower"},
    {"gpu_no_cupti", [](HostFacts& f) { f.libraries[4].version.clear(); }, "library", "CUPTI",
     kWarning, "missing", "no hardware counters"},
    {"gpu_broken_library", [](HostFacts& f) { f.libraries[2].error = "invalid ELF header"; },
     "library", "NCCL", kFault, "invalid ELF header", "cannot be loaded"},
    {"gpu_old_driver",
     [](HostFacts& f) {
       f.driver_cuda = "12.8";
       f.libraries[4].cuda_major = 12;
     },
     "library", "cuBLASLt", kFault, "of CUDA 13; the driver runs CUDA 12.8", "update the driver"},
    {"gpu_no_trainer",
     [](HostFacts& f) { f.cuda_trainer_error = "fsdp-trainer-cuda: No such file"; }, "cuda-trainer",
     "", kFault, "No such file", "built for CUDA"},
    {"gpu_lost", [](HostFacts& f) { f.gpus[1].error = "GPU is lost"; }, "gpu", "cuda-1", kFault,
     "GPU is lost", "nvidia-smi"},
    {"gpu_ecc", [](HostFacts& f) { f.gpus[0].reading.ecc_errors["uncorrected"] = 3; }, "gpu",
     "cuda-0", kFault, "3 uncorrected ECC errors", "drain"},
    {"gpu_corrected_ecc", [](HostFacts& f) { f.gpus[0].reading.ecc_errors["corrected"] = 3; },
     "gpu", "cuda-0", kOk, "NVIDIA H200", ""},
    {"gpu_foreign_memory",
     [](HostFacts& f) {
       f.gpus[1].device.set_memory_used_bytes(8000 * kMiB);
       f.gpus[1].processes = {{.pid = 77, .used_bytes = 7600 * kMiB}};
     },
     "gpu", "cuda-1", kWarning, "8000 MiB of cuda-1 are in use by others, pid 77", "end these"},
    {"gpu_hot", [](HostFacts& f) { f.gpus[0].reading.throttle_reasons = 0x40; }, "gpu", "cuda-0",
     kWarning, "slowed down by the hardware", "cooling"},
    {"gpu_idle_clocks", [](HostFacts& f) { f.gpus[0].reading.throttle_reasons = 0x1; }, "gpu",
     "cuda-0", kOk, "NVIDIA H200", ""},
};

INSTANTIATE_TEST_SUITE_P(All, HostCaseTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fsdp::doctor
