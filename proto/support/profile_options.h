#ifndef FSDPCTL_PROTO_SUPPORT_PROFILE_OPTIONS_H_
#define FSDPCTL_PROTO_SUPPORT_PROFILE_OPTIONS_H_

// What may be asked of a profile. Pure, thread-safe.

#include <cstdint>

#include "absl/status/statusor.h"
#include "fsdp/v1/profile.pb.h"

namespace fsdp {

inline constexpr int kMaxProfileSteps = 1000;
inline constexpr std::int64_t kMaxRankProfileBytes = std::int64_t{64} << 20;

// The options with their defaults filled in, for a job of `world_size` ranks.
//   INVALID_ARGUMENT  names the field and what it takes
absl::StatusOr<v1::ProfileOptions> CheckProfileOptions(v1::ProfileOptions options, int world_size);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_PROFILE_OPTIONS_H_
