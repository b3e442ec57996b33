#ifndef FSDPCTL_WORKER_PLAN_MIXTURE_CYCLE_H_
#define FSDPCTL_WORKER_PLAN_MIXTURE_CYCLE_H_

// Which of several weighted sources each position of a job's data is drawn from, as arithmetic on
// the position alone: no state, no replay.
//
// Positions repeat a cycle of at most kMaxLength draws in which every source has a whole number.
// That number is exact where the weights' decimals allow it (0.7, 0.2, 0.1 is a cycle of 10; 3 and
// 1 one of 4); else it is rounded, by less than 1 in kMaxLength. Within a cycle every draw has a
// window in which it is due, and the most urgent goes first: after any number of positions each
// source was drawn within one of its share.
//
// Thread rule: immutable. Memory: 5 bytes a draw of the cycle.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace fsdp {

class MixtureCycle {
 public:
  static constexpr std::int64_t kMaxLength = 1 << 20;
  static constexpr std::size_t kMaxSources = 64;

  struct Draw {
    std::size_t source = 0;
    std::int64_t index = 0;  // how often the source was drawn before
  };

  //   INVALID_ARGUMENT  no weight, or more than kMaxSources; one that is not finite or not above 0,
  //                     or is less than 1 in kMaxLength of their sum; names it as
  //                     "data.mixture[1].weight"
  static absl::StatusOr<MixtureCycle> Create(std::span<const double> weights);
  // Is weights[source] too small a part of their sum? All are finite and above 0.
  static bool IsTooSmall(std::span<const double> weights, std::size_t source);

  [[nodiscard]] std::size_t num_sources() const { return slots_.size(); }
  [[nodiscard]] std::int64_t length() const { return static_cast<std::int64_t>(sources_.size()); }
  // Draws of `source` in a cycle.
  [[nodiscard]] std::int64_t count(std::size_t source) const {
    return static_cast<std::int64_t>(slots_[source].size());
  }
  // Of all draws.
  [[nodiscard]] double share(std::size_t source) const {
    return static_cast<double>(count(source)) / static_cast<double>(length());
  }

  // position >= 0.
  [[nodiscard]] Draw At(std::int64_t position) const;
  // Draws of `source` at positions below `position`.
  [[nodiscard]] std::int64_t CountBefore(std::size_t source, std::int64_t position) const;
  // The inverse of At.
  [[nodiscard]] std::int64_t PositionOf(Draw draw) const;

 private:
  explicit MixtureCycle(std::span<const std::int64_t> counts);

  std::vector<std::uint8_t> sources_;              // [length]
  std::vector<std::vector<std::uint32_t>> slots_;  // of each source, ascending
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_MIXTURE_CYCLE_H_
