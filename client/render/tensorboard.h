#ifndef FSDPCTL_CLIENT_RENDER_TENSORBOARD_H_
#define FSDPCTL_CLIENT_RENDER_TENSORBOARD_H_

// Step metrics as TensorBoard's event files. Thread-safe (no state).

#include <string>

#include "absl/time/time.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp {

// The first record of a file that is begun at `time`.
std::string TensorboardHeader(absl::Time time);
// A step's scalars: loss, its parts and rates, seconds by phase, losses of evaluations. What the
// step does not have, and what is not a number, is left out.
std::string TensorboardRecord(const v1::StepMetrics& step);

// A record around `event`'s bytes: length and bytes, each with its masked CRC-32C (TFRecord).
std::string TfRecord(const std::string& event);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_TENSORBOARD_H_
