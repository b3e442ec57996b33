#include "worker/data/corpus.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "worker/data/data_files.h"
#include "worker/data/megatron_index.h"
#include "worker/data/token_format.h"
#include "worker/data/token_manifest.h"

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

absl::Status CheckDocumentsKnown(const CorpusOptions& options, const DataFile& file) {
  if (options.documents_for.empty() || options.separator.has_value() || !file.index.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      file.path, ": nothing tells where its documents begin, which ", options.documents_for,
      " needs: "
      "give data.documentSeparator, the token that ends a document, or a Megatron .idx"));
}

// What is behind the files' names: of each what tells tokens from headers, and their indices.
absl::StatusOr<std::vector<TokenLayout>> ReadLayouts(const CorpusOptions& options,
                                                     const std::vector<DataFile>& files,
                                                     Corpus* corpus) {
  const ByteStream& stream = *corpus->stream;
  std::vector<TokenLayout> layouts;
  ContentHash index_hash;
  std::int64_t first_token = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    RETURN_IF_ERROR(CheckDocumentsKnown(options, files[i]));
    const std::int64_t file_bytes = stream.files()[i].size_bytes;
    TokenLayout layout;
    if (files[i].index.empty()) {
      ASSIGN_OR_RETURN(layout, ReadTokenLayout(stream, stream.files()[i], options.raw_token_bytes));
    } else {
      ASSIGN_OR_RETURN(const MegatronIndex index,
                       ReadMegatronIndex(files[i].index, file_bytes, !options.documents_for.empty(),
                                         &index_hash));
      layout.token_bytes = index.token_bytes;
      corpus->index_hash = 0;
      for (const std::int64_t start : index.document_starts) {
        corpus->document_starts->push_back(first_token + start);
      }
    }
    if (i > 0 && layout.token_bytes != layouts[0].token_bytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has tokens of %d bytes, %s of %d: a path must name files of one kind", files[i].path,
          layout.token_bytes, files[0].path, layouts[0].token_bytes));
    }
    first_token += (file_bytes - layout.header_bytes) / layout.token_bytes;
    corpus->files.push_back({.has_index = !files[i].index.empty()});
    layouts.push_back(layout);
  }
  if (corpus->index_hash.has_value()) corpus->index_hash = index_hash.Finish();
  return layouts;
}

absl::StatusOr<std::uint32_t> HeaderCrc(const ByteStream& stream, std::size_t index,
                                        std::int64_t header_bytes) {
  std::vector<std::byte> header(static_cast<std::size_t>(header_bytes));
  RETURN_IF_ERROR(stream.ReadAt(stream.files()[index].begin, header));
  return Crc32c(header);
}

// What fsdp-tokenize says of the shards in one folder.
absl::Status TakeManifest(const std::string& folder, const TokenManifest& manifest,
                          const std::vector<TokenLayout>& layouts, Corpus* corpus) {
  for (std::size_t i = 0; i < corpus->files.size(); ++i) {
    const std::filesystem::path path = corpus->stream->files()[i].path;
    const auto shard = manifest.shards.find(path.filename().string());
    if (path.parent_path().string() != folder || shard == manifest.shards.end()) continue;
    corpus->files[i].crc32c = shard->second;
    ASSIGN_OR_RETURN(corpus->files[i].header_crc32c,
                     HeaderCrc(*corpus->stream, i, layouts[i].header_bytes));
    if (corpus->tokenizer.empty()) corpus->tokenizer = manifest.tokenizer;
    if (corpus->tokenizer != manifest.tokenizer) {
      return absl::InvalidArgumentError(absl::StrCat(
          path.string(), " was made with the tokenizer ", manifest.tokenizer,
          ", files before it with ", corpus->tokenizer, ": a path must name files of one kind"));
    }
  }
  return absl::OkStatus();
}

// `path`: what the files were found by.
absl::Status TakeManifests(const std::string& path, const std::vector<TokenLayout>& layouts,
                           Corpus* corpus) {
  std::set<std::string> names;
  std::set<std::string> folders;
  for (const ByteStream::File& file : corpus->stream->files()) {
    const std::filesystem::path file_path = file.path;
    folders.insert(file_path.parent_path().string());
    names.insert(file_path.filename().string());
  }
  std::error_code error;
  const bool whole_folder = std::filesystem::is_directory(path, error);
  for (const std::string& folder : folders) {
    ASSIGN_OR_RETURN(const std::optional<TokenManifest> manifest,
                     ReadTokenManifest(folder.empty() ? "." : folder));
    if (!manifest.has_value()) continue;
    for (const auto& [name, crc] : manifest->shards) {
      if (!whole_folder || names.contains(name)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(folder, "/", name, " is missing: ", kTokenManifestName,
                       " beside it names it; make the shards again, or name those that are left"));
    }
    RETURN_IF_ERROR(TakeManifest(folder, *manifest, layouts, corpus));
  }
  return absl::OkStatus();
}

std::vector<std::int64_t> HeaderBytes(const std::vector<TokenLayout>& layouts) {
  std::vector<std::int64_t> header_bytes;
  header_bytes.reserve(layouts.size());
  for (const TokenLayout& layout : layouts) header_bytes.push_back(layout.header_bytes);
  return header_bytes;
}

// What one walk over the bytes is for.
struct Scan {
  const CorpusOptions& options;
  Corpus& corpus;
  ContentHash& hash;
  bool found_separator = false;
};

// Checks the ids of a piece of a file; tokens behind a `separator` (-1: none) begin documents.
template <typename Token>
absl::Status ScanIds(std::int64_t offset, std::span<const std::byte> bytes, std::int64_t separator,
                     Scan* scan) {
  const auto vocab_size = static_cast<std::uint64_t>(scan->options.vocab_size);
  const std::int64_t first_token = offset / static_cast<std::int64_t>(sizeof(Token));
  const std::size_t count = bytes.size() / sizeof(Token);
  for (std::size_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, bytes.data() + i * sizeof(Token), sizeof(Token));
    if (token >= vocab_size) {
      return absl::DataLossError(absl::StrFormat(
          "%s: token id %d is not below model.vocabSize %d: the file was made with another "
          "tokenizer, or data.tokenDtype is wrong, or it is not a token file",
          scan->corpus.stream->Describe(offset + static_cast<std::int64_t>(i * sizeof(Token))),
          token, vocab_size));
    }
    if (std::int64_t{token} == separator) {
      scan->found_separator = true;
      scan->corpus.document_starts->push_back(first_token + static_cast<std::int64_t>(i) + 1);
    }
  }
  return absl::OkStatus();
}

absl::Status ScanFile(std::size_t index, std::span<std::byte> chunk, Scan* scan) {
  const ByteStream& stream = *scan->corpus.stream;
  const ByteStream::File& file = stream.files()[index];
  const int token_bytes = scan->corpus.token_bytes;
  const bool text = scan->options.source == SourceKind::kText;
  std::int64_t separator = -1;
  Corpus::File facts;
  if (!text) facts = scan->corpus.files[index];
  if (!scan->options.documents_for.empty() && !facts.has_index) {
    if (!text) separator = scan->options.separator.value_or(-1);
    // A document may go on in the next shard, but not behind the end of a pair.
    if (text || index == 0 || scan->corpus.files[index - 1].has_index) {
      scan->corpus.document_starts->push_back(file.begin / token_bytes);
    }
  }
  std::uint32_t crc = facts.header_crc32c;
  const std::int64_t end = file.begin + file.size_bytes;
  for (std::int64_t offset = file.begin; offset < end;) {
    const auto count =
        std::min<std::int64_t>(static_cast<std::int64_t>(chunk.size()), end - offset);
    const std::span<std::byte> bytes = chunk.first(static_cast<std::size_t>(count));
    RETURN_IF_ERROR(stream.ReadAt(offset, bytes));
    if (token_bytes == 2) RETURN_IF_ERROR(ScanIds<std::uint16_t>(offset, bytes, separator, scan));
    if (token_bytes == 4) RETURN_IF_ERROR(ScanIds<std::uint32_t>(offset, bytes, separator, scan));
    scan->hash.Add(bytes);
    if (facts.crc32c.has_value()) crc = ExtendCrc32c(crc, bytes);
    offset += count;
  }
  if (facts.crc32c.has_value() && crc != *facts.crc32c) {
    return absl::DataLossError(
        absl::StrFormat("%s: its CRC-32C is 0x%08x, and %s beside it says 0x%08x: it was changed "
                        "or damaged; make it "
                        "again, or move the manifest away to read it unchecked",
                        file.path, crc, kTokenManifestName, *facts.crc32c));
  }
  return absl::OkStatus();
}

absl::Status ScanFiles(Scan* scan) {
  Corpus& corpus = scan->corpus;
  if (!scan->options.token_folder.empty()) scan->hash.AddNumber(scan->options.text_hash);
  if (corpus.index_hash.has_value()) scan->hash.AddNumber(*corpus.index_hash);
  std::vector<std::byte> chunk(kScanBytes);
  for (std::size_t i = 0; i < corpus.stream->files().size(); ++i) {
    RETURN_IF_ERROR(ScanFile(i, chunk, scan));
  }
  const bool without_index = std::any_of(corpus.files.begin(), corpus.files.end(),
                                         [](const Corpus::File& file) { return !file.has_index; });
  if (!scan->options.documents_for.empty() && without_index && !scan->found_separator) {
    return absl::InvalidArgumentError(absl::StrCat(
        corpus.stream->path(), ": data.documentSeparator ", scan->options.separator.value_or(0),
        " is nowhere in it; give the token that ends its documents"));
  }
  std::sort(corpus.document_starts->begin(), corpus.document_starts->end());
  return absl::OkStatus();
}

absl::StatusOr<Corpus> Open(const CorpusOptions& options) {
  const bool tokens = options.source == SourceKind::kTokens;
  const std::string& path = options.token_folder.empty() ? options.path : options.token_folder;
  ASSIGN_OR_RETURN(const std::vector<DataFile> files,
                   FindDataFiles(path, tokens ? FilesOf::kTokens : FilesOf::kText));
  std::vector<std::string> paths;
  paths.reserve(files.size());
  for (const DataFile& file : files) paths.push_back(file.path);
  ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream, ByteStream::Open(options.path, paths));
  Corpus corpus;
  corpus.stream = stream;
  if (tokens) {
    ASSIGN_OR_RETURN(const std::vector<TokenLayout> layouts, ReadLayouts(options, files, &corpus));
    corpus.token_bytes = layouts.front().token_bytes;
    RETURN_IF_ERROR(TakeManifests(path, layouts, &corpus));
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

absl::Status ScanCorpus(const CorpusOptions& options, Corpus* corpus, ContentHash* hash) {
  Scan scan{options, *corpus, *hash};
  return Annotate(ScanFiles(&scan), options.field);
}

}  // namespace fsdp
