#ifndef FSDPCTL_WORKER_TRAIN_COLLECTIVES_H_
#define FSDPCTL_WORKER_TRAIN_COLLECTIVES_H_

// What the links between ranks give at the sizes of a model's units: `fsdp-trainer collectives`.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/device/dtype.h"
#include "worker/plan/model_config.h"
#include "worker/train/local_ranks.h"

namespace fsdp {

struct CollectivesOptions {
  ModelConfig model;
  DType parameter_dtype = DType::kBf16;
  DType reduce_dtype = DType::kF32;
  int world_size = 2;
  CommunicatorKind communicator = CommunicatorKind::kInProcess;
  BufferRegistration registration = kDefaultRegistration;  // nccl
  std::int64_t rounds = 20;                                // timed, back to back
  std::int64_t warmup = 5;
};

// Of units of one size; seconds of one collective, on rank 0.
struct UnitRate {
  std::string unit;                                  // the first of them
  std::int64_t count = 0;                            // of such units
  std::int64_t gather_bytes = 0, scatter_bytes = 0;  // of the whole unit
  double gather_seconds = 0, scatter_seconds = 0;
  double both_seconds = 0;  // a gather and a scatter side by side, as in backward
};

struct CollectivesReport {
  CollectivesOptions options;
  std::vector<UnitRate> rates;  // in the model's order

  // As nccl-tests counts the bus of gathers and scatters: bytes / seconds x (N - 1) / N.
  [[nodiscard]] double BusBytesPerSecond(double bytes, double seconds) const {
    const double world = options.world_size;
    return seconds > 0 ? bytes / seconds * (world - 1) / world : 0;
  }
  // One line.
  [[nodiscard]] std::string ToJson() const;
};

absl::StatusOr<CollectivesReport> MeasureCollectives(const CollectivesOptions& options,
                                                     const LocalBackend& backend);

// What `fsdp-trainer collectives --help` prints.
extern const char kCollectivesUsage[];

// `fsdp-trainer collectives ARGUMENTS`: prints the line; returns the exit code (0, 1 failed, 2
// usage).
int CollectivesMain(std::span<const std::string> arguments, const LocalBackend& backend);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_COLLECTIVES_H_
