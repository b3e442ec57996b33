#include "worker/tokenize/tokenizer.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/data/content_hash.h"
#include "worker/data/text_files.h"
#include "worker/tokenize/sentencepiece_model.h"
#include "worker/tokenize/tokenizer_json.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

// The largest vocabularies take some 20 MB.
constexpr std::uint64_t kMaxFileBytes = 256 << 20;

class BytesEncoder final : public TextEncoder {
 public:
  absl::Status Encode(std::string_view text, bool /*starts_document*/,
                      std::vector<TokenId>* ids) override {
    for (const char c : text) ids->push_back(static_cast<std::uint8_t>(c));
    return absl::OkStatus();
  }
};

class BytesTokenizer final : public Tokenizer {
 public:
  [[nodiscard]] std::unique_ptr<TextEncoder> NewEncoder() const override {
    return std::make_unique<BytesEncoder>();
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return 256; }
  [[nodiscard]] std::optional<TokenId> Find(const std::string& /*content*/) const override {
    return std::nullopt;
  }
  [[nodiscard]] std::optional<TokenId> end_of_text() const override { return std::nullopt; }
  [[nodiscard]] bool cuts_before_newlines() const override { return true; }
  [[nodiscard]] bool takes_any_bytes() const override { return true; }
};

class SentencePieceEncoder final : public TextEncoder {
 public:
  explicit SentencePieceEncoder(std::shared_ptr<const SentencePieceModel> model)
      : model_(std::move(model)) {}

  absl::Status Encode(std::string_view text, bool /*starts_document*/,
                      std::vector<TokenId>* ids) override {
    std::string error;
    if (model_->Encode(text, ids, &error)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("libsentencepiece: ", error));
  }

 private:
  const std::shared_ptr<const SentencePieceModel> model_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::shared_ptr<const SentencePieceModel> model)
      : model_(std::move(model)) {}

  [[nodiscard]] std::unique_ptr<TextEncoder> NewEncoder() const override {
    return std::make_unique<SentencePieceEncoder>(model_);
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return model_->vocab_size(); }
  [[nodiscard]] std::optional<TokenId> Find(const std::string& content) const override {
    return model_->Find(content);
  }
  [[nodiscard]] std::optional<TokenId> end_of_text() const override {
    return model_->end_of_text();
  }

 private:
  const std::shared_ptr<const SentencePieceModel> model_;
};

absl::StatusOr<std::string> ReadWhole(const fs::path& path) {
  ASSIGN_OR_RETURN(const auto reader, BlobStore::Posix().Open(path.string()));
  if (reader->size_bytes() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), " has ", reader->size_bytes(), " bytes: no tokenizer is"));
  }
  std::string text(reader->size_bytes(), '\0');
  RETURN_IF_ERROR(reader->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadSentencePiece(std::string_view bytes) {
  std::string error;
  std::shared_ptr<const SentencePieceModel> model = SentencePieceModel::Load(bytes, &error);
  if (model == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("neither a tokenizer.json nor a SentencePiece model: ", error));
  }
  return std::make_shared<SentencePieceTokenizer>(std::move(model));
}

}  // namespace

absl::StatusOr<LoadedTokenizer> LoadTokenizer(const std::string& path,
                                              const TokenizerOptions& options) {
  if (path == "bytes") return LoadedTokenizer{std::make_shared<BytesTokenizer>(), path, path, 0};
  ASSIGN_OR_RETURN(const fs::path file, ResolveTokenizer(path));
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(file));
  ContentHash hash;
  hash.Add(std::as_bytes(std::span(text)));
  absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer;
  std::string kind;
  if (text.find_first_not_of(" \t\r\n") != std::string::npos &&
      text[text.find_first_not_of(" \t\r\n")] == '{') {
    kind = "byte-level BPE";
    std::string config;
    const fs::path beside = file.parent_path() / "tokenizer_config.json";
    if (std::error_code ignored; fs::exists(beside, ignored)) {
      ASSIGN_OR_RETURN(config, ReadWhole(beside));
      hash.Add(std::as_bytes(std::span(config)));
    }
    tokenizer = ParseTokenizerJson(text, config, options);
  } else {
    kind = "SentencePiece";
    tokenizer = LoadSentencePiece(text);
  }
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), file.string());
  return LoadedTokenizer{*std::move(tokenizer), kind, file.string(), hash.Finish()};
}

}  // namespace fsdp
