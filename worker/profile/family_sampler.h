#ifndef FSDPCTL_WORKER_PROFILE_FAMILY_SAMPLER_H_
#define FSDPCTL_WORKER_PROFILE_FAMILY_SAMPLER_H_

// Seconds by family where steps run as graphs: a few steps run launch by launch between events, and
// every other counts as much as the last of these.
//
// Thread rule: the step thread.

#include <cstdint>

#include "worker/profile/family_recorder.h"

namespace fsdp {

class FamilySampler {
 public:
  // Whether the step of this number, from 1, is one of them: the 3rd, 10th, 30th, 100th and 300th,
  // then every 300th. Equal on all ranks, so that none waits for another that measures.
  static bool IsDue(std::int64_t step);

  // A step is over whose launches were timed: of each family, what it added to the recorder's
  // seconds.
  void OnTimed(const FamilyTable& seconds, FamilyRecorder& recorder);
  // One whose launches were not. Returns the seconds that it counts for, 0 before the first sample;
  // those that come before it are made up for with it.
  double OnUntimed(FamilyRecorder& recorder);

 private:
  void Add(double steps, FamilyRecorder& recorder) const;

  bool known_ = false;
  std::int64_t num_missed_ = 0;
  FamilyTable sample_{};
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_FAMILY_SAMPLER_H_
