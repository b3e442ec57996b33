#ifndef FSDPCTL_WORKER_TOKENIZE_TOKENIZER_JSON_H_
#define FSDPCTL_WORKER_TOKENIZE_TOKENIZER_JSON_H_

// Hugging Face's tokenizer.json with a byte-level BPE model.

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/tokenize/tokenizer.h"

namespace fsdp {

// `config` is the text of the tokenizer_config.json beside it, which names the end-of-text token;
// empty without one: then a well-known name is looked for.
//   INVALID_ARGUMENT  broken; names the field
//   UNIMPLEMENTED     a feature that would change the ids; names it
absl::StatusOr<std::shared_ptr<const Tokenizer>> ParseTokenizerJson(
    std::string_view text, std::string_view config, const TokenizerOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_TOKENIZER_JSON_H_
