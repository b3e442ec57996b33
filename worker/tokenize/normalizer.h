#ifndef FSDPCTL_WORKER_TOKENIZE_NORMALIZER_H_
#define FSDPCTL_WORKER_TOKENIZE_NORMALIZER_H_

// Unicode normalization form C, by utf8proc. Thread-safe (no state).

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fsdp {

// True when `text` is in form C for certain, by a look at its characters' blocks; most text is.
bool IsSurelyNfc(std::string_view text);

// `text` (valid UTF-8) in form C.
//   RESOURCE_EXHAUSTED  no memory; INTERNAL  utf8proc refuses it
absl::StatusOr<std::string> ToNfc(std::string_view text);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_NORMALIZER_H_
