#ifndef FSDPCTL_CLIENT_ERROR_H_
#define FSDPCTL_CLIENT_ERROR_H_

// grpc::Status with google.rpc details <-> absl::Status with the same details as payloads, and
// their text for people. Thread-safe (no state).

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace grpc {
class Status;
}

namespace fsdp {

struct ErrorInfo {
  // UPPER_SNAKE_CASE; for programs.
  std::string reason;
  std::string domain;
  std::map<std::string, std::string> metadata;
};

struct FieldViolation {
  // "spec.model.dim"
  std::string field;
  std::string description;
};

// The same code and message; ErrorInfo and BadRequest details become payloads. Details that do not
// parse, or of other types, are left out: the message stands on its own.
absl::Status FromGrpcStatus(const grpc::Status& status);

// Absent when the error was not made by our service (a transport error, a proxy's answer).
std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status);

// Empty when the error is not about fields.
std::vector<FieldViolation> GetFieldViolations(const absl::Status& status);

// Several lines without a trailing newline: the message, then one indented line per bad field.
//   "not found: no job jobs/x [JOB_NOT_FOUND]"
//   "jobs/x is SUCCEEDED: it cannot become SUSPENDED [JOB_STATE_CONFLICT]"
std::string FormatError(const absl::Status& status);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_ERROR_H_
