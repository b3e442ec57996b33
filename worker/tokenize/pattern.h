#ifndef FSDPCTL_WORKER_TOKENIZE_PATTERN_H_
#define FSDPCTL_WORKER_TOKENIZE_PATTERN_H_

// The regular expressions of tokenizer.json are Oniguruma's (Ruby syntax); ours run in PCRE2, where
// some of the same text means something else. What means the same is passed on or respelled; the
// rest is refused, never guessed.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fsdp {

//   UNIMPLEMENTED     a construct whose meaning differs or is not known here; names it and its
//   place INVALID_ARGUMENT  a pattern that ends inside a construct
absl::StatusOr<std::string> PatternForPcre2(std::string_view pattern);

// `text` as a pattern that matches exactly it.
std::string QuotedPattern(std::string_view text);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_PATTERN_H_
