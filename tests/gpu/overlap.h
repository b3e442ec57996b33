#ifndef FSDPCTL_TESTS_GPU_OVERLAP_H_
#define FSDPCTL_TESTS_GPU_OVERLAP_H_

// How much of its collectives a step hides: the same step on one device with and without a link
// that takes time (link_communicator.h), and with the link but without prefetch. The engine is that
// of rank 0 of 2; of the collectives nothing can hide the first unit's gather and the last two
// units' scatters.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/gpu/link_communicator.h"
#include "worker/train/bench.h"

namespace fsdp {

struct OverlapOptions {
  BenchOptions bench;                    // world size and prefetch are set here
  double link_bytes_per_second = 350e9;  // 0: only the step without the link
  int rounds = 2;                        // of all variants, one after the other
  double max_growth = 0.03;              // of the step, beyond what cannot be hidden
  double min_prefetch_gain = 0.02;       // of the step: what prefetch off must lose
};

// Medians over all rounds' steps, seconds.
struct OverlapReport {
  OverlapOptions options;
  std::int64_t num_steps = 0;  // measured of each variant
  double base_seconds = 0;
  double linked_seconds = 0;
  double unprefetched_seconds = 0;
  // Of one step, by the link's speed.
  double first_gather_seconds = 0;
  double last_scatters_seconds = 0;
  double gathers_seconds = 0;
  double scatters_seconds = 0;
  // What the compute stream waited for in a step with the link and prefetch.
  double waited_gather_seconds = 0;
  double waited_scatter_seconds = 0;
  double last_loss = 0;

  // Of the step without the link, beyond what cannot be hidden.
  [[nodiscard]] double Growth(double seconds) const {
    return (seconds - base_seconds - first_gather_seconds - last_scatters_seconds) / base_seconds;
  }
  // OK, or what is beyond the options' limits.
  [[nodiscard]] absl::Status Verdict() const;
  // One line of JSON.
  [[nodiscard]] std::string ToJson() const;
};

using MakeOccupancy = std::function<absl::StatusOr<std::unique_ptr<LinkOccupancy>>()>;

// `backend` says what memory the device has; `device` is the one that all runs use.
//   INTERNAL  the loss is not finite, or a step issued no collective
//   others    of the engine
absl::StatusOr<OverlapReport> MeasureOverlap(const OverlapOptions& options,
                                             const LocalBackend& backend, Device& device,
                                             const MakeOccupancy& make_occupancy);

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_GPU_OVERLAP_H_
