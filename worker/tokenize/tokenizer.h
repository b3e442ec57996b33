#ifndef FSDPCTL_WORKER_TOKENIZE_TOKENIZER_H_
#define FSDPCTL_WORKER_TOKENIZE_TOKENIZER_H_

// Text to token ids, as the tokenizer's own library does it without the tokens that it adds around
// a prompt.
//
// Thread rule: a Tokenizer is thread-safe; a TextEncoder is one thread's and outlived by it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/tokenize/bpe.h"

namespace fsdp {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Appends the ids of `text`: a document, or with starts_document = false what follows of one that
  // was cut where Tokenizer::cuts_before_newlines allows. Valid UTF-8 unless takes_any_bytes().
  //   INTERNAL, RESOURCE_EXHAUSTED  the library underneath gave up
  virtual absl::Status Encode(std::string_view text, bool starts_document,
                              std::vector<TokenId>* ids) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  [[nodiscard]] virtual std::unique_ptr<TextEncoder> NewEncoder() const = 0;
  // One more than the largest id.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  // The id of a token by its content, as in a vocabulary: "<|endoftext|>".
  [[nodiscard]] virtual std::optional<TokenId> Find(const std::string& content) const = 0;
  // The end of a text, when the files say which token it is.
  [[nodiscard]] virtual std::optional<TokenId> end_of_text() const = 0;
  // A document may be cut between an ASCII letter and a newline: the ids stay the same.
  [[nodiscard]] virtual bool cuts_before_newlines() const { return false; }
  // Raw bytes: no text, invalid sequences included; may be cut anywhere.
  [[nodiscard]] virtual bool takes_any_bytes() const { return false; }
};

struct TokenizerOptions {
  // The contents of special tokens in the text are those tokens, as the reference library takes
  // them by default; else ordinary text.
  bool parse_special_tokens = true;
};

struct LoadedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  // "byte-level BPE", "SentencePiece", "bytes".
  std::string kind;
  // The file; "bytes" without one.
  std::string path;
  // Of the bytes of the files that were read.
  std::uint64_t hash = 0;
};

// `path`: "bytes"; a tokenizer.json or SentencePiece model; or a folder with tokenizer.json or
// tokenizer.model.
//   NOT_FOUND, PERMISSION_DENIED  as the system says
//   INVALID_ARGUMENT              broken; names the file and what is wrong
//   UNIMPLEMENTED                 a feature that would be needed; names it
absl::StatusOr<LoadedTokenizer> LoadTokenizer(const std::string& path,
                                              const TokenizerOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_TOKENIZER_H_
