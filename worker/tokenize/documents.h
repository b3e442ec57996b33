#ifndef FSDPCTL_WORKER_TOKENIZE_DOCUMENTS_H_
#define FSDPCTL_WORKER_TOKENIZE_DOCUMENTS_H_

// The documents of a block and their ids. Thread rule: an object is one thread's.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/tokenize/sources.h"
#include "worker/tokenize/tokenizer.h"

namespace fsdp {

struct DocumentOptions {
  // Of JSONL: the field with the text.
  std::string text_field = "text";
  // What errors say of a file that is no JSONL, and how they call text_field.
  std::string text_remedy = "--format text takes it as it is";
  std::string text_field_name = "--text-field";
  // Written once for each document that is not empty.
  std::optional<TokenId> separator;
  // Before the document instead of after it.
  bool separator_first = false;
};

struct DocumentCounts {
  std::int64_t documents = 0;
  // Not counted among `documents`; nothing is written for them.
  std::int64_t empty_documents = 0;
  std::int64_t source_bytes = 0;
  // Of the documents: of JSONL without the JSON around them.
  std::int64_t text_bytes = 0;
  // Invalid sequences of UTF-8 that became U+FFFD.
  std::int64_t replaced = 0;

  DocumentCounts& operator+=(const DocumentCounts& other);
  bool operator==(const DocumentCounts&) const = default;
};

class DocumentEncoder {
 public:
  DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer, DocumentOptions options);

  // Appends the ids of what `block` of `source` holds, and what it counted.
  //   INVALID_ARGUMENT  a line that is no JSON object with the text; names file and line
  //   errors of reading and of TextEncoder
  absl::Status EncodeBlock(const SourceFile& source, const Block& block, std::vector<TokenId>* ids,
                           DocumentCounts* counts);

 private:
  absl::Status EncodeLines(const SourceFile& source, const Block& block, std::string_view text,
                           std::vector<TokenId>* ids, DocumentCounts* counts);
  absl::Status EncodeDocument(std::string_view text, bool starts, bool ends,
                              std::vector<TokenId>* ids, DocumentCounts* counts);
  absl::StatusOr<std::string> TextOfLine(std::string_view line, DocumentCounts* counts);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const DocumentOptions options_;
  const std::unique_ptr<TextEncoder> encoder_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_DOCUMENTS_H_
