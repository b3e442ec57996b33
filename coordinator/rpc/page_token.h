#ifndef FSDPCTL_COORDINATOR_RPC_PAGE_TOKEN_H_
#define FSDPCTL_COORDINATOR_RPC_PAGE_TOKEN_H_

// Opaque page tokens: a cursor and a fingerprint of the filter that it belongs to.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace fsdp::coordinator {

std::string EncodePageToken(std::int64_t cursor, const std::string& filter);
// 0 for an empty token.
//   INVALID_ARGUMENT  not a token of this service, or of a call with another filter
absl::StatusOr<std::int64_t> DecodePageToken(const std::string& token, const std::string& filter);

// `requested` within 1..`largest`; 0 gives `standard`, more than the largest gives the largest.
//   INVALID_ARGUMENT  negative
absl::StatusOr<std::int64_t> PageSize(std::int32_t requested, std::int64_t standard,
                                      std::int64_t largest);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_PAGE_TOKEN_H_
