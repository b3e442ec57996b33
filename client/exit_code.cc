#include "client/exit_code.h"

#include <algorithm>
#include <string>

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

// A bad field of a request ("name", "page_token") is the caller's slip, not a spec's.
bool IsAboutSpec(const absl::Status& status) {
  const auto violations = GetFieldViolations(status);
  return std::any_of(violations.begin(), violations.end(), [](const FieldViolation& violation) {
    const std::string top = violation.field.substr(0, violation.field.find('.'));
    const auto* job = v1::TrainingJob::descriptor();
    return job->FindFieldByCamelcaseName(top) != nullptr;
  });
}

// The coordinator answers this caller no more for the moment; jobs have nothing to do with it.
bool IsAboutLimits(const absl::Status& status) {
  const auto info = GetErrorInfo(status);
  return info.has_value() && (info->reason == "RATE_LIMITED" || info->reason == "STREAM_LIMIT");
}

}  // namespace

ExitCode ExitCodeForStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return IsAboutSpec(status) ? ExitCode::kInvalidSpec : ExitCode::kUsage;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnimplemented:
      return GetErrorInfo(status).has_value() ? ExitCode::kUsage : ExitCode::kUnreachable;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kAuth;
    case absl::StatusCode::kResourceExhausted:
      return IsAboutLimits(status) ? ExitCode::kUnreachable : ExitCode::kUnschedulable;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kCancelled:
      return ExitCode::kJobNotFinished;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
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
