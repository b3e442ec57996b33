#include "worker/tokenize/byte_level.h"

#include <utility>

#include "proto/support/status.h"
#include "worker/tokenize/normalizer.h"

namespace fsdp {
namespace {

// Calls `between` for the text around the tokens, when there is any, and appends the tokens' ids.
template <typename Between>
absl::Status TakeOut(const AddedTokens& tokens, std::string_view text, std::vector<TokenId>* ids,
                     const Between& between) {
  std::size_t done = 0;
  while (done < text.size()) {
    const AddedTokens::Match match = tokens.FindFrom(text, done);
    const std::size_t end = match.size == 0 ? text.size() : match.begin;
    if (end > done) RETURN_IF_ERROR(between(text.substr(done, end - done)));
    if (match.size == 0) break;
    ids->push_back(match.id);
    done = match.begin + match.size;
  }
  return absl::OkStatus();
}

class ByteLevelEncoder final : public TextEncoder {
 public:
  explicit ByteLevelEncoder(std::shared_ptr<const ByteLevelParts> parts)
      : parts_(std::move(parts)), cutter_(parts_->pre_tokenizer), bpe_(parts_->model) {}

  absl::Status Encode(std::string_view text, bool starts_document,
                      std::vector<TokenId>* ids) override {
    return TakeOut(parts_->raw_tokens, text, ids, [&](std::string_view raw) -> absl::Status {
      // What continues a document has its space at the document's start.
      const bool add_space = starts_document || raw.data() != text.data();
      if (!parts_->normalizes_to_nfc || IsSurelyNfc(raw)) return EncodeText(raw, add_space, ids);
      ASSIGN_OR_RETURN(const std::string normalized, ToNfc(raw));
      return EncodeText(normalized, add_space, ids);
    });
  }

 private:
  absl::Status EncodeText(std::string_view text, bool add_space, std::vector<TokenId>* ids) {
    return TakeOut(parts_->normalized_tokens, text, ids, [&](std::string_view part) {
      const bool wants_space =
          parts_->add_prefix_space && (add_space || part.data() != text.data());
      if (!wants_space || part[0] == ' ') return EncodePieces(part, ids);
      prefixed_.assign(1, ' ');
      prefixed_.append(part);
      return EncodePieces(prefixed_, ids);
    });
  }

  absl::Status EncodePieces(std::string_view text, std::vector<TokenId>* ids) {
    return cutter_.Cut(text, [this, ids](std::string_view piece) { bpe_.Encode(piece, ids); });
  }

  const std::shared_ptr<const ByteLevelParts> parts_;
  Cutter cutter_;
  BpeEncoder bpe_;
  std::string prefixed_;
};

class ByteLevelTokenizer final : public Tokenizer {
 public:
  explicit ByteLevelTokenizer(ByteLevelParts parts)
      : parts_(std::make_shared<const ByteLevelParts>(std::move(parts))) {}

  [[nodiscard]] std::unique_ptr<TextEncoder> NewEncoder() const override {
    return std::make_unique<ByteLevelEncoder>(parts_);
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return parts_->vocab_size; }
  [[nodiscard]] std::optional<TokenId> Find(const std::string& content) const override {
    const auto found = parts_->ids.find(content);
    return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] std::optional<TokenId> end_of_text() const override { return parts_->end_of_text; }
  [[nodiscard]] bool cuts_before_newlines() const override {
    return parts_->tokens_are_lines && parts_->pre_tokenizer->cuts_before_newlines();
  }

 private:
  const std::shared_ptr<const ByteLevelParts> parts_;
};

}  // namespace

std::shared_ptr<const Tokenizer> MakeByteLevelTokenizer(ByteLevelParts parts) {
  return std::make_shared<ByteLevelTokenizer>(std::move(parts));
}

}  // namespace fsdp
