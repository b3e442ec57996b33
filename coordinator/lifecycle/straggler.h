#ifndef FSDPCTL_COORDINATOR_LIFECYCLE_STRAGGLER_H_
#define FSDPCTL_COORDINATOR_LIFECYCLE_STRAGGLER_H_

// Which rank is slow: what each rank spent on a step by itself, without waiting for its peers.
//
// Not thread-safe.

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp::coordinator {

struct Straggler {
  int rank = 0;
  double score = 1;
  // Of its own on a step, beyond the fastest rank's.
  absl::Duration loss = absl::ZeroDuration();
};

class StragglerScores {
 public:
  // Means are over so many steps, without the longest of them.
  static constexpr std::size_t kWindow = 16;

  // A new epoch, with ranks that may run elsewhere.
  void Reset(int world_size);
  void Add(int rank, const v1::StepMetrics& metrics);
  // Writes score and skew of every rank that has a step; nothing with one rank.
  void Fill(google::protobuf::RepeatedPtrField<v1::RankStatus>* ranks) const;
  // The slowest rank; absent while a rank has fewer steps than the means are over, or there is one.
  [[nodiscard]] std::optional<Straggler> Slowest() const;

 private:
  struct Rank {
    std::vector<double> own;    // seconds of a step without waiting
    std::vector<double> waits;  // seconds that it waited for its peers
    std::size_t next = 0;
  };
  // Means of each rank's own seconds; empty until all have a step.
  [[nodiscard]] std::vector<double> OwnMeans() const;

  std::vector<Rank> ranks_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_LIFECYCLE_STRAGGLER_H_
