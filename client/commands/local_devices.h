#ifndef FSDPCTL_CLIENT_COMMANDS_LOCAL_DEVICES_H_
#define FSDPCTL_CLIENT_COMMANDS_LOCAL_DEVICES_H_

// On which devices of this machine `fsdpctl local` runs its workers.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fsdp {

// What this machine has.
struct LocalDevices {
  // A name each, as the driver gives it.
  std::vector<std::string> gpus;
  // Why there are none.
  std::string reason;
  // fsdp-trainer-cuda lies beside fsdp-worker.
  bool has_cuda_trainer = false;
};

// Reads the output of `fsdp-worker --list-devices`: a JSON object a line, other lines say why there
// is none.
LocalDevices ParseDeviceList(const std::string& output);

// What the user asked for.
struct LocalWorkersRequest {
  // "auto", "cuda" or "cpu".
  std::string devices = "auto";
  // 0: one for each GPU, or kDefaultCpuWorkers.
  int num_workers = 0;
  // Several workers on one GPU.
  bool share_device = false;
};

inline constexpr int kDefaultCpuWorkers = 4;

struct LocalWorkers {
  int num_workers = 0;
  // "cuda" or "cpu".
  std::string device;
  // Of fsdp-worker.
  std::vector<std::string> flags;
  // "4 CPU workers", "2 GPU workers (2 x NVIDIA H200)".
  std::string description;
  // What the user may have expected otherwise; empty: nothing.
  std::string note;
};

// Every GPU where there is one and the build can use it, else CPU workers.
//   INVALID_ARGUMENT     more workers than GPUs without share_device; share_device with "cpu"
//   FAILED_PRECONDITION  GPUs are asked for, and there are none, or no fsdp-trainer-cuda
absl::StatusOr<LocalWorkers> ChooseLocalWorkers(const LocalWorkersRequest& request,
                                                const LocalDevices& devices);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_LOCAL_DEVICES_H_
