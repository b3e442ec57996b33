#ifndef FSDPCTL_PROTO_SUPPORT_STATUS_H_
#define FSDPCTL_PROTO_SUPPORT_STATUS_H_

// Macros and small helpers around absl::Status. Debian's absl::string_view is not std::string_view:
// ToAbsl and FromAbsl convert, neither copies.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fsdp {

inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view FromAbsl(absl::string_view text) { return {text.data(), text.size()}; }

// `status` with "context: " before its message; OK and payloads stay.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// The status of errno `error` for a failed call, "open(/x): No such file or directory".
//   ENOENT -> NOT_FOUND, EACCES/EPERM -> PERMISSION_DENIED, EEXIST -> ALREADY_EXISTS,
//   ENOSPC/EDQUOT/ENOMEM/EMFILE -> RESOURCE_EXHAUSTED, ECONNRESET/EPIPE/ECONNREFUSED ->
//   UNAVAILABLE, everything else -> INTERNAL
absl::Status ErrnoToStatus(int error, std::string_view call);

}  // namespace fsdp

#define FSDP_CONCAT_INNER_(a, b) a##b
#define FSDP_CONCAT_(a, b) FSDP_CONCAT_INNER_(a, b)

#define RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                     \
    if (absl::Status fsdp_status_ = (expression); !fsdp_status_.ok()) return fsdp_status_; \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression) \
  FSDP_ASSIGN_OR_RETURN_IMPL_(FSDP_CONCAT_(fsdp_statusor_, __LINE__), declaration, expression)

#define FSDP_ASSIGN_OR_RETURN_IMPL_(holder, declaration, expression) \
  auto holder = (expression);                                        \
  if (!holder.ok()) return std::move(holder).status();               \
  declaration = std::move(holder).value()

#endif  // FSDPCTL_PROTO_SUPPORT_STATUS_H_
