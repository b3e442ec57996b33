#ifndef FSDPCTL_WORKER_DATA_MIXTURE_SOURCE_H_
#define FSDPCTL_WORKER_DATA_MIXTURE_SOURCE_H_

// Several sources drawn by weight as one numbered list: position p is draw MixtureCycle::At(p), and
// each source counts its own sequences and passes.

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/data/batch_source.h"
#include "worker/plan/mixture_cycle.h"

namespace fsdp {

class MixtureSource final : public BatchSource {
 public:
  // One source for each of the cycle's, alike in sequence_length and vocab_size.
  MixtureSource(std::shared_ptr<const MixtureCycle> cycle,
                std::vector<std::unique_ptr<BatchSource>> sources, std::int64_t num_sequences,
                DataIdentity identity);

  absl::Status Read(std::int64_t position, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets,
                    std::span<std::int32_t> document_begins) override;
  [[nodiscard]] std::int64_t sequence_length() const override;
  [[nodiscard]] std::int64_t num_sequences() const override { return num_sequences_; }
  [[nodiscard]] std::int64_t vocab_size() const override;
  [[nodiscard]] const DataIdentity& identity() const override { return identity_; }

 private:
  std::shared_ptr<const MixtureCycle> cycle_;
  std::vector<std::unique_ptr<BatchSource>> sources_;
  std::int64_t num_sequences_;
  DataIdentity identity_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_MIXTURE_SOURCE_H_
