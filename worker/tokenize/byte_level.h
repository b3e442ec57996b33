#ifndef FSDPCTL_WORKER_TOKENIZE_BYTE_LEVEL_H_
#define FSDPCTL_WORKER_TOKENIZE_BYTE_LEVEL_H_

// The byte-level BPE tokenizers of GPT-2, Llama 3, Qwen and their kin, put together from parts.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "worker/tokenize/added_tokens.h"
#include "worker/tokenize/bpe.h"
#include "worker/tokenize/pre_tokenizer.h"
#include "worker/tokenize/tokenizer.h"

namespace fsdp {

struct ByteLevelParts {
  // Taken out of the text as it comes, and out of the normalized text.
  AddedTokens raw_tokens;
  AddedTokens normalized_tokens;
  bool normalizes_to_nfc = false;
  // Text that does not begin with a space gets one; so does what follows an added token.
  bool add_prefix_space = false;
  // No added token holds a newline.
  bool tokens_are_lines = true;
  std::shared_ptr<const PreTokenizer> pre_tokenizer;
  std::shared_ptr<const BpeModel> model;
  std::unordered_map<std::string, TokenId> ids;
  std::int64_t vocab_size = 0;
  std::optional<TokenId> end_of_text;
};

std::shared_ptr<const Tokenizer> MakeByteLevelTokenizer(ByteLevelParts parts);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_BYTE_LEVEL_H_
