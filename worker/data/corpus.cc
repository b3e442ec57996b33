#include "worker/data/corpus.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/data_files.h"
#include "worker/data/megatron_index.h"
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

// What tells tokens from headers in each file; `index_hash` takes Megatron's indices.
absl::StatusOr<std::vector<TokenLayout>> ReadLayouts(const CorpusOptions& options,
                                                     const std::vector<DataFile>& files,
                                                     const ByteStream& stream,
                                                     ContentHash* index_hash) {
  std::vector<TokenLayout> layouts;
  for (std::size_t i = 0; i < files.size(); ++i) {
    TokenLayout layout;
    if (files[i].index.empty()) {
      ASSIGN_OR_RETURN(layout, ReadTokenLayout(stream, stream.files()[i], options.raw_token_bytes));
    } else {
      ASSIGN_OR_RETURN(const MegatronIndex index,
                       ReadMegatronIndex(files[i].index, stream.files()[i].size_bytes,
                                         /*want_documents=*/false, index_hash));
      layout.token_bytes = index.token_bytes;
    }
    if (i > 0 && layout.token_bytes != layouts[0].token_bytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has tokens of %d bytes, %s of %d: a path must name files of one kind", files[i].path,
          layout.token_bytes, files[0].path, layouts[0].token_bytes));
    }
    layouts.push_back(layout);
  }
  return layouts;
}

std::vector<std::int64_t> HeaderBytes(const std::vector<TokenLayout>& layouts) {
  std::vector<std::int64_t> header_bytes;
  header_bytes.reserve(layouts.size());
  for (const TokenLayout& layout : layouts) header_bytes.push_back(layout.header_bytes);
  return header_bytes;
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
  const bool tokens = options.source == SourceKind::kTokens;
  ASSIGN_OR_RETURN(const std::vector<DataFile> files,
                   FindDataFiles(options.path, tokens ? FilesOf::kTokens : FilesOf::kText));
  std::vector<std::string> paths;
  bool indexed = false;
  for (const DataFile& file : files) {
    paths.push_back(file.path);
    indexed = indexed || !file.index.empty();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream, ByteStream::Open(options.path, paths));
  Corpus corpus;
  corpus.stream = stream;
  if (tokens) {
    ContentHash index_hash;
    ASSIGN_OR_RETURN(const std::vector<TokenLayout> layouts,
                     ReadLayouts(options, files, *stream, &index_hash));
    corpus.token_bytes = layouts.front().token_bytes;
    if (indexed) corpus.index_hash = index_hash.Finish();
    stream->SkipHeaders(HeaderBytes(layouts));
  }
  RETURN_IF_ERROR(CheckSizes(*stream, corpus.token_bytes));
  return corpus;
}

}  // namespace

absl::StatusOr<Corpus> OpenCorpus(const CorpusOptions& options) {
  absl::StatusOr<Corpus> corpus = Open(options);
  if (!corpus.ok()) return Annotate(corpus.status(), options.field);
  return corpus;
}

absl::Status ScanCorpus(const CorpusOptions& options, const Corpus& corpus, ContentHash* hash) {
  if (corpus.index_hash.has_value()) hash->AddNumber(*corpus.index_hash);
  return Annotate(Scan(*corpus.stream, corpus.token_bytes, options.vocab_size, hash),
                  options.field);
}

}  // namespace fsdp
