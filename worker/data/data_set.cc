#include "worker/data/data_set.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/data/byte_stream.h"
#include "worker/data/content_hash.h"
#include "worker/data/stream_source.h"
#include "worker/data/synthetic_source.h"
#include "worker/data/token_format.h"

namespace fsdp {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kByteVocabulary = 256;
constexpr std::size_t kScanBytes = 1 << 20;
// Changes when the meaning of a position does.
constexpr std::uint64_t kIndexingVersion = 1;

absl::Status CheckOptions(const DataOptions& options) {
  if (options.sequence_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.sequenceLength is %d; give at least 1", options.sequence_length));
  }
  if (options.vocab_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model.vocabSize is %d; give at least 1", options.vocab_size));
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.validationFraction is %g; it lies in 0..0.5", options.validation_fraction));
  }
  if (!options.validation_path.empty() && options.validation_fraction > 0) {
    return absl::InvalidArgumentError(
        "data.validationPath and data.validationFraction exclude each other; give one");
  }
  if (options.source == SourceKind::kSynthetic) return absl::OkStatus();
  if (options.path.empty()) {
    return absl::InvalidArgumentError("data.path is empty; name the file to train on");
  }
  if (options.targets == TargetRule::kIndependent) {
    return absl::InvalidArgumentError(
        "data.targets is independent; that is for synthetic data only: use next_token");
  }
  if (options.source == SourceKind::kTokens && options.token_bytes != 2 &&
      options.token_bytes != 4) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tokens of %d bytes; use uint16 or uint32", options.token_bytes));
  }
  if (options.source == SourceKind::kText && options.vocab_size < kByteVocabulary) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "model.vocabSize is %d; text by bytes needs at least 256", options.vocab_size));
  }
  return absl::OkStatus();
}

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
absl::StatusOr<int> SkipHeaders(const DataOptions& options, ByteStream& stream) {
  if (options.source == SourceKind::kText) return 1;
  std::vector<std::int64_t> header_bytes;
  int token_bytes = 0;
  for (const ByteStream::File& file : stream.files()) {
    ASSIGN_OR_RETURN(const TokenLayout layout, ReadTokenLayout(stream, file, options.token_bytes));
    if (token_bytes != 0 && layout.token_bytes != token_bytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has tokens of %d bytes, %s of %d: data.path must name files of one kind", file.path,
          layout.token_bytes, stream.files().front().path, token_bytes));
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

absl::StatusOr<std::unique_ptr<BatchSource>> MakeSplit(StreamSourceOptions options,
                                                       const char* which) {
  if (options.num_tokens < options.sequence_length + 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: the %s split has %d tokens; one sequence of data.sequenceLength %d needs %d: give "
        "more data, shorter sequences or another data.validationFraction",
        options.stream->path(), which, options.num_tokens, options.sequence_length,
        options.sequence_length + 1));
  }
  return std::make_unique<StreamSource>(std::move(options));
}

// A path, opened: what is behind the files' headers.
struct OpenedPath {
  std::shared_ptr<const ByteStream> stream;
  int token_bytes = 1;
};

absl::StatusOr<OpenedPath> OpenPath(const DataOptions& options, const std::string& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream, ByteStream::Open(path));
  ASSIGN_OR_RETURN(const int token_bytes, SkipHeaders(options, *stream));
  RETURN_IF_ERROR(CheckSizes(*stream, token_bytes));
  return OpenedPath{stream, token_bytes};
}

absl::StatusOr<DataSet> OpenStreams(const DataOptions& options) {
  ASSIGN_OR_RETURN(const OpenedPath opened, OpenPath(options, options.path));
  const auto& [stream, token_bytes] = opened;
  ContentHash hash;
  hash.AddNumber(kIndexingVersion);
  hash.AddNumber(static_cast<std::uint64_t>(token_bytes));
  hash.AddNumber(static_cast<std::uint64_t>(options.sequence_length));
  hash.AddNumber(std::bit_cast<std::uint64_t>(options.validation_fraction));
  hash.AddNumber(options.shuffle ? options.seed + 1 : 0);
  RETURN_IF_ERROR(Scan(*stream, token_bytes, options.vocab_size, &hash));
  OpenedPath validation_opened;
  if (!options.validation_path.empty()) {
    ASSIGN_OR_RETURN(validation_opened, OpenPath(options, options.validation_path));
    RETURN_IF_ERROR(
        Scan(*validation_opened.stream, validation_opened.token_bytes, options.vocab_size, &hash));
  }

  const std::int64_t num_tokens = stream->size_bytes() / token_bytes;
  const auto held_back = static_cast<std::int64_t>(
      std::floor(static_cast<double>(num_tokens) * options.validation_fraction));
  StreamSourceOptions train;
  train.stream = stream;
  train.token_bytes = token_bytes;
  train.num_tokens = num_tokens - held_back;
  train.sequence_length = options.sequence_length;
  train.vocab_size = options.source == SourceKind::kText ? kByteVocabulary : options.vocab_size;
  train.identity = {options.path, stream->size_bytes(), hash.Finish()};
  StreamSourceOptions validation = train;
  train.shuffle = options.shuffle;
  train.seed = options.seed;

  DataSet data;
  ASSIGN_OR_RETURN(data.train, MakeSplit(train, "training"));
  if (validation_opened.stream != nullptr) {
    validation.stream = validation_opened.stream;
    validation.token_bytes = validation_opened.token_bytes;
    validation.num_tokens = validation.stream->size_bytes() / validation.token_bytes;
    validation.identity.path = options.validation_path;
    validation.identity.size_bytes = validation.stream->size_bytes();
    ASSIGN_OR_RETURN(data.validation, MakeSplit(validation, "validation"));
  } else if (options.validation_fraction > 0) {
    validation.first_token = num_tokens - held_back;
    validation.num_tokens = held_back;
    ASSIGN_OR_RETURN(data.validation, MakeSplit(validation, "validation"));
  }
  return data;
}

}  // namespace

absl::StatusOr<DataSet> OpenData(const DataOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (options.source != SourceKind::kSynthetic) return OpenStreams(options);
  DataSet data;
  data.train = std::make_unique<SyntheticSource>(options);
  return data;
}

absl::StatusOr<std::optional<EntropyStats>> SplitEntropy(const BatchSource& split) {
  const auto* stream = dynamic_cast<const StreamSource*>(&split);
  if (stream == nullptr || stream->num_tokens() > kMaxEntropyTokens) {
    return std::optional<EntropyStats>();
  }
  ASSIGN_OR_RETURN(const std::vector<std::uint32_t> tokens, stream->ReadAll());
  return std::optional<EntropyStats>(ComputeEntropy(tokens));
}

}  // namespace fsdp
