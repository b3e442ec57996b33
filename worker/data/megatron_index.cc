#include "worker/data/megatron_index.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/byte_stream.h"

namespace fsdp {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kVersion = 1;
constexpr std::int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr std::size_t kPieceEntries = 1 << 16;

// By code.
constexpr std::array<const char*, 9> kTypes = {"",      "uint8",   "int8",    "int16", "int32",
                                               "int64", "float64", "float32", "uint16"};

struct Header {
  int token_bytes = 0;
  std::int64_t num_sequences = 0;
  std::int64_t num_entries = 0;  // of the list of documents: one more than these
};

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", what, ": it was cut or damaged, or is of another .bin; make the pair again"));
}

absl::StatusOr<int> TokenBytes(const std::string& path, unsigned code) {
  if (code == 8) return 2;
  if (code == 4) return 4;
  const char* name = code < kTypes.size() ? kTypes[code] : "";
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: its ids are of type %d (%s); 8 (uint16) and 4 (int32) are read: make "
                      "the pair again with one of them",
                      path, code, *name == '\0' ? "unknown" : name));
}

// Sequential entries of one of the index's lists.
template <typename Entry>
class List {
 public:
  List(const ByteStream& stream, std::int64_t offset, std::int64_t count, ContentHash* hash)
      : stream_(stream), offset_(offset), left_(count), hash_(hash) {}

  [[nodiscard]] bool done() const { return left_ == 0 && at_ == piece_.size(); }
  absl::StatusOr<std::int64_t> Next() {
    if (at_ == piece_.size()) RETURN_IF_ERROR(ReadPiece());
    return static_cast<std::int64_t>(piece_[at_++]);
  }

 private:
  absl::Status ReadPiece() {
    piece_.resize(static_cast<std::size_t>(std::min<std::int64_t>(left_, kPieceEntries)));
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(piece_));
    RETURN_IF_ERROR(stream_.ReadAt(offset_, bytes));
    hash_->Add(bytes);
    offset_ += static_cast<std::int64_t>(bytes.size());
    left_ -= static_cast<std::int64_t>(piece_.size());
    at_ = 0;
    return absl::OkStatus();
  }

  const ByteStream& stream_;
  std::int64_t offset_;
  std::int64_t left_;  // beyond the piece
  ContentHash* hash_;
  std::vector<Entry> piece_;
  std::size_t at_ = 0;
};

absl::StatusOr<Header> ReadHeader(const ByteStream& stream, ContentHash* hash) {
  const std::string& path = stream.path();
  std::array<std::byte, kHeaderBytes> bytes{};
  const std::int64_t size = stream.size_bytes();
  const auto count = static_cast<std::size_t>(std::min(size, kHeaderBytes));
  RETURN_IF_ERROR(stream.ReadAt(0, std::span(bytes).first(count)));
  if (count < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is no Megatron index (it does not begin with \"MMIDIDX\"): it was cut or damaged; "
        "make the pair again, or move it away to have the .bin read without it"));
  }
  if (size < kHeaderBytes) {
    return Damaged(
        path, absl::StrFormat("it has %d bytes, fewer than its header's %d", size, kHeaderBytes));
  }
  hash->Add(bytes);
  std::uint64_t version = 0;
  std::uint64_t sequences = 0;
  std::uint64_t entries = 0;
  std::memcpy(&version, bytes.data() + 9, 8);
  std::memcpy(&sequences, bytes.data() + 18, 8);
  std::memcpy(&entries, bytes.data() + 26, 8);
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: a Megatron index of version %d; version 1 is read: make the pair "
                        "again in that",
                        path, version));
  }
  Header header;
  ASSIGN_OR_RETURN(header.token_bytes, TokenBytes(path, std::to_integer<unsigned>(bytes[17])));
  const auto room = static_cast<std::uint64_t>(size - kHeaderBytes);
  // Neither count can be above what there is room for, so nothing overflows.
  const bool fits = sequences <= room / 12 && entries <= (room - sequences * 12) / 8;
  const std::uint64_t spare = fits ? room - sequences * 12 - entries * 8 : 0;
  if (fits && spare == sequences && sequences > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is the index of a multimodal data set, which is not read; give one of text"));
  }
  if (!fits || spare != 0) {
    return Damaged(path, absl::StrFormat("its header says %d sequences and %d entries of "
                                         "documents, and %d bytes follow it",
                                         sequences, entries, room));
  }
  header.num_sequences = static_cast<std::int64_t>(sequences);
  header.num_entries = static_cast<std::int64_t>(entries);
  return header;
}

// The walk over all lists at once.
class Walk {
 public:
  Walk(const ByteStream& stream, const Header& header, ContentHash* hash)
      : path_(stream.path()),
        header_(header),
        sizes_(stream, kHeaderBytes, header.num_sequences, hash),
        pointers_(stream, kHeaderBytes + header.num_sequences * 4, header.num_sequences, hash),
        documents_(stream, kHeaderBytes + header.num_sequences * 12, header.num_entries, hash) {}

  absl::Status Run(bool want_documents, std::int64_t bin_bytes, MegatronIndex* index) {
    const std::int64_t width = header_.token_bytes;
    for (std::int64_t sequence = 0; sequence < header_.num_sequences; ++sequence) {
      RETURN_IF_ERROR(BeginDocuments(sequence, want_documents, index));
      ASSIGN_OR_RETURN(const std::int64_t size, sizes_.Next());
      ASSIGN_OR_RETURN(const std::int64_t pointer, pointers_.Next());
      if (size < 0 || pointer != tokens_ * width) {
        return Damaged(path_, absl::StrFormat("sequence %d has %d tokens from byte %d of the .bin, "
                                              "and those before it end at %d",
                                              sequence, size, pointer, tokens_ * width));
      }
      tokens_ += size;
    }
    RETURN_IF_ERROR(BeginDocuments(header_.num_sequences, false, index));
    if (entry_ != header_.num_sequences) {
      return Damaged(path_, absl::StrFormat("its documents end at sequence %d of %d", entry_,
                                            header_.num_sequences));
    }
    if (tokens_ * width != bin_bytes) {
      return Damaged(path_, absl::StrFormat("its sequences take %d bytes, and the .bin has %d",
                                            tokens_ * width, bin_bytes));
    }
    index->num_documents = std::max<std::int64_t>(0, header_.num_entries - 1);
    return absl::OkStatus();
  }

 private:
  // Takes the entries up to `sequence`.
  absl::Status BeginDocuments(std::int64_t sequence, bool want, MegatronIndex* index) {
    for (; has_entry_ || !documents_.done(); has_entry_ = false) {
      if (!has_entry_) RETURN_IF_ERROR(ReadEntry());
      if (entry_ > sequence) return absl::OkStatus();
      std::vector<std::int64_t>& starts = index->document_starts;
      if (want && (starts.empty() || starts.back() != tokens_)) starts.push_back(tokens_);
    }
    return absl::OkStatus();
  }

  // The first is 0, none is below the one before.
  absl::Status ReadEntry() {
    ASSIGN_OR_RETURN(const std::int64_t entry, documents_.Next());
    if (entry < entry_ || entry > header_.num_sequences || (first_ && entry != 0)) {
      return Damaged(path_, absl::StrFormat("a document begins at sequence %d of %d, behind one "
                                            "that begins at %d",
                                            entry, header_.num_sequences, entry_));
    }
    entry_ = entry;
    has_entry_ = true;
    first_ = false;
    return absl::OkStatus();
  }

  const std::string& path_;
  const Header header_;
  List<std::int32_t> sizes_;
  List<std::int64_t> pointers_;
  List<std::int64_t> documents_;
  std::int64_t tokens_ = 0;  // of the sequences so far
  std::int64_t entry_ = 0;   // the newest of documents_
  bool has_entry_ = false;   // ... and it is not taken yet
  bool first_ = true;
};

}  // namespace

absl::StatusOr<MegatronIndex> ReadMegatronIndex(const std::string& path, std::int64_t bin_bytes,
                                                bool want_documents, ContentHash* hash) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream, ByteStream::Open(path, {{path}}));
  ASSIGN_OR_RETURN(const Header header, ReadHeader(*stream, hash));
  MegatronIndex index;
  index.token_bytes = header.token_bytes;
  RETURN_IF_ERROR(Walk(*stream, header, hash).Run(want_documents, bin_bytes, &index));
  return index;
}

}  // namespace fsdp
