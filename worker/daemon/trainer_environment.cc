#include <algorithm>
#include <array>
#include <string_view>

#include "proto/support/log.h"
#include "worker/daemon/daemon.h"

namespace fsdp::daemon {
namespace {

constexpr std::array<std::string_view, 6> kAllowedPrefixes = {"NCCL_",     "GLOO_", "OMP_",
                                                              "OPENBLAS_", "DNNL_", "FSDP_"};

// Of ours, besides the allowed names. Nothing else leaks into jobs: a daemon's environment may hold
// credentials.
constexpr std::array<std::string_view, 16> kInherited = {"PATH",
                                                         "HOME",
                                                         "USER",
                                                         "LANG",
                                                         "LC_ALL",
                                                         "TZ",
                                                         "TMPDIR",
                                                         "LD_LIBRARY_PATH",
                                                         "CUDA_HOME",
                                                         "CUDA_PATH",
                                                         "ASAN_OPTIONS",
                                                         "LSAN_OPTIONS",
                                                         "TSAN_OPTIONS",
                                                         "UBSAN_OPTIONS",
                                                         "MALLOC_ARENA_MAX",
                                                         "KMP_AFFINITY"};

bool IsAllowed(std::string_view name) {
  return name == "CUDA_LAUNCH_BLOCKING" ||
         std::ranges::any_of(kAllowedPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

std::map<std::string, std::string> TrainerEnvironment(char** ours, const v1::TrainingJob& job,
                                                      const v1::DeviceInfo& device,
                                                      const JobNetwork& network) {
  std::map<std::string, std::string> environment;
  for (; *ours != nullptr; ++ours) {
    const std::string_view entry = *ours;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = entry.substr(0, equals);
    if (IsAllowed(name) || std::ranges::find(kInherited, name) != kInherited.end()) {
      environment[std::string(name)] = entry.substr(equals + 1);
    }
  }
  for (const auto& [name, value] : job.spec().env()) {
    if (IsAllowed(name)) {
      environment[name] = value;
    } else {
      LOG_WARNING("env %s of %s is not on the allow-list and is left out", name,
                  job.metadata().name());
    }
  }
  // Who sets one of these knows their network better.
  environment.merge(NetworkEnvironment(network));
  // By UUID: indices change with driver updates and with what a container sees.
  if (device.type() == v1::DEVICE_TYPE_CUDA) environment["CUDA_VISIBLE_DEVICES"] = device.uuid();
  return environment;
}

}  // namespace fsdp::daemon
