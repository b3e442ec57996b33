#ifndef FSDPCTL_COORDINATOR_ERRORS_API_ERROR_H_
#define FSDPCTL_COORDINATOR_ERRORS_API_ERROR_H_

// Errors of the API as programs read them: a code, a text, and one google.rpc.ErrorInfo whose
// reason names the case and whose metadata holds the variables of the text. Reasons are part of the
// API: they are added, never renamed.
//
// Pure functions, thread-safe.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace fsdp::coordinator {

inline constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
inline constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";
inline constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
inline constexpr char kErrorDomain[] = "fsdp.v1";

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// `reason`: UPPER_SNAKE. The code, the message and other payloads of `status` stay; an ErrorInfo
// that is there already stays, too.
absl::Status WithInfo(absl::Status status, std::string_view reason, ErrorMetadata metadata = {});

// INVALID_ARGUMENT, reason {FIELD}_INVALID, with one BadRequest violation. `value` as sent, of
// which the metadata gets the beginning.
absl::Status BadField(const std::string& field, const std::string& value,
                      const std::string& problem);

// The reason of its ErrorInfo; empty without one.
std::string ReasonOf(const absl::Status& status);

// With a google.rpc.RetryInfo: the same call may succeed after `delay`.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// Those that several places give.
//   NOT_FOUND JOB_NOT_FOUND, NOT_FOUND WORKER_NOT_FOUND
absl::Status NoSuchJob(const std::string& job);
absl::Status NoSuchWorker(const std::string& worker);
//   UNAVAILABLE COORDINATOR_DRAINING
absl::Status Draining();
//   ABORTED WORKER_STREAM_REPLACED
absl::Status StreamReplaced(const std::string& worker);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_ERRORS_API_ERROR_H_
