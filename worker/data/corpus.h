#ifndef FSDPCTL_WORKER_DATA_CORPUS_H_
#define FSDPCTL_WORKER_DATA_CORPUS_H_

// What is behind one path of a job: its files as one run of tokens, proven at start.
//
// Thread rule: stateless.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/byte_stream.h"
#include "worker/data/content_hash.h"

namespace fsdp {

enum class SourceKind : std::uint8_t {
  kSynthetic,  // uniform random tokens; has no validation split
  kTokens,     // little-endian ids: raw, with llm.c's header (token_format.h), Megatron pairs
  kText,       // every byte is a token
};

struct CorpusOptions {
  SourceKind source = SourceKind::kTokens;  // not synthetic
  std::string path;
  std::string field;  // that names the path: "data.path"
  int raw_token_bytes = 2;
  std::int64_t vocab_size = 0;  // of the model
  // Where the tokens of the text at `path` are (token_cache.h); empty: the path's own bytes.
  std::string token_folder;
  std::uint64_t text_hash = 0;  // of the text that they were made from
  // Where documents begin. Of text each file is one, of a Megatron pair the index says it; in other
  // token files a document ends with `separator`.
  std::string documents_for;  // the field that wants them; empty: none does
  std::optional<std::int64_t> separator;
};

struct Corpus {
  struct File {
    bool has_index = false;               // Megatron's
    std::uint32_t header_crc32c = 0;      // of what is skipped, where there is a crc32c
    std::optional<std::uint32_t> crc32c;  // as fsdp-tokenize's manifest says
  };

  std::shared_ptr<const ByteStream> stream;
  int token_bytes = 1;                      // 1, 2 or 4
  std::optional<std::uint64_t> index_hash;  // of Megatron's indices, if there are any
  std::vector<File> files;                  // the stream's; empty for text
  std::string tokenizer;                    // as the manifest says; empty: not known
  // Tokens of the stream that documents begin with, ascending; complete after ScanCorpus. 8 bytes
  // a document, if wanted.
  std::shared_ptr<std::vector<std::int64_t>> document_starts =
      std::make_shared<std::vector<std::int64_t>>();

  [[nodiscard]] std::int64_t num_tokens() const { return stream->size_bytes() / token_bytes; }
};

// Every error begins with options.field.
//   NOT_FOUND, PERMISSION_DENIED  the file, or half of a Megatron pair
//   INVALID_ARGUMENT   it is empty; a file's size is no multiple of a token's; ReadTokenLayout or
//                      ReadMegatronIndex refuses it, or files differ in their tokens' width;
//                      nothing tells where the documents that are wanted begin; a folder lacks
//                      a shard that its manifest names, or manifests name different tokenizers
absl::StatusOr<Corpus> OpenCorpus(const CorpusOptions& options);

// Reads all of it once: every id is checked, `hash` takes every byte (of the index too). About a
// second per 3 GB of cached file.
//   DATA_LOSS         an id is not below vocab_size: names file, byte and value; a shard is not
//                     what its manifest says
//   INVALID_ARGUMENT  the separator is nowhere
absl::Status ScanCorpus(const CorpusOptions& options, Corpus* corpus, ContentHash* hash);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_CORPUS_H_
