#ifndef FSDPCTL_WORKER_DATA_STREAM_SOURCE_H_
#define FSDPCTL_WORKER_DATA_STREAM_SOURCE_H_

// Next-token sequences of a range of a byte stream: text (1 byte a token) or token ids (2 or 4).

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/batch_source.h"
#include "worker/data/byte_stream.h"

namespace fsdp {

struct StreamSourceOptions {
  std::shared_ptr<const ByteStream> stream;
  int token_bytes = 1;  // 1, 2 or 4
  std::int64_t first_token = 0;
  std::int64_t num_tokens = 0;
  std::int64_t sequence_length = 0;
  std::int64_t vocab_size = 0;
  // Tokens of the stream, ascending, that documents begin with. Null: not known.
  std::shared_ptr<const std::vector<std::int64_t>> document_starts;
  // Such a token is no target: nothing before it tells of it.
  bool mask_document_starts = false;
  bool shuffle = false;
  std::uint64_t seed = 0;
  DataIdentity identity;
};

class StreamSource final : public BatchSource {
 public:
  // The range lies in the stream and holds at least one sequence.
  explicit StreamSource(StreamSourceOptions options);

  absl::Status Read(std::int64_t position, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets,
                    std::span<std::int32_t> document_begins) override;
  [[nodiscard]] std::int64_t sequence_length() const override { return options_.sequence_length; }
  [[nodiscard]] std::int64_t num_sequences() const override { return num_sequences_; }
  [[nodiscard]] std::int64_t vocab_size() const override { return options_.vocab_size; }
  [[nodiscard]] const DataIdentity& identity() const override { return options_.identity; }

  [[nodiscard]] std::int64_t num_tokens() const { return options_.num_tokens; }
  // All tokens of the split, in file order.
  [[nodiscard]] absl::StatusOr<std::vector<std::uint32_t>> ReadAll() const;

 private:
  // The sequence at `position`: its number in file order.
  [[nodiscard]] std::int64_t SequenceAt(std::int64_t position) const;
  // Of the sequence whose tokens begin at `first` of the split.
  void MaskTargets(std::int64_t first, std::span<std::int32_t> targets) const;
  void FindDocuments(std::int64_t first, std::span<std::int32_t> document_begins) const;
  // out[i] = token first + i of the split.
  absl::Status ReadTokens(std::int64_t first, std::span<std::uint32_t> out) const;

  StreamSourceOptions options_;
  std::int64_t num_sequences_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_STREAM_SOURCE_H_
