#ifndef FSDPCTL_WORKER_PROFILE_REPORT_JOB_PROFILE_IO_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_JOB_PROFILE_IO_H_

// Profiles as files, and the check that comes before anything is drawn from one. Thread-safe (no
// state).

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/v1/profile.pb.h"

namespace fsdp {

// Of a file that is read. Recordings of one profile are 256 MiB together at most.
inline constexpr std::int64_t kMaxProfileBytes = std::int64_t{512} << 20;

// Whether everything that draws profiles can work with it: indexes, times, counts and numbers are
// in their range.
//   INVALID_ARGUMENT  names the first field that is not: "ranks[1].spans[17].name: ..."
absl::Status ValidateProfile(const v1::JobProfile& profile);
// As ValidateProfile, of one recording ("spans[17].name: ...").
absl::Status ValidateRankProfile(const v1::RankProfile& rank);

// The file is the serialized message and, as a field that the message does not have (1000,
// fixed32), the CRC-32C of everything before it: protobuf's tools read it, and a file that is cut
// off is found.
std::string EncodeJobProfile(const v1::JobProfile& profile);
// Validated.
//   DATA_LOSS         cut off, changed, or not a profile
//   INVALID_ARGUMENT  as ValidateProfile
absl::StatusOr<v1::JobProfile> DecodeJobProfile(std::string_view bytes);

// Messages begin with the path.
//   NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file, or too large), and those of
//   DecodeJobProfile
absl::StatusOr<v1::JobProfile> ReadJobProfile(const std::string& path);
// Replaces the file as a whole or not at all.
//   NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, INTERNAL  as of the system call that failed
absl::Status WriteJobProfile(const v1::JobProfile& profile, const std::string& path);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_JOB_PROFILE_IO_H_
