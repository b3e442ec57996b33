#include "worker/data/stream_source.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/permutation.h"

namespace fsdp {

StreamSource::StreamSource(StreamSourceOptions options)
    : options_(std::move(options)),
      num_sequences_((options_.num_tokens - 1) / options_.sequence_length) {}

std::int64_t StreamSource::SequenceAt(std::int64_t position) const {
  const std::int64_t pass = position / num_sequences_;
  const std::int64_t index = position % num_sequences_;
  if (!options_.shuffle) return index;
  return Permutation(num_sequences_, PassKey(options_.seed, pass))(index);
}

absl::Status StreamSource::ReadTokens(std::int64_t first, std::span<std::uint32_t> out) const {
  const std::int64_t width = options_.token_bytes;
  const std::int64_t offset = (options_.first_token + first) * width;
  std::vector<std::byte> bytes(out.size() * static_cast<std::size_t>(width));
  RETURN_IF_ERROR(options_.stream->ReadAt(offset, bytes));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t token = 0;  // little-endian, as the file
    std::memcpy(&token, bytes.data() + i * static_cast<std::size_t>(width),
                static_cast<std::size_t>(width));
    if (token >= static_cast<std::uint64_t>(options_.vocab_size)) {
      return absl::DataLossError(absl::StrFormat(
          "%s: token %d is not below the vocabulary's %d; it was when training began",
          options_.stream->Describe(offset + static_cast<std::int64_t>(i) * width), token,
          options_.vocab_size));
    }
    out[i] = token;
  }
  return absl::OkStatus();
}

void StreamSource::MaskTargets(std::int64_t first, std::span<std::int32_t> targets) const {
  if (!options_.mask_document_starts) return;
  const std::vector<std::int64_t>& masked = *options_.document_starts;
  const std::int64_t begin = options_.first_token + first + 1;  // the target of the first token
  const std::int64_t end = begin + options_.sequence_length;
  for (auto it = std::lower_bound(masked.begin(), masked.end(), begin);
       it != masked.end() && *it < end; ++it) {
    targets[static_cast<std::size_t>(*it - begin)] = kNoTarget;
  }
}

void StreamSource::FindDocuments(std::int64_t first,
                                 std::span<std::int32_t> document_begins) const {
  std::fill(document_begins.begin(), document_begins.end(), 0);
  if (options_.document_starts == nullptr) return;
  const std::vector<std::int64_t>& starts = *options_.document_starts;
  const std::int64_t begin = options_.first_token + first;
  const std::int64_t end = begin + static_cast<std::int64_t>(document_begins.size());
  for (auto it = std::upper_bound(starts.begin(), starts.end(), begin);
       it != starts.end() && *it < end; ++it) {
    const std::int64_t at = *it - begin;
    const std::int64_t next = std::next(it) == starts.end() ? end : std::min(*std::next(it), end);
    std::fill_n(document_begins.begin() + at, next - *it, static_cast<std::int32_t>(at));
  }
}

absl::Status StreamSource::Read(std::int64_t position, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets,
                                std::span<std::int32_t> document_begins) {
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  RETURN_IF_ERROR(CheckRead(position, tokens.size(), targets.size(), document_begins.size(),
                            sequence_length()));
  RETURN_IF_ERROR(options_.stream->CheckUnchanged());
  std::vector<std::uint32_t> sequence(length + 1);
  for (std::size_t begin = 0; begin < tokens.size(); begin += length, ++position) {
    const std::int64_t first = SequenceAt(position) * options_.sequence_length;
    RETURN_IF_ERROR(ReadTokens(first, sequence));
    for (std::size_t i = 0; i < length; ++i) {
      tokens[begin + i] = static_cast<std::int32_t>(sequence[i]);
      targets[begin + i] = static_cast<std::int32_t>(sequence[i + 1]);
    }
    MaskTargets(first, targets.subspan(begin, length));
    if (!document_begins.empty()) FindDocuments(first, document_begins.subspan(begin, length));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::uint32_t>> StreamSource::ReadAll() const {
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(options_.num_tokens));
  constexpr std::size_t kChunk = 1 << 20;
  for (std::size_t first = 0; first < tokens.size(); first += kChunk) {
    const std::size_t count = std::min(kChunk, tokens.size() - first);
    RETURN_IF_ERROR(
        ReadTokens(static_cast<std::int64_t>(first), std::span(tokens).subspan(first, count)));
  }
  return tokens;
}

}  // namespace fsdp
