#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_ERRORS_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_ERRORS_H_

// How a trainer ends: the cause that it reports, and the exit code of its process.

#include "absl/status/status.h"
#include "fsdp/v1/job.pb.h"

namespace fsdp {

// Exit codes of fsdp-trainer. Death by signal has none of these.
enum class TrainerExit : int {
  kDone = 0,              // the job's end, or an early stop that was asked for
  kInternal = 1,          // we are wrong, or a system call failed unexpectedly
  kUsage = 2,             // command line
  kBadSpec = 3,           // the job spec or its plan
  kLinkLost = 9,          // the daemon is gone: nobody supervises this process any more
  kData = 10,             // input data missing, short, corrupt, or changed while it was read
  kCheckpoint = 11,       // cannot be written, read, or was refused
  kCommunication = 12,    // a peer is gone or does not answer
  kNonFinite = 13,        // NaN or Inf in a gradient, and the policy is to stop
  kOutOfMemory = 14,      // the device cannot give what the plan needs
  kBeyondTolerance = 20,  // `oracle`: figures are beyond their tolerance
  // A coordinator never restarts a rank that exits with it. No failure of ours does; scripts that
  // stand in for a trainer may.
  kDoNotRestart = 93,
};

// `status` with the cause attached; OK stays OK, and a cause that is there already stays.
absl::Status WithCause(absl::Status status, v1::FailureCause cause);
// The attached cause; else by code: RESOURCE_EXHAUSTED is OUT_OF_MEMORY, UNAVAILABLE and
// DEADLINE_EXCEEDED are COMMUNICATION, the rest RANK_FAILED.
v1::FailureCause CauseOf(const absl::Status& status);
// The error of a write below checkpoint.dir, with cause CHECKPOINT (a full disk is no lack of
// memory) and, where that is known, the remedy.
absl::Status CheckpointNotWritten(const absl::Status& status);
TrainerExit ExitOf(const absl::Status& status);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_ERRORS_H_
