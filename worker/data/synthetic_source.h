#ifndef FSDPCTL_WORKER_DATA_SYNTHETIC_SOURCE_H_
#define FSDPCTL_WORKER_DATA_SYNTHETIC_SOURCE_H_

// Uniform random tokens, a function of (seed, position) alone. Endless.

#include "worker/data/batch_source.h"
#include "worker/data/data_set.h"

namespace fsdp {

class SyntheticSource final : public BatchSource {
 public:
  // Options are valid.
  explicit SyntheticSource(const DataOptions& options);

  absl::Status Read(std::int64_t position, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets,
                    std::span<std::int32_t> document_begins) override;
  [[nodiscard]] std::int64_t sequence_length() const override { return options_.sequence_length; }
  [[nodiscard]] std::int64_t num_sequences() const override { return 0; }
  [[nodiscard]] std::int64_t vocab_size() const override { return options_.vocab_size; }
  [[nodiscard]] const DataIdentity& identity() const override { return identity_; }

 private:
  // out[i] = element i of sequence `position` of one of the two streams.
  void Fill(std::int64_t position, std::uint32_t stream, std::span<std::int32_t> out) const;

  DataOptions options_;
  DataIdentity identity_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_SYNTHETIC_SOURCE_H_
