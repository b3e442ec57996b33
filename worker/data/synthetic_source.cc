#include "worker/data/synthetic_source.h"

#include <algorithm>
#include <vector>

#include "proto/support/status.h"
#include "worker/data/content_hash.h"
#include "worker/device/philox.h"

namespace fsdp {
namespace {

constexpr std::uint32_t kTokenStream = 0;
constexpr std::uint32_t kTargetStream = 1;

}  // namespace

SyntheticSource::SyntheticSource(const DataOptions& options) : options_(options) {
  ContentHash hash;
  hash.AddNumber(options.seed);
  hash.AddNumber(static_cast<std::uint64_t>(options.vocab_size));
  hash.AddNumber(static_cast<std::uint64_t>(options.sequence_length));
  hash.AddNumber(static_cast<std::uint64_t>(options.targets));
  identity_.fingerprint = hash.Finish();
}

void SyntheticSource::Fill(std::int64_t position, std::uint32_t stream,
                           std::span<std::int32_t> out) const {
  const auto vocab = static_cast<std::uint64_t>(options_.vocab_size);
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const PhiloxBlock block = Philox4x32(
        {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
         static_cast<std::uint32_t>(i / 4), stream},
        options_.seed);
    for (std::size_t j = 0; j < std::min<std::size_t>(4, out.size() - i); ++j) {
      // The high half of a 32 x 32 product: uniform to within vocab / 2^32.
      out[i + j] = static_cast<std::int32_t>((block[j] * vocab) >> 32);
    }
  }
}

absl::Status SyntheticSource::Read(std::int64_t position, std::span<std::int32_t> tokens,
                                   std::span<std::int32_t> targets,
                                   std::span<std::int32_t> document_begins) {
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  RETURN_IF_ERROR(CheckRead(position, tokens.size(), targets.size(), document_begins.size(),
                            sequence_length()));
  std::fill(document_begins.begin(), document_begins.end(), 0);
  std::vector<std::int32_t> sequence(length + 1);
  for (std::size_t begin = 0; begin < tokens.size(); begin += length, ++position) {
    Fill(position, kTokenStream, sequence);
    std::copy_n(sequence.begin(), length, tokens.begin() + static_cast<std::ptrdiff_t>(begin));
    if (options_.targets == TargetRule::kIndependent) {
      Fill(position, kTargetStream, targets.subspan(begin, length));
    } else {
      std::copy_n(sequence.begin() + 1, length,
                  targets.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }
  return absl::OkStatus();
}

}  // namespace fsdp
