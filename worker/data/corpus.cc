#include "worker/data/corpus.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/token_format.h"

namespace fsdp {
namespace {

constexpr std::size_t kScanBytes = 1 << 20;

absl::Status CheckSizes(const ByteStream& stream, std::int64_t token_bytes) {
  if (stream.size_bytes() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(stream.path(), " is empty; give a file with data"));
  }
  for (const ByteStream::File& file : stream.files()) {
    if (file.size_bytes % token_bytes != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has %d bytes, which is no multiple of the %d of a token: it was cut, or it is not a "
          "raw token file, or data.tokenDtype is wrong",
          file.path, file.size_bytes, token_bytes));
    }
  }
  return absl::OkStatus();
}

// Skips headers; the width of a token, the same in all files.
absl::StatusOr<int> SkipHeaders(const CorpusOptions& options, ByteStream& stream) {
  if (options.source == SourceKind::kText) return 1;
  std::vector<std::int64_t> header_bytes;
  int token_bytes = 0;
  for (const ByteStream::File& file : stream.files()) {
    ASSIGN_OR_RETURN(const TokenLayout layout,
                     ReadTokenLayout(stream, file, options.raw_token_bytes));
    if (token_bytes != 0 && layout.token_bytes != token_bytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s has tokens of %d bytes, %s of %d: a path must name files of one kind",
                          file.path, layout.token_bytes, stream.files().front().path, token_bytes));
    }
    token_bytes = layout.token_bytes;
    header_bytes.push_back(layout.header_bytes);
  }
  stream.SkipHeaders(header_bytes);
  return token_bytes;
}

template <typename Token>
absl::Status CheckIds(const ByteStream& stream, std::int64_t offset,
                      std::span<const std::byte> bytes, std::int64_t vocab_size) {
  const std::size_t count = bytes.size() / sizeof(Token);
  for (std::size_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, bytes.data() + i * sizeof(Token), sizeof(Token));
    if (token >= static_cast<std::uint64_t>(vocab_size)) {
      return absl::DataLossError(absl::StrFormat(
          "%s: token id %d is not below model.vocabSize %d: the file was made with another "
          "tokenizer, or data.tokenDtype is wrong, or it is not a token file",
          stream.Describe(offset + static_cast<std::int64_t>(i * sizeof(Token))), token,
          vocab_size));
    }
  }
  return absl::OkStatus();
}

// One walk over the bytes: every id is checked, `hash` takes everything.
absl::Status Scan(const ByteStream& stream, int token_bytes, std::int64_t vocab_size,
                  ContentHash* hash) {
  std::vector<std::byte> chunk(kScanBytes);
  for (std::int64_t offset = 0; offset < stream.size_bytes();) {
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(kScanBytes, stream.size_bytes() - offset));
    const std::span<std::byte> bytes = std::span(chunk).first(count);
    RETURN_IF_ERROR(stream.ReadAt(offset, bytes));
    if (token_bytes == 2)
      RETURN_IF_ERROR(CheckIds<std::uint16_t>(stream, offset, bytes, vocab_size));
    if (token_bytes == 4)
      RETURN_IF_ERROR(CheckIds<std::uint32_t>(stream, offset, bytes, vocab_size));
    hash->Add(bytes);
    offset += static_cast<std::int64_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<Corpus> Open(const CorpusOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream, ByteStream::Open(options.path));
  ASSIGN_OR_RETURN(const int token_bytes, SkipHeaders(options, *stream));
  RETURN_IF_ERROR(CheckSizes(*stream, token_bytes));
  return Corpus{stream, token_bytes};
}

}  // namespace

absl::StatusOr<Corpus> OpenCorpus(const CorpusOptions& options) {
  absl::StatusOr<Corpus> corpus = Open(options);
  if (!corpus.ok()) return Annotate(corpus.status(), options.field);
  return corpus;
}

absl::Status ScanCorpus(const CorpusOptions& options, const Corpus& corpus, ContentHash* hash) {
  return Annotate(Scan(*corpus.stream, corpus.token_bytes, options.vocab_size, hash),
                  options.field);
}

}  // namespace fsdp
