#ifndef FSDPCTL_WORKER_DATA_DATA_SET_H_
#define FSDPCTL_WORKER_DATA_DATA_SET_H_

// A job's data: where training and validation sequences come from, proven at start.
//
// A sequence of next-token data is sequence_length + 1 tokens, of which neighbours share one:
// sequence i begins at token i * sequence_length of its split, so N tokens hold
// (N - 1) / sequence_length sequences. The last validation_fraction of the tokens (rounded down) is
// the validation split; no sequence crosses the border.
//
// A mixture draws sequences of several such sources by weight (worker/plan/mixture_cycle.h); each
// has its own split, order and passes. A pass over the mixture is as many sequences as its sources
// have together. Its validation split is drawn by the same weights, each source in order, until one
// of them has given all it has.
//
// OpenData reads all of a file once, to hash it and to check every id: about a second per 3 GB of
// cached file, on each rank.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/batch_source.h"
#include "worker/data/corpus.h"
#include "worker/data/entropy.h"
#include "worker/plan/mixture_cycle.h"

namespace fsdp {

enum class TargetRule : std::uint8_t {
  kNextToken,
  kIndependent,  // synthetic only
};

struct MixturePart {
  std::string name;  // for people; empty: the path
  std::string path;
  double weight = 0;
};

// The tokens of text, as the source kTokens reads them instead of the path that they were made of.
struct TokensOfText {
  std::string folder;
  std::uint64_t text_hash = 0;  // of the text: part of what each rank proves
};

struct DataOptions {
  SourceKind source = SourceKind::kSynthetic;
  std::map<std::string, TokensOfText> tokens_of_text;  // by path; all paths or none
  std::string path;                                    // of tokens and text
  std::vector<MixturePart> mixture;                    // instead of path
  int token_bytes = 2;                                 // of raw tokens: 2 (uint16) or 4 (uint32)
  std::int64_t sequence_length = 0;                    // tokens
  double validation_fraction = 0;                      // 0..0.5
  std::string validation_path;                         // instead of the fraction
  std::vector<MixturePart> evaluation_sets;            // without weights
  bool shuffle = true;                                 // training only; validation is read in order
  TargetRule targets = TargetRule::kNextToken;
  // The first token of a document is no target: the last of another stands before it.
  bool mask_document_ends = false;
  // Attention stays within a document: reads tell where each begins.
  bool reset_attention = false;
  std::optional<std::int64_t> document_separator;  // of token files without an index
  std::int64_t vocab_size = 0;                     // of the model: ids must be below
  std::uint64_t seed = 0;                          // of the order, and of synthetic tokens
};

// One of the paths that are trained on.
struct DataPart {
  std::string name;
  DataIdentity identity;           // of its bytes alone
  std::int64_t num_tokens = 0;     // of both splits
  std::int64_t num_sequences = 0;  // to train on
};

// A path that is only evaluated on, in order.
struct EvaluationSet {
  std::string name;
  std::unique_ptr<BatchSource> source;
};

struct DataSet {
  std::unique_ptr<BatchSource> train;
  std::unique_ptr<BatchSource> validation;  // null: none asked for
  std::vector<EvaluationSet> evaluation_sets;
  std::vector<DataPart> parts;                // of a mixture
  std::shared_ptr<const MixtureCycle> cycle;  // null: no mixture
};

// Errors of a file begin with the field that names it.
//   NOT_FOUND, PERMISSION_DENIED  the file
//   INVALID_ARGUMENT   as OpenCorpus; a split is too short for one sequence; sources of a mixture
//                      differ in their tokens' width; options that contradict each other
//   DATA_LOSS          an id is not below vocab_size: names file, byte and value
absl::StatusOr<DataSet> OpenData(const DataOptions& options);

// What the positions below `position` take from one of the parts.
struct PartUse {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  double passes = 0;  // over its sequences to train on
};
std::vector<PartUse> UseBefore(const DataSet& data, std::int64_t position);

// Of the tokens of a split; nothing for synthetic data, mixtures and splits of more than
// kMaxEntropyTokens (its cost is time and 12 bytes a token).
inline constexpr std::int64_t kMaxEntropyTokens = 64 << 20;
absl::StatusOr<std::optional<EntropyStats>> SplitEntropy(const BatchSource& split);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_DATA_SET_H_
