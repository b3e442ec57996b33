#include "worker/data/token_manifest.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "proto/support/strict_json.h"
#include "worker/data/byte_stream.h"

namespace fsdp {
namespace {

constexpr int kMaxDepth = 8;

std::string TextAt(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t NumberAt(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream, ByteStream::Open(path, {path}));
  std::string text(static_cast<std::size_t>(stream->size_bytes()), '\0');
  RETURN_IF_ERROR(stream->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

absl::StatusOr<std::optional<TokenManifest>> ReadTokenManifest(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kTokenManifestName);
  const absl::StatusOr<std::string> text = ReadAll(path);
  if (absl::IsNotFound(text.status())) return std::optional<TokenManifest>();
  RETURN_IF_ERROR(text.status());
  const absl::StatusOr<nlohmann::json> json = ParseStrictJson(*text, kMaxDepth);
  if (!json.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is damaged (", json.status().message(),
                     "): make the shards again, or move it away to read them unchecked"));
  }
  const auto shards = json->find("shards");
  const auto tokenizer = json->find("tokenizer");
  if (shards == json->end() || !shards->is_array() || tokenizer == json->end() ||
      !tokenizer->is_object()) {
    return std::optional<TokenManifest>();
  }
  TokenManifest manifest;
  manifest.tokenizer =
      absl::StrCat(TextAt(*tokenizer, "kind"), " of hash ", TextAt(*tokenizer, "hash"));
  manifest.vocab_size = NumberAt(*tokenizer, "vocabSize");
  manifest.tokens = NumberAt(*json, "tokens");
  if (const auto counts = json->find("counts"); counts != json->end() && counts->is_object()) {
    manifest.text_bytes = NumberAt(*counts, "textBytes");
  }
  if (const auto separator = json->find("separator");
      separator != json->end() && separator->is_number_integer()) {
    manifest.separator = separator->get<std::int64_t>();
  }
  for (const auto& shard : *shards) {
    const auto crc = shard.is_object() ? shard.find("crc32c") : shard.end();
    if (crc == shard.end() || !crc->is_number_unsigned()) continue;
    manifest.shards[TextAt(shard, "file")] = crc->get<std::uint32_t>();
  }
  return std::optional<TokenManifest>(std::move(manifest));
}

}  // namespace fsdp
