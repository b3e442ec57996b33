#include "client/exit_code.h"

#include "client/error.h"

namespace fsdp {
namespace {

int Badness(ExitCode code) {
  switch (code) {
    case ExitCode::kOk:
      return 0;
    case ExitCode::kJobNotFinished:
      return 1;
    case ExitCode::kJobCancelled:
      return 2;
    case ExitCode::kJobFailed:
      return 3;
    default:
      return 4;
  }
}

}  // namespace

ExitCode ExitCodeForStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return GetFieldViolations(status).empty() ? ExitCode::kUsage : ExitCode::kInvalidSpec;
    case absl::StatusCode::kAlreadyExists:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kAuth;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kUnschedulable;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kCancelled:
      return ExitCode::kJobNotFinished;
    default:
      return ExitCode::kInternal;
  }
}

ExitCode ExitCodeForJob(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return ExitCode::kOk;
    case v1::JOB_STATE_FAILED:
      return ExitCode::kJobFailed;
    case v1::JOB_STATE_CANCELLED:
      return ExitCode::kJobCancelled;
    default:
      return ExitCode::kJobNotFinished;
  }
}

ExitCode Worse(ExitCode a, ExitCode b) { return Badness(b) > Badness(a) ? b : a; }

bool IsFinished(v1::JobState state) { return ExitCodeForJob(state) != ExitCode::kJobNotFinished; }

}  // namespace fsdp
