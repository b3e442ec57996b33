#ifndef FSDPCTL_WORKER_DATA_BATCH_SOURCE_H_
#define FSDPCTL_WORKER_DATA_BATCH_SOURCE_H_

// Training data as one endless, numbered list of sequences. Position p is the same sequence on
// every rank, at any world size and after any resume: p / num_sequences is the pass, and within a
// pass the order is a permutation keyed by (seed, pass). So the data position of a job is one
// integer.
//
// Thread rule: one thread. Lifetime: spans returned by Read point into the caller's buffers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace fsdp {

// The target of a token that has none: what the loss leaves out (kIgnoreTarget of device/ops.h).
inline constexpr std::int32_t kNoTarget = -100;

// What every rank must see alike before an epoch commits.
struct DataIdentity {
  std::string path;  // empty for synthetic data
  std::int64_t size_bytes = 0;
  std::uint64_t fingerprint = 0;  // of the bytes, the split and the indexing rules
};

// What every Read asks of its arguments.
//   INVALID_ARGUMENT  position < 0, other targets (or document begins, where there are any) than
//                     tokens, or no whole sequences
absl::Status CheckRead(std::int64_t position, std::size_t num_tokens, std::size_t num_targets,
                       std::size_t num_begins, std::int64_t sequence_length);

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Writes sequences [position, position + n) where n = tokens.size() / sequence_length(): their
  // inputs to `tokens` and their targets (kNoTarget where there is none) to `targets`,
  // both [n, S]. `document_begins`, where not empty, gets of each token the index within its
  // sequence at which its document begins; where documents are not known a sequence is one.
  //   DATA_LOSS  the file changed or became unreadable since it was opened; names path and offset
  virtual absl::Status Read(std::int64_t position, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets,
                            std::span<std::int32_t> document_begins) = 0;
  absl::Status Read(std::int64_t position, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) {
    return Read(position, tokens, targets, {});
  }

  [[nodiscard]] virtual std::int64_t sequence_length() const = 0;
  // Sequences in one pass; 0 = endless (synthetic).
  [[nodiscard]] virtual std::int64_t num_sequences() const = 0;
  // Every token id is in [0, vocab_size()).
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] virtual const DataIdentity& identity() const = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_BATCH_SOURCE_H_
