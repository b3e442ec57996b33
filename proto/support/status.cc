#include "proto/support/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case ECONNRESET:
    case EPIPE:
    case ECONNREFUSED:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(ToAbsl(context), ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

absl::Status ErrnoToStatus(int error, std::string_view call) {
  return {CodeOf(error), absl::StrCat(ToAbsl(call), ": ", std::strerror(error))};
}

}  // namespace fsdp
