#include "worker/tokenize/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/tokenize/utf8.h"

namespace fsdp {
namespace {

// `text` itself when it is valid, else a repaired copy in `storage`.
std::string_view ValidText(std::string_view text, std::string* storage, DocumentCounts* counts) {
  if (ValidUtf8Prefix(text) == text.size()) return text;
  storage->clear();
  counts->replaced += AppendReplacingInvalid(text, storage);
  return *storage;
}

absl::StatusOr<std::int64_t> LineNumber(const SourceFile& source, const Block& block,
                                        std::size_t offset) {
  ASSIGN_OR_RETURN(
      const std::string before,
      ReadBlock(source, {block.file, 0, block.begin + static_cast<std::int64_t>(offset)}));
  return std::count(before.begin(), before.end(), '\n') + 1;
}

}  // namespace

DocumentCounts& DocumentCounts::operator+=(const DocumentCounts& other) {
  documents += other.documents;
  empty_documents += other.empty_documents;
  source_bytes += other.source_bytes;
  text_bytes += other.text_bytes;
  replaced += other.replaced;
  return *this;
}

DocumentEncoder::DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer,
                                 DocumentOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      encoder_(tokenizer_->NewEncoder()) {}

absl::Status DocumentEncoder::EncodeBlock(const SourceFile& source, const Block& block,
                                          std::vector<TokenId>* ids, DocumentCounts* counts) {
  ASSIGN_OR_RETURN(const std::string text, ReadBlock(source, block));
  counts->source_bytes += static_cast<std::int64_t>(text.size());
  // Seldom too few: a token has three bytes or more in most languages.
  ids->reserve(text.size() / 3);
  if (source.format == SourceFormat::kJsonl) return EncodeLines(source, block, text, ids, counts);
  const absl::Status status =
      EncodeDocument(text, block.begin == 0, block.end == source.size_bytes, ids, counts);
  return status.ok() ? status : Annotate(status, source.path);
}

absl::Status DocumentEncoder::EncodeLines(const SourceFile& source, const Block& block,
                                          std::string_view text, std::vector<TokenId>* ids,
                                          DocumentCounts* counts) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      const auto document = TextOfLine(line, counts);
      absl::Status status = document.status();
      if (status.ok()) status = EncodeDocument(*document, true, true, ids, counts);
      if (!status.ok()) {
        ASSIGN_OR_RETURN(const std::int64_t number, LineNumber(source, block, begin));
        return Annotate(status, absl::StrCat(source.path, ":", number));
      }
    }
    begin = end + 1;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DocumentEncoder::TextOfLine(std::string_view line,
                                                        DocumentCounts* counts) {
  std::string storage;
  const std::string_view valid = ValidText(line, &storage, counts);
  nlohmann::json json = nlohmann::json::parse(valid.begin(), valid.end(), nullptr,
                                              /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a JSON object on one line; is it JSONL? ", options_.text_remedy));
  }
  const auto field = json.find(options_.text_field);
  if (field == json.end() || !field->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("no text in the field \"", options_.text_field,
                                                   "\"; ", options_.text_field_name, " names it"));
  }
  return std::move(field->get_ref<std::string&>());
}

absl::Status DocumentEncoder::EncodeDocument(std::string_view text, bool starts, bool ends,
                                             std::vector<TokenId>* ids, DocumentCounts* counts) {
  if (text.empty()) {
    ++counts->empty_documents;
    return absl::OkStatus();
  }
  if (starts) ++counts->documents;
  counts->text_bytes += static_cast<std::int64_t>(text.size());
  if (starts && options_.separator_first && options_.separator.has_value()) {
    ids->push_back(*options_.separator);
  }
  std::string storage;
  const std::string_view valid =
      tokenizer_->takes_any_bytes() ? text : ValidText(text, &storage, counts);
  RETURN_IF_ERROR(encoder_->Encode(valid, starts, ids));
  if (ends && !options_.separator_first && options_.separator.has_value()) {
    ids->push_back(*options_.separator);
  }
  return absl::OkStatus();
}

}  // namespace fsdp
