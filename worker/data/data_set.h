#ifndef FSDPCTL_WORKER_DATA_DATA_SET_H_
#define FSDPCTL_WORKER_DATA_DATA_SET_H_

// A job's data: where training and validation sequences come from, proven at start.
//
// A sequence of next-token data is sequence_length + 1 tokens, of which neighbours share one:
// sequence i begins at token i * sequence_length of its split, so N tokens hold
// (N - 1) / sequence_length sequences. The last validation_fraction of the tokens (rounded down) is
// the validation split; no sequence crosses the border.
//
// OpenData reads all of a file once, to hash it and to check every id: about a second per 3 GB of
// cached file, on each rank.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/batch_source.h"
#include "worker/data/entropy.h"

namespace fsdp {

enum class SourceKind : std::uint8_t {
  kSynthetic,  // uniform random tokens; has no validation split
  kTokens,     // little-endian ids, raw or with llm.c's header (token_format.h)
  kText,       // every byte is a token
};
enum class TargetRule : std::uint8_t {
  kNextToken,
  kIndependent,  // synthetic only
};

struct DataOptions {
  SourceKind source = SourceKind::kSynthetic;
  std::string path;                  // of tokens and text
  int token_bytes = 2;               // of raw tokens: 2 (uint16) or 4 (uint32)
  std::int64_t sequence_length = 0;  // tokens
  double validation_fraction = 0;    // 0..0.5
  std::string validation_path;       // instead of the fraction
  bool shuffle = true;               // training only; validation is read in order
  TargetRule targets = TargetRule::kNextToken;
  std::int64_t vocab_size = 0;  // of the model: ids must be below
  std::uint64_t seed = 0;       // of the order, and of synthetic tokens
};

struct DataSet {
  std::unique_ptr<BatchSource> train;
  std::unique_ptr<BatchSource> validation;  // null: none asked for
};

//   NOT_FOUND, PERMISSION_DENIED  the file
//   INVALID_ARGUMENT   it is empty, or a split is too short for one sequence; a file's size is no
//                      multiple of a token's; ReadTokenLayout refuses it, or files differ in their
//                      tokens' width; options that contradict each other
//   DATA_LOSS          an id is not below vocab_size: names file, byte and value
absl::StatusOr<DataSet> OpenData(const DataOptions& options);

// Of the tokens of a split; nothing for synthetic data and for splits of more than
// kMaxEntropyTokens (its cost is time and 12 bytes a token).
inline constexpr std::int64_t kMaxEntropyTokens = 64 << 20;
absl::StatusOr<std::optional<EntropyStats>> SplitEntropy(const BatchSource& split);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_DATA_SET_H_
