#include "worker/train/trainer_errors.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

constexpr char kCausePayload[] = "fsdp/cause";

}  // namespace

absl::Status WithCause(absl::Status status, v1::FailureCause cause) {
  if (status.ok() || status.GetPayload(kCausePayload).has_value()) return status;
  status.SetPayload(kCausePayload, absl::Cord(absl::StrCat(static_cast<int>(cause))));
  return status;
}

v1::FailureCause CauseOf(const absl::Status& status) {
  int cause = 0;
  const auto payload = status.GetPayload(kCausePayload);
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &cause) &&
      v1::FailureCause_IsValid(cause)) {
    return static_cast<v1::FailureCause>(cause);
  }
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return v1::FAILURE_CAUSE_OUT_OF_MEMORY;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return v1::FAILURE_CAUSE_COMMUNICATION;
    default:
      return v1::FAILURE_CAUSE_RANK_FAILED;
  }
}

absl::Status CheckpointNotWritten(const absl::Status& status) {
  const char* remedy = "";
  if (absl::IsResourceExhausted(status)) {
    remedy =
        ": free space there, keep fewer (checkpoint.keepLast), or give checkpoint.dir another "
        "file system";
  } else if (absl::IsPermissionDenied(status)) {
    remedy = ": let the worker's user write there, or give checkpoint.dir another folder";
  }
  const absl::Status told(status.code(),
                          absl::StrCat("checkpoint.dir: ", status.message(), remedy));
  return WithCause(told, v1::FAILURE_CAUSE_CHECKPOINT);
}

TrainerExit ExitOf(const absl::Status& status) {
  if (status.ok()) return TrainerExit::kDone;
  switch (CauseOf(status)) {
    case v1::FAILURE_CAUSE_DATA:
      return TrainerExit::kData;
    case v1::FAILURE_CAUSE_CHECKPOINT:
      return TrainerExit::kCheckpoint;
    case v1::FAILURE_CAUSE_COMMUNICATION:
      return TrainerExit::kCommunication;
    case v1::FAILURE_CAUSE_NON_FINITE:
      return TrainerExit::kNonFinite;
    case v1::FAILURE_CAUSE_OUT_OF_MEMORY:
      return TrainerExit::kOutOfMemory;
    default:
      return absl::IsInvalidArgument(status) ? TrainerExit::kBadSpec : TrainerExit::kInternal;
  }
}

}  // namespace fsdp
