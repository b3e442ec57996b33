#ifndef FSDPCTL_WORKER_PROFILE_REPORT_GZIP_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_GZIP_H_

// Thread-safe (no state).

#include <string>

#include "absl/status/statusor.h"

namespace fsdp::report {

// As a file with the suffix .gz; the same bytes for the same text.
//   INTERNAL            zlib failed
absl::StatusOr<std::string> Gzip(const std::string& text);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_GZIP_H_
