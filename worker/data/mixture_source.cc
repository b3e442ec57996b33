#include "worker/data/mixture_source.h"

#include <algorithm>
#include <utility>

#include "proto/support/status.h"

namespace fsdp {

MixtureSource::MixtureSource(std::shared_ptr<const MixtureCycle> cycle,
                             std::vector<std::unique_ptr<BatchSource>> sources,
                             std::int64_t num_sequences, DataIdentity identity)
    : cycle_(std::move(cycle)),
      sources_(std::move(sources)),
      num_sequences_(num_sequences),
      identity_(std::move(identity)) {}

std::int64_t MixtureSource::sequence_length() const { return sources_.front()->sequence_length(); }

std::int64_t MixtureSource::vocab_size() const { return sources_.front()->vocab_size(); }

absl::Status MixtureSource::Read(std::int64_t position, std::span<std::int32_t> tokens,
                                 std::span<std::int32_t> targets,
                                 std::span<std::int32_t> document_begins) {
  const auto length = static_cast<std::size_t>(sequence_length());
  RETURN_IF_ERROR(CheckRead(position, tokens.size(), targets.size(), document_begins.size(),
                            sequence_length()));
  const auto end = position + static_cast<std::int64_t>(tokens.size() / length);
  std::vector<std::int32_t> source_tokens;
  std::vector<std::int32_t> source_targets;
  std::vector<std::int32_t> source_begins;
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    // What a source gives to consecutive positions is consecutive in it: one read, then spread.
    const std::int64_t first = cycle_->CountBefore(source, position);
    const std::int64_t after = cycle_->CountBefore(source, end);
    source_tokens.resize(static_cast<std::size_t>(after - first) * length);
    source_targets.resize(source_tokens.size());
    source_begins.resize(document_begins.empty() ? 0 : source_tokens.size());
    if (first == after) continue;
    RETURN_IF_ERROR(sources_[source]->Read(first, source_tokens, source_targets, source_begins));
    for (std::int64_t index = first; index < after; ++index) {
      const auto from =
          static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index - first) * length);
      const auto to = static_cast<std::ptrdiff_t>(
          static_cast<std::size_t>(cycle_->PositionOf({source, index}) - position) * length);
      std::copy_n(source_tokens.begin() + from, length, tokens.begin() + to);
      std::copy_n(source_targets.begin() + from, length, targets.begin() + to);
      if (document_begins.empty()) continue;
      std::copy_n(source_begins.begin() + from, length, document_begins.begin() + to);
    }
  }
  return absl::OkStatus();
}

}  // namespace fsdp
