#include "proto/support/recording_pieces.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

constexpr std::size_t kLengthBytes = 4;

std::size_t LengthAt(std::string_view bytes) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return length;
}

void AppendCounter(const v1::ProfileCounter& more, v1::RankProfile* recording) {
  for (v1::ProfileCounter& counter : *recording->mutable_counters()) {
    if (counter.name() != more.name()) continue;
    counter.mutable_time_ns()->MergeFrom(more.time_ns());
    counter.mutable_values()->MergeFrom(more.values());
    return;
  }
  *recording->add_counters() = more;
}

void Append(v1::RankProfile piece, v1::RankProfile* recording) {
  for (const v1::ProfileCounter& counter : piece.counters()) AppendCounter(counter, recording);
  piece.clear_counters();
  if (!piece.families().empty()) recording->clear_families();
  recording->MergeFrom(piece);
}

}  // namespace

std::string PiecesPath(const std::string& path) { return absl::StrCat(path, ".pieces"); }

std::string RecordingPiece(const v1::RankProfile& piece) {
  std::string bytes(kLengthBytes, '\0');
  piece.AppendToString(&bytes);
  const std::size_t length = bytes.size() - kLengthBytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes[i] = static_cast<char>((length >> (8 * i)) & 0xff);
  }
  return bytes;
}

absl::StatusOr<v1::RankProfile> JoinRecordingPieces(std::string_view bytes) {
  v1::RankProfile recording;
  int pieces = 0;
  while (bytes.size() >= kLengthBytes) {
    const std::size_t length = LengthAt(bytes);
    bytes.remove_prefix(kLengthBytes);
    v1::RankProfile piece;
    if (length > bytes.size() || !piece.ParseFromArray(bytes.data(), static_cast<int>(length))) {
      break;
    }
    bytes.remove_prefix(length);
    Append(std::move(piece), &recording);
    ++pieces;
  }
  if (pieces == 0) return absl::DataLossError("there is no whole piece of a recording");
  auto& spans = *recording.mutable_spans();
  std::stable_sort(spans.pointer_begin(), spans.pointer_end(), [](const auto* a, const auto* b) {
    return std::pair(a->track(), a->begin_ns()) < std::pair(b->track(), b->begin_ns());
  });
  return recording;
}

}  // namespace fsdp
