// What is particular to data of source text: its tokenizer, its JSONL and its vocabulary.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/support/spec_validate.h"
#include "proto/support/status.h"

namespace fsdp::spec {
namespace {

constexpr int kBytesVocabulary = 256;
// The largest tokenizer.json that is looked into; those of large vocabularies have some 20 MB.
constexpr std::int64_t kMaxTokenizerBytes = 64 << 20;

bool IsFolder(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool IsJsonl(std::string_view path) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

// May one of the paths hold JSONL? A folder or glob may.
bool MayBeJsonl(const v1::DataSpec& data) {
  const auto may = [](const std::string& path) { return IsJsonl(path) || IsFolder(path); };
  return may(data.path()) || may(data.validation_path()) ||
         std::any_of(data.mixture().begin(), data.mixture().end(),
                     [&](const v1::DataMixture& part) { return may(part.path()); });
}

// One more than the largest id of a tokenizer.json; nothing when this cannot be told here.
std::optional<std::int64_t> VocabularyOf(const std::string& path) {
  const std::string file = IsFolder(path) ? path + "/tokenizer.json" : path;
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size > kMaxTokenizerBytes) {
    return std::nullopt;
  }
  std::ifstream in(file, std::ios::binary);
  if (in.peek() != '{') return std::nullopt;  // a SentencePiece model
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  std::int64_t size = 0;
  const auto take = [&size](const nlohmann::json& id) {
    if (id.is_number_integer()) size = std::max(size, id.get<std::int64_t>() + 1);
  };
  const auto model = json.find("model");
  if (model != json.end() && model->is_object() && model->contains("vocab")) {
    for (const auto& token : (*model)["vocab"].items()) take(token.value());
  }
  const auto added = json.find("added_tokens");
  if (added != json.end() && added->is_array()) {
    for (const auto& token : *added) {
      if (token.is_object() && token.contains("id")) take(token["id"]);
    }
  }
  return size > 0 ? std::optional(size) : std::nullopt;
}

void CheckIsForText(std::string_view field, const std::string& value, Findings* findings) {
  if (value.empty()) return;
  findings->Error(field, "is for source text; remove it",
                  {absl::StrCat("\"", value, "\""), "", ""});
}

}  // namespace

void CheckText(const v1::DataSpec& data, Findings* findings) {
  if (data.source() != v1::DATA_SOURCE_TEXT) {
    CheckIsForText("spec.data.tokenizer", data.tokenizer(), findings);
    CheckIsForText("spec.data.textField", data.text_field(), findings);
    CheckIsForText("spec.data.cacheDir", data.cache_dir(), findings);
    return;
  }
  if (data.has_document_separator() && data.tokenizer().empty() && !MayBeJsonl(data)) {
    findings->Error("spec.data.documentSeparator",
                    "each file of text is a document; remove it, or give a tokenizer",
                    {absl::StrCat(data.document_separator()), "", ""});
  }
  const std::string& tokenizer = data.tokenizer();
  if (tokenizer.empty() || tokenizer == kBytesTokenizer) return;
  if (::access(tokenizer.c_str(), R_OK) != 0) {
    findings->Warning("spec.data.tokenizer",
                      absl::StrCat("\"", tokenizer,
                                   "\" cannot be read here, so it is not checked; every rank must "
                                   "be able to"));
  }
}

void CheckTextVocabulary(const v1::DataSpec& data, std::int64_t vocab_size, Findings* findings) {
  if (data.source() != v1::DATA_SOURCE_TEXT) return;
  if (data.tokenizer().empty() || data.tokenizer() == kBytesTokenizer) {
    if (vocab_size >= kBytesVocabulary) return;
    findings->Error("spec.model.vocabSize",
                    absl::StrCat("bytes of text need at least ", kBytesVocabulary),
                    {absl::StrCat(vocab_size), "", absl::StrCat(kBytesVocabulary)});
    return;
  }
  const std::optional<std::int64_t> needed = VocabularyOf(data.tokenizer());
  if (!needed.has_value() || vocab_size >= *needed) return;
  findings->Error(
      "spec.model.vocabSize", absl::StrCat("the tokenizer has ids up to ", *needed - 1),
      {absl::StrCat(vocab_size), absl::StrCat("at least ", *needed), absl::StrCat(*needed)});
}

}  // namespace fsdp::spec
