#include "client/commands/local_devices.h"

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fsdp {
namespace {

std::string Count(int count, const std::string& noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// "2 x NVIDIA H200, NVIDIA L4".
std::string Models(const std::vector<std::string>& gpus) {
  std::map<std::string, int> counts;
  for (const std::string& gpu : gpus) ++counts[gpu];
  return absl::StrJoin(counts, ", ", [](std::string* text, const auto& entry) {
    if (entry.second > 1) absl::StrAppend(text, entry.second, " x ");
    absl::StrAppend(text, entry.first);
  });
}

LocalWorkers CpuWorkers(const LocalWorkersRequest& request, const LocalDevices& devices) {
  LocalWorkers workers;
  workers.num_workers = request.num_workers > 0 ? request.num_workers : kDefaultCpuWorkers;
  workers.device = "cpu";
  workers.flags = {absl::StrCat("--devices=cpu:", workers.num_workers)};
  workers.description = Count(workers.num_workers, "CPU worker");
  if (request.devices == "auto" && !devices.gpus.empty()) {
    workers.note = absl::StrCat(Models(devices.gpus),
                                " stays unused: this build has no fsdp-trainer-cuda (configure "
                                "with a CUDA toolkit and NCCL)");
  }
  return workers;
}

}  // namespace

LocalDevices ParseDeviceList(const std::string& output) {
  LocalDevices devices;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      devices.reason = line;
    } else if (json.contains("type") && json["type"] == "cuda") {
      const bool named = json.contains("model") && json["model"].is_string();
      devices.gpus.push_back(named ? json["model"].get<std::string>() : "GPU");
    }
  }
  return devices;
}

absl::StatusOr<LocalWorkers> ChooseLocalWorkers(const LocalWorkersRequest& request,
                                                const LocalDevices& devices) {
  const bool wants_gpus = request.devices == "cuda" || request.share_device;
  if (request.devices == "cpu") {
    if (!request.share_device) return CpuWorkers(request, devices);
    return absl::InvalidArgumentError(
        "--share-device is for GPUs; CPU workers share the machine anyway");
  }
  const char* const flag = request.devices == "cuda" ? "--devices=cuda" : "--share-device";
  const int num_gpus = static_cast<int>(devices.gpus.size());
  if (num_gpus == 0 && wants_gpus) {
    return absl::FailedPreconditionError(absl::StrCat(
        flag, ": ", devices.reason.empty() ? "fsdp-worker finds no GPU here" : devices.reason));
  }
  if (num_gpus > 0 && !devices.has_cuda_trainer && wants_gpus) {
    return absl::FailedPreconditionError(absl::StrCat(
        flag,
        ": there is no fsdp-trainer-cuda beside fsdp-worker: build with a CUDA toolkit and "
        "NCCL, or use --devices=cpu"));
  }
  if (num_gpus == 0 || !devices.has_cuda_trainer) return CpuWorkers(request, devices);
  LocalWorkers workers;
  workers.num_workers = request.num_workers > 0 ? request.num_workers : num_gpus;
  if (workers.num_workers > num_gpus && !request.share_device) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers=", workers.num_workers, ": there ", num_gpus == 1 ? "is " : "are ",
        Count(num_gpus, "GPU"), "; use --workers=", num_gpus,
        ", --share-device (several on one GPU: right results, slow), or --devices=cpu"));
  }
  workers.device = "cuda";
  workers.flags = {"--devices=all", absl::StrCat("--workers=", workers.num_workers)};
  if (request.share_device) workers.flags.push_back("--share-device");
  workers.description = absl::StrCat(Count(workers.num_workers, "GPU worker"),
                                     request.share_device ? " sharing " : " (",
                                     Models(devices.gpus), request.share_device ? "" : ")");
  return workers;
}

}  // namespace fsdp
