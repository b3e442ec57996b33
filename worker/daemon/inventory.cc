#include "worker/daemon/inventory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp::daemon {
namespace {

constexpr int kMaxCpuSlots = 1024;
constexpr int kMaxWorkers = 1024;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// What a driver without any process holds: at most 0.6 GiB seen on datacenter GPUs with ECC.
constexpr std::int64_t kIdleDriverBytes = 1024 * kMiB;

std::string ProcessorName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "cpu";
}

std::int64_t HostMemoryBytes() {
  const auto pages = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<std::int64_t>(::sysconf(_SC_PAGE_SIZE));
  return pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
}

absl::Status BadDevices(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "--devices=%s: use all, cpu, cpu:N (1..%d) or cuda:I (the device's index, from 0)", text,
      kMaxCpuSlots));
}

}  // namespace

absl::StatusOr<DeviceRequest> ParseDevices(const std::string& text) {
  using Kind = DeviceRequest::Kind;
  if (text == "all") return DeviceRequest{.kind = Kind::kAll};
  if (text == "cpu") return DeviceRequest{.kind = Kind::kCpu, .num_slots = 1};
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  int number = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &number)) {
    return BadDevices(text);
  }
  if (kind == "cpu" && number >= 1 && number <= kMaxCpuSlots) {
    return DeviceRequest{.kind = Kind::kCpu, .num_slots = number};
  }
  if (kind == "cuda" && number >= 0) return DeviceRequest{.kind = Kind::kCuda, .index = number};
  return BadDevices(text);
}

absl::StatusOr<std::vector<v1::DeviceInfo>> FindDevices(const DeviceRequest& request,
                                                        const Nvml* nvml) {
  std::vector<v1::DeviceInfo> devices;
  if (request.kind == DeviceRequest::Kind::kCpu) {
    for (int i = 0; i < request.num_slots; ++i) devices.push_back(CpuSlot(i, request.num_slots));
    return devices;
  }
  const int count = nvml == nullptr ? 0 : nvml->device_count();
  if (count == 0) {
    return absl::NotFoundError(absl::StrCat(
        "no CUDA device on this host: ",
        nvml == nullptr
            ? "there is no NVIDIA driver (libnvidia-ml.so.1 cannot be used); install one, or"
            : "the NVIDIA driver shows no device (in a container: start it with the GPUs); or",
        " use --devices=cpu:N for CPU slots"));
  }
  const bool all = request.kind == DeviceRequest::Kind::kAll;
  if (!all && request.index >= count) {
    return absl::NotFoundError(absl::StrFormat(
        "--devices=cuda:%d: this host has CUDA devices 0 to %d", request.index, count - 1));
  }
  for (int i = all ? 0 : request.index; i < (all ? count : request.index + 1); ++i) {
    ASSIGN_OR_RETURN(v1::DeviceInfo device, nvml->Describe(i));
    devices.push_back(std::move(device));
  }
  return devices;
}

absl::StatusOr<std::vector<v1::DeviceInfo>> SpreadWorkers(std::vector<v1::DeviceInfo> devices,
                                                          int num_workers, bool share_device) {
  const int count = static_cast<int>(devices.size());
  if (num_workers == 0 || num_workers == count) return devices;
  const auto bad = [&](const std::string& remedy) {
    return absl::InvalidArgumentError(absl::StrCat("--workers=", num_workers, ": ", remedy));
  };
  if (num_workers < 0 || num_workers > kMaxWorkers) {
    return bad(absl::StrCat("use 1 to ", kMaxWorkers, ", or 0 for one per device"));
  }
  if (count == 0 || devices.front().type() == v1::DEVICE_TYPE_CPU) {
    return bad(absl::StrCat("is for CUDA devices; use --devices=cpu:", num_workers));
  }
  if (num_workers > count && !share_device) {
    return bad(absl::StrCat("there are ", count, " devices; use at most that many, or ",
                            "--share-device (several on one, for tests of correctness)"));
  }
  std::vector<v1::DeviceInfo> spread;
  spread.reserve(static_cast<std::size_t>(num_workers));
  for (int i = 0; i < num_workers; ++i) spread.push_back(devices[i % count]);
  return spread;
}

std::string DeviceLines(const std::vector<v1::DeviceInfo>& devices) {
  std::string lines;
  for (const v1::DeviceInfo& device : devices) {
    nlohmann::ordered_json line = {{"type", device.type() == v1::DEVICE_TYPE_CUDA ? "cuda" : "cpu"},
                                   {"index", device.index()},
                                   {"model", device.model()},
                                   {"uuid", device.uuid()},
                                   {"memory_bytes", device.memory_bytes()}};
    if (device.cpu_threads() > 0) line["cpu_threads"] = device.cpu_threads();
    // Names come from drivers: bytes that are no UTF-8 must not end the program.
    absl::StrAppend(
        &lines, line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), "\n");
  }
  return lines;
}

v1::DeviceInfo CpuSlot(int index, int num_slots) {
  v1::DeviceInfo device;
  device.set_type(v1::DEVICE_TYPE_CPU);
  device.set_index(index);
  device.set_model(ProcessorName());
  device.set_memory_bytes(HostMemoryBytes() / std::max(1, num_slots));
  device.set_cpu_threads(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, num_slots)));
  return device;
}

std::string DeviceLabel(const v1::DeviceInfo& device) {
  return absl::StrCat(device.type() == v1::DEVICE_TYPE_CUDA ? "cuda-" : "cpu-", device.index());
}

std::string ForeignMemoryReason(const v1::DeviceInfo& device,
                                const std::vector<Nvml::Process>& processes) {
  if (device.type() != v1::DEVICE_TYPE_CUDA) return "";
  if (processes.empty() && device.memory_used_bytes() <= kIdleDriverBytes) return "";
  std::string reason = absl::StrFormat("%d MiB of %s are in use by others",
                                       device.memory_used_bytes() / kMiB, DeviceLabel(device));
  for (const Nvml::Process& process : processes) {
    absl::StrAppendFormat(&reason, ", pid %d has %d MiB", process.pid, process.used_bytes / kMiB);
  }
  return absl::StrCat(reason, "; end them, or start the worker with --share-device");
}

std::string HostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace fsdp::daemon
