#ifndef FSDPCTL_WORKER_TRAIN_COUNTED_RECORDING_H_
#define FSDPCTL_WORKER_TRAIN_COUNTED_RECORDING_H_

// Puts the samples of a counter window into the recording of the same steps: which launch ran when
// is known from the recording's own spans, so no kernel has to be recognised.
//
// Pure.

#include <cstdint>

#include "fsdp/v1/profile.pb.h"
#include "worker/profile/counters/counter_driver.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {

// Adds the tracks "sm", "hbm" and "tensor" (ratio) over the recorded steps, samples put together
// where they would take more than `max_bytes` of the file, a note about what was lost, and
// counter_source; returns the ratios of each family that enough samples tell of.
MeasuredTable AddSamples(const CounterReading& reading, std::int64_t max_bytes,
                         v1::RankProfile* profile);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_COUNTED_RECORDING_H_
