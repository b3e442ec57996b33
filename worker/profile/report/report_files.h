#ifndef FSDPCTL_WORKER_PROFILE_REPORT_REPORT_FILES_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_REPORT_FILES_H_

// Whole files. Thread-safe, as long as no two calls write one path.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp::report {

// Errors name the path: those of ErrnoToStatus, and INVALID_ARGUMENT for what is not a regular file
// or is larger than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, std::int64_t max_bytes);
// Under another name first: the path has the old bytes or the new ones. Errors as ErrnoToStatus.
absl::Status ReplaceFile(const std::string& path, std::string_view bytes);
// With its parents; one that is there is fine.
absl::Status MakeFolder(const std::string& path);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_REPORT_FILES_H_
