#include "worker/tokenize/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "proto/support/strict_json.h"
#include "worker/tokenize/byte_alphabet.h"
#include "worker/tokenize/byte_level.h"
#include "worker/tokenize/normalizer.h"
#include "worker/tokenize/pattern.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;
// Far beyond any vocabulary; keeps ids in 32 bits.
constexpr std::int64_t kMaxId = std::int64_t{1} << 30;
constexpr const char* kEndOfTextNames[] = {"<|endoftext|>", "<|end_of_text|>",
                                           "<|end▁of▁sentence|>", "</s>", "<eos>"};

absl::Status Broken(const std::string& field, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", problem));
}

absl::Status Unsupported(const std::string& feature) {
  return absl::UnimplementedError(
      absl::StrCat(feature, " is not supported, and without it the ids would differ"));
}

// Null for an absent key.
const Json& At(const Json& object, const char* key) {
  static const Json& null = *new Json;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string TypeOf(const Json& object) {
  const Json& type = At(object, "type");
  return type.is_string() ? type.get<std::string>() : "";
}

absl::StatusOr<bool> Flag(const Json& object, const char* key, bool fallback) {
  const Json& value = At(object, key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) return Broken(key, "is neither true nor false");
  return value.get<bool>();
}

// Fills in the parts of one file, in the order of its fields' dependence.
class Reader {
 public:
  Reader(const Json& root, const TokenizerOptions& options) : root_(root), options_(options) {}

  absl::StatusOr<std::shared_ptr<const Tokenizer>> Read(const Json& config) {
    RETURN_IF_ERROR(ReadModel());
    RETURN_IF_ERROR(ReadNormalizer(At(root_, "normalizer")));
    RETURN_IF_ERROR(ReadAddedTokens());
    RETURN_IF_ERROR(ReadPreTokenizer());
    RETURN_IF_ERROR(FindEndOfText(config));
    return MakeByteLevelTokenizer(std::move(parts_));
  }

 private:
  absl::Status ReadModel() {
    const Json& model = At(root_, "model");
    if (!model.is_object()) return Broken("model", "is missing");
    // Old files do not name the type.
    const std::string type = TypeOf(model);
    if (!type.empty() && type != "BPE") return Unsupported(absl::StrCat("model.type ", type));
    RETURN_IF_ERROR(RefuseModelFeatures(model));
    ASSIGN_OR_RETURN(const bool ignore_merges, Flag(model, "ignore_merges", false));
    RETURN_IF_ERROR(ReadVocabulary(At(model, "vocab")));
    BpeModel::Options bpe;
    bpe.ignore_merges = ignore_merges;
    ASSIGN_OR_RETURN(bpe.merges, ReadMerges(At(model, "merges")));
    for (const auto& [spelling, id] : parts_.ids) {
      if (auto bytes = BytesOfSpelling(spelling)) bpe.tokens.emplace_back(std::move(*bytes), id);
    }
    ASSIGN_OR_RETURN(BpeModel made, BpeModel::Create(std::move(bpe)));
    parts_.model = std::make_shared<const BpeModel>(std::move(made));
    return absl::OkStatus();
  }

  static absl::Status RefuseModelFeatures(const Json& model) {
    const Json& dropout = At(model, "dropout");
    if (!dropout.is_null() && dropout != 0) return Unsupported("model.dropout");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = At(model, key);
      if (!value.is_null() && value != "") return Unsupported(absl::StrCat("model.", key));
    }
    ASSIGN_OR_RETURN(const bool byte_fallback, Flag(model, "byte_fallback", false));
    if (byte_fallback) {
      return Unsupported(
          "model.byte_fallback (a SentencePiece vocabulary: give its tokenizer.model)");
    }
    return absl::OkStatus();
  }

  absl::Status ReadVocabulary(const Json& vocab) {
    if (!vocab.is_object() || vocab.empty()) return Broken("model.vocab", "is missing or empty");
    parts_.ids.reserve(vocab.size());
    std::unordered_map<TokenId, const std::string*> spelling_of;
    spelling_of.reserve(vocab.size());
    for (const auto& [spelling, value] : vocab.items()) {
      ASSIGN_OR_RETURN(const TokenId id,
                       IdOf(value, absl::StrCat("model.vocab[",
                                                Json(spelling).dump(-1, ' ', false,
                                                                    Json::error_handler_t::replace),
                                                "]")));
      const auto [other, is_new] = spelling_of.emplace(id, &spelling);
      if (!is_new) {
        return Broken("model.vocab", absl::StrCat("gives the id ", id, " to two tokens, ",
                                                  *other->second, " and ", spelling));
      }
      parts_.ids.emplace(spelling, id);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TokenId> IdOf(const Json& value, const std::string& field) {
    if (!value.is_number_integer()) return Broken(field, "is no whole number");
    const auto id = value.get<std::int64_t>();
    if (id < 0 || id >= kMaxId) return Broken(field, absl::StrCat("is ", id, ", out of range"));
    parts_.vocab_size = std::max(parts_.vocab_size, id + 1);
    return static_cast<TokenId>(id);
  }

  // "a b" or ["a", "b"].
  static absl::StatusOr<std::pair<std::string, std::string>> PartsOfMerge(
      const Json& merge, const std::string& field) {
    std::pair<std::string, std::string> parts;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      parts = {merge[0].get<std::string>(), merge[1].get<std::string>()};
    } else if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return Broken(field,
                      absl::StrCat("is \"", text, "\", not two tokens with a space between"));
      }
      parts = {text.substr(0, space), text.substr(space + 1)};
    } else {
      return Broken(field, "is neither a string nor a pair of strings");
    }
    if (parts.first.empty() || parts.second.empty()) return Broken(field, "merges an empty token");
    return parts;
  }

  absl::StatusOr<std::vector<BpeModel::Merge>> ReadMerges(const Json& json) {
    if (!json.is_array()) return Broken("model.merges", "is missing, or no list");
    std::vector<BpeModel::Merge> merges;
    merges.reserve(json.size());
    for (std::size_t i = 0; i < json.size(); ++i) {
      const std::string field = absl::StrCat("model.merges[", i, "]");
      ASSIGN_OR_RETURN(const auto parts, PartsOfMerge(json[i], field));
      BpeModel::Merge merge;
      for (const auto& [spelling, id] :
           {std::pair(parts.first, &merge.left), std::pair(parts.second, &merge.right),
            std::pair(parts.first + parts.second, &merge.merged)}) {
        const auto found = parts_.ids.find(spelling);
        if (found == parts_.ids.end()) {
          return Broken(field, absl::StrCat("needs the token \"", spelling,
                                            "\", which model.vocab does not have"));
        }
        *id = found->second;
      }
      merges.push_back(merge);
    }
    return merges;
  }

  absl::Status ReadAddedTokens() {
    const Json& tokens = At(root_, "added_tokens");
    if (tokens.is_null()) return absl::OkStatus();
    if (!tokens.is_array()) return Broken("added_tokens", "is no list");
    std::unordered_map<TokenId, std::string> content_of;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string field = absl::StrCat("added_tokens[", i, "]");
      RETURN_IF_ERROR(Annotate(ReadAddedToken(tokens[i], field, &content_of), field));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAddedToken(const Json& token, const std::string& field,
                              std::unordered_map<TokenId, std::string>* content_of) {
    const Json& content = At(token, "content");
    if (!token.is_object() || !content.is_string() || content == "") {
      return Broken("content", "is missing or empty");
    }
    const auto text = content.get<std::string>();
    ASSIGN_OR_RETURN(const TokenId id, IdOf(At(token, "id"), "id"));
    const auto [other, is_new] = content_of->emplace(id, text);
    if (!is_new) {
      return Broken("id", absl::StrCat("is ", id, ", which also ", other->second, " has"));
    }
    const auto [known, is_added] = parts_.ids.emplace(text, id);
    if (!is_added && known->second != id) {
      return Broken("id", absl::StrCat("is ", id, ", but \"", text, "\" has ", known->second,
                                       " in the vocabulary"));
    }
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      ASSIGN_OR_RETURN(const bool set, Flag(token, key, false));
      if (set) return Unsupported(absl::StrCat(field, ".", key, " (of \"", text, "\")"));
    }
    ASSIGN_OR_RETURN(const bool special, Flag(token, "special", false));
    if (special && !options_.parse_special_tokens) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool normalized, Flag(token, "normalized", !special));
    if (!normalized) {
      parts_.raw_tokens.Add(text, id);
    } else if (parts_.normalizes_to_nfc) {
      ASSIGN_OR_RETURN(const std::string in_text, ToNfc(text));
      parts_.normalized_tokens.Add(in_text, id);
    } else {
      parts_.normalized_tokens.Add(text, id);
    }
    if (text.find('\n') != std::string::npos) parts_.tokens_are_lines = false;
    return absl::OkStatus();
  }

  absl::Status ReadNormalizer(const Json& normalizer) {
    if (normalizer.is_null()) return absl::OkStatus();
    const std::string type = TypeOf(normalizer);
    if (type == "NFC") {
      parts_.normalizes_to_nfc = true;
      return absl::OkStatus();
    }
    if (type != "Sequence") return Unsupported(absl::StrCat("normalizer.type ", type));
    for (const Json& part : At(normalizer, "normalizers")) RETURN_IF_ERROR(ReadNormalizer(part));
    return absl::OkStatus();
  }

  absl::Status ReadPreTokenizer() {
    const Json& pre_tokenizer = At(root_, "pre_tokenizer");
    if (TypeOf(pre_tokenizer) == "Sequence") {
      for (const Json& part : At(pre_tokenizer, "pretokenizers")) RETURN_IF_ERROR(ReadCut(part));
    } else {
      RETURN_IF_ERROR(ReadCut(pre_tokenizer));
    }
    // Without it the vocabulary would not spell bytes.
    if (!has_byte_level_) return Unsupported("a pre_tokenizer without ByteLevel");
    const auto made = PreTokenizer::Create(rules_);
    if (!made.ok()) return Annotate(made.status(), "pre_tokenizer");
    parts_.pre_tokenizer = *made;
    return absl::OkStatus();
  }

  absl::Status ReadCut(const Json& cut) {
    const std::string type = TypeOf(cut);
    if (has_byte_level_)
      return Unsupported(absl::StrCat("pre_tokenizer ", type, " after ByteLevel"));
    if (type == "ByteLevel") return ReadByteLevel(cut);
    if (type == "Split") return ReadSplit(cut);
    if (type == "Digits") {
      ASSIGN_OR_RETURN(const bool individual, Flag(cut, "individual_digits", false));
      rules_.push_back({individual ? "\\p{N}" : "\\p{N}+", true});
      return absl::OkStatus();
    }
    return Unsupported(absl::StrCat("pre_tokenizer.type ", type.empty() ? "null" : type));
  }

  absl::Status ReadByteLevel(const Json& cut) {
    has_byte_level_ = true;
    ASSIGN_OR_RETURN(const bool use_regex, Flag(cut, "use_regex", true));
    ASSIGN_OR_RETURN(parts_.add_prefix_space, Flag(cut, "add_prefix_space", true));
    // There every piece would get a space.
    if (parts_.add_prefix_space && !rules_.empty()) {
      return Unsupported("pre_tokenizer ByteLevel.add_prefix_space after another pre_tokenizer");
    }
    if (use_regex) rules_.push_back({kGpt2Pattern, true});
    return absl::OkStatus();
  }

  absl::Status ReadSplit(const Json& cut) {
    const Json& pattern = At(cut, "pattern");
    PreTokenizer::Rule rule;
    if (At(pattern, "Regex").is_string()) {
      rule.pattern = pattern["Regex"].get<std::string>();
    } else if (At(pattern, "String").is_string()) {
      rule.pattern = QuotedPattern(pattern["String"].get<std::string>());
    } else {
      return Broken("pre_tokenizer Split.pattern", "has neither Regex nor String");
    }
    const Json& behavior = At(cut, "behavior");
    ASSIGN_OR_RETURN(const bool invert, Flag(cut, "invert", false));
    // Isolated cuts at both ends of a match: inverted or not is the same.
    rule.keeps_rest = behavior == "Isolated";
    if (!rule.keeps_rest && !(behavior == "Removed" && invert)) {
      return Unsupported(absl::StrCat("pre_tokenizer Split.behavior ", behavior.dump(),
                                      invert ? " inverted" : ""));
    }
    rules_.push_back(std::move(rule));
    return absl::OkStatus();
  }

  absl::Status FindEndOfText(const Json& config) {
    const Json& named = At(config, "eos_token");
    const Json& content = named.is_object() ? At(named, "content") : named;
    if (content.is_string()) {
      const auto found = parts_.ids.find(content.get<std::string>());
      if (found == parts_.ids.end()) {
        return Broken("tokenizer_config.json: eos_token",
                      absl::StrCat("is ", content.dump(), ", which the vocabulary does not have"));
      }
      parts_.end_of_text = found->second;
      return absl::OkStatus();
    }
    for (const char* name : kEndOfTextNames) {
      const auto found = parts_.ids.find(name);
      if (found == parts_.ids.end()) continue;
      parts_.end_of_text = found->second;
      break;
    }
    return absl::OkStatus();
  }

  const Json& root_;
  const TokenizerOptions options_;
  ByteLevelParts parts_;
  std::vector<PreTokenizer::Rule> rules_;
  bool has_byte_level_ = false;
};

absl::StatusOr<Json> ParseObject(std::string_view text) {
  auto json = ParseStrictJson(text, kMaxDepth);
  if (!json.ok()) return absl::InvalidArgumentError(json.status().message());
  if (!json->is_object()) return absl::InvalidArgumentError("it is no JSON object");
  return *std::move(json);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> ParseTokenizerJson(
    std::string_view text, std::string_view config, const TokenizerOptions& options) {
  ASSIGN_OR_RETURN(const Json root, ParseObject(text));
  Json config_json = Json::object();
  if (!config.empty()) {
    auto parsed = ParseObject(config);
    if (!parsed.ok()) return Annotate(parsed.status(), "tokenizer_config.json");
    config_json = *std::move(parsed);
  }
  return Reader(root, options).Read(config_json);
}

}  // namespace fsdp
