#ifndef FSDPCTL_CLIENT_EXIT_CODE_H_
#define FSDPCTL_CLIENT_EXIT_CODE_H_

// What fsdpctl's exit codes mean. Scripts depend on them: never renumber.

#include "absl/status/status.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp {

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kInvalidSpec = 3,
  // No coordinator at the address, or a call ran into its deadline.
  kUnreachable = 4,
  kAuth = 5,
  kUnschedulable = 6,
  kJobFailed = 100,
  kJobNotFinished = 101,
  kNotFound = 102,
  kJobCancelled = 103,
};

inline int ToInt(ExitCode code) { return static_cast<int>(code); }

// The exit code of a failed call:
//   INVALID_ARGUMENT about a spec's field, else -> invalid spec, usage
//   ALREADY_EXISTS                      -> usage (request id reused for another spec)
//   FAILED_PRECONDITION                 -> usage (the job's state does not allow it)
//   OUT_OF_RANGE                        -> usage (an offset or a page that is not there)
//   UNIMPLEMENTED by our service, else  -> usage (not in this release), unreachable (no coordinator
//                                          of this API answers)
//   UNAVAILABLE, DEADLINE_EXCEEDED      -> unreachable
//   UNAUTHENTICATED, PERMISSION_DENIED  -> auth
//   RESOURCE_EXHAUSTED                  -> unschedulable
//   NOT_FOUND                           -> not found
//   CANCELLED                           -> not finished (interrupted while waiting)
//   UNKNOWN, ABORTED, INTERNAL, DATA_LOSS -> internal
ExitCode ExitCodeForStatus(const absl::Status& status);

// SUCCEEDED -> ok, FAILED -> job failed, CANCELLED -> job cancelled, else not finished.
ExitCode ExitCodeForJob(v1::JobState state);

// Of several jobs the one a script must see first: any error before failed, cancelled, not
// finished and ok.
ExitCode Worse(ExitCode a, ExitCode b);

// True for SUCCEEDED, FAILED and CANCELLED: the job does not change any more.
bool IsFinished(v1::JobState state);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_EXIT_CODE_H_
