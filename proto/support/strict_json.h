#ifndef FSDPCTL_PROTO_SUPPORT_STRICT_JSON_H_
#define FSDPCTL_PROTO_SUPPORT_STRICT_JSON_H_

// JSON as checkpoints and model descriptions need it: no duplicate keys, bounded nesting, no
// exceptions.

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace fsdp {

//   DATA_LOSS  not JSON, a key twice in one object, or nested deeper than `max_depth`
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, int max_depth);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_STRICT_JSON_H_
