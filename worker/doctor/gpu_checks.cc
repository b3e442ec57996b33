#include "worker/doctor/gpu_checks.h"

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fsdp::doctor {
namespace {

// Of nvmlDeviceGetCurrentClocksEventReasons: the hardware slows itself down for heat or power.
constexpr std::uint64_t kHardwareSlowdown = 0x8 | 0x40 | 0x80;

Finding Fault(Finding finding, std::string remedy) {
  finding.level = Level::kFault;
  finding.remedy = std::move(remedy);
  return finding;
}

Finding Warning(Finding finding, std::string remedy) {
  finding.level = Level::kWarning;
  finding.remedy = std::move(remedy);
  return finding;
}

Finding CheckDriver(const HostFacts& facts) {
  if (facts.driver_module.empty() && !facts.nvml_opened)
    return HostFinding("driver", "none, no GPU");
  if (!facts.nvml_opened) {
    return Fault(
        HostFinding("driver", absl::StrCat("module ", facts.driver_module,
                                           " is loaded, libnvidia-ml.so.1 cannot be used")),
        "library and module are of different releases, or the library is missing: install "
        "the driver anew and reboot; in a container, run it with the NVIDIA runtime");
  }
  if (facts.gpus.empty()) {
    return Fault(HostFinding("driver", "shows no device"),
                 "look into dmesg for NVRM; in a container, start it with the GPUs");
  }
  std::set<std::string> versions;
  for (const GpuFacts& gpu : facts.gpus) {
    if (!gpu.device.driver_version().empty()) versions.insert(gpu.device.driver_version());
  }
  Finding finding = HostFinding("driver", absl::StrJoin(versions, ", "));
  if (!facts.driver_module.empty() && !versions.contains(facts.driver_module)) {
    absl::StrAppend(&finding.measured, ", module ", facts.driver_module);
    return Fault(std::move(finding),
                 "the module and its libraries differ: reboot after an upgrade");
  }
  return finding;
}

Finding CheckLibrary(const LibraryFacts& library, const HostFacts& facts) {
  Finding finding =
      HostFinding("library", library.version.empty() ? "missing" : absl::StrCat(library.version));
  finding.subject = library.name;
  const bool optional = library.name == "cuDNN" || library.name == "CUPTI";
  if (!library.error.empty()) {
    finding.measured = library.error;
    return Fault(std::move(finding), absl::StrCat(library.file, " is here and cannot be loaded"));
  }
  if (library.version.empty()) {
    const std::string remedy =
        absl::StrCat("install it, or put the folder of ", library.file, " on LD_LIBRARY_PATH");
    if (!optional) return Fault(std::move(finding), remedy);
    return Warning(std::move(finding),
                   absl::StrCat(library.name == "cuDNN" ? "attention is slower without it: "
                                                        : "no hardware counters without it: ",
                                remedy));
  }
  const int driver_major = std::atoi(facts.driver_cuda.c_str());
  if (driver_major > 0 && library.cuda_major > driver_major) {
    absl::StrAppend(&finding.measured, ", of CUDA ", library.cuda_major, "; the driver runs CUDA ",
                    facts.driver_cuda);
    return Fault(
        std::move(finding),
        absl::StrCat("update the driver, or install the libraries of CUDA ", driver_major));
  }
  return finding;
}

Finding CheckTrainer(const HostFacts& facts) {
  if (facts.cuda_trainer_error.empty()) return HostFinding("cuda-trainer", "runs");
  return Fault(HostFinding("cuda-trainer", facts.cuda_trainer_error),
               "install the release that is built for CUDA and the libraries that this names; "
               "without it the GPUs cannot be used");
}

Finding CheckGpu(const GpuFacts& gpu) {
  const v1::DeviceInfo& device = gpu.device;
  Finding finding = HostFinding(
      "gpu", absl::StrFormat("%s, %d of %d MiB used", device.model(),
                             device.memory_used_bytes() / kMiB, device.memory_bytes() / kMiB));
  finding.subject = daemon::DeviceLabel(device);
  if (!gpu.error.empty()) {
    finding.measured = gpu.error;
    return Fault(std::move(finding), "reset or replace the device: nvidia-smi -q tells its state");
  }
  const auto uncorrected = gpu.reading.ecc_errors.find("uncorrected");
  if (uncorrected != gpu.reading.ecc_errors.end() && uncorrected->second > 0) {
    absl::StrAppend(&finding.measured, ", ", uncorrected->second, " uncorrected ECC errors");
    return Fault(
        std::move(finding),
        "results may be wrong: drain the worker, reset the device, replace it if they come "
        "back");
  }
  const std::string foreign = daemon::ForeignMemoryReason(device, gpu.processes);
  if (!foreign.empty()) {
    finding.measured = foreign.substr(0, foreign.find(';'));
    return Warning(std::move(finding),
                   "end these processes, unless they are ranks of a job that runs: an idle worker "
                   "takes no rank until the memory is free");
  }
  if ((gpu.reading.throttle_reasons.value_or(0) & kHardwareSlowdown) != 0) {
    absl::StrAppend(&finding.measured, ", slowed down by the hardware");
    return Warning(std::move(finding), "look after cooling and power of the host");
  }
  return finding;
}

}  // namespace

Findings CheckGpus(const HostFacts& facts) {
  Findings findings = {CheckDriver(facts)};
  if (facts.gpus.empty()) return findings;
  for (const LibraryFacts& library : facts.libraries) {
    findings.push_back(CheckLibrary(library, facts));
  }
  findings.push_back(CheckTrainer(facts));
  for (const GpuFacts& gpu : facts.gpus) findings.push_back(CheckGpu(gpu));
  return findings;
}

}  // namespace fsdp::doctor
