#include "worker/tokenize/token_shards.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "proto/support/strict_json.h"
#include "worker/data/token_manifest.h"

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kProgressFolder[] = ".progress";
constexpr int kMaxDepth = 8;

std::string ShardName(std::size_t index) { return absl::StrFormat("tokens_%06d.bin", index); }

bool IsShardName(const std::string& name) {
  return absl::StartsWith(name, "tokens_") && absl::EndsWith(name, ".bin");
}

Json ToJson(const DocumentCounts& counts) {
  return {{"documents", counts.documents},
          {"emptyDocuments", counts.empty_documents},
          {"sourceBytes", counts.source_bytes},
          {"textBytes", counts.text_bytes},
          {"replacedSequences", counts.replaced}};
}

// Absent values are 0; the caller checks what must be there.
std::int64_t NumberAt(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

DocumentCounts CountsFrom(const nlohmann::json& json) {
  DocumentCounts counts;
  counts.documents = NumberAt(json, "documents");
  counts.empty_documents = NumberAt(json, "emptyDocuments");
  counts.source_bytes = NumberAt(json, "sourceBytes");
  counts.text_bytes = NumberAt(json, "textBytes");
  counts.replaced = NumberAt(json, "replacedSequences");
  return counts;
}

std::string TextAt(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

absl::StatusOr<nlohmann::json> ReadJson(BlobStore* store, const std::string& path) {
  ASSIGN_OR_RETURN(const auto reader, store->Open(path));
  std::string text(reader->size_bytes(), '\0');
  RETURN_IF_ERROR(reader->ReadAt(0, std::as_writable_bytes(std::span(text))));
  auto json = ParseStrictJson(text, kMaxDepth);
  if (json.ok() && !json->is_object()) json = absl::DataLossError("it is no object");
  if (!json.ok()) return Annotate(json.status(), absl::StrCat(path, " is damaged"));
  return json;
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

absl::StatusOr<TokenShards> TokenShards::Open(BlobStore* store, TokenShardsOptions options) {
  TokenShards shards(store, std::move(options));
  RETURN_IF_ERROR(shards.CheckManifest());
  if (shards.complete_) {
    // Still there when the process was killed right behind the manifest.
    RETURN_IF_ERROR(
        store->RemoveTree(absl::StrCat(shards.options_.directory, "/", kProgressFolder)));
    return shards;
  }
  RETURN_IF_ERROR(
      store->CreateDirectory(absl::StrCat(shards.options_.directory, "/", kProgressFolder)));
  RETURN_IF_ERROR(shards.ReadRecords());
  return shards;
}

absl::Status TokenShards::Clear(BlobStore* store, const std::string& directory) {
  // Without its manifest the run is not complete; then the shards go, then how to go on.
  ASSIGN_OR_RETURN(const std::vector<std::string> names, store->List(directory));
  for (const std::string& name : names) {
    if (name == kTokenManifestName)
      RETURN_IF_ERROR(store->Remove(absl::StrCat(directory, "/", name)));
  }
  for (const std::string& name : names) {
    if (IsShardName(name)) RETURN_IF_ERROR(store->Remove(absl::StrCat(directory, "/", name)));
  }
  RETURN_IF_ERROR(store->RemoveTree(absl::StrCat(directory, "/", kProgressFolder)));
  return store->SyncDirectory(directory);
}

std::int64_t TokenShards::num_tokens() const {
  std::int64_t sum = buffer_tokens_;
  for (const Shard& shard : shards_) sum += shard.num_tokens;
  return sum;
}

std::string TokenShards::RecordPath(std::size_t index) const {
  return absl::StrCat(options_.directory, "/", kProgressFolder, "/",
                      absl::StrFormat("%06d.json", index));
}

absl::Status TokenShards::CheckManifest() {
  const auto manifest = ReadJson(store_, absl::StrCat(options_.directory, "/", kTokenManifestName));
  if (absl::IsNotFound(manifest.status())) return absl::OkStatus();
  RETURN_IF_ERROR(manifest.status());
  if (TextAt(*manifest, "identity") != options_.identity) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.directory,
                     " holds the tokens of another run (other sources, tokenizer or "
                     "options); give another --output, or --overwrite"));
  }
  complete_ = true;
  for (const auto& shard : (*manifest)["shards"]) {
    shards_.push_back({TextAt(shard, "file"), NumberAt(shard, "tokens"), 0});
  }
  const nlohmann::json& counts = (*manifest)["counts"];
  counts_ = CountsFrom(counts);
  return absl::OkStatus();
}

absl::Status TokenShards::ReadRecords() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool finished, ReadRecord(shards_.size()));
    if (!finished) break;
  }
  skip_ = tokens_of_block_;
  tokens_of_block_ = 0;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, store_->List(options_.directory));
  for (const std::string& name : names) {
    if (!IsShardName(name) || name < ShardName(shards_.size())) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(options_.directory, "/", name,
                     " is of no run that could go on; give another --output, or --overwrite"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TokenShards::ReadRecord(std::size_t index) {
  const std::string path = absl::StrCat(options_.directory, "/", ShardName(index));
  const auto shard = store_->Open(path);
  if (absl::IsNotFound(shard.status())) return false;
  RETURN_IF_ERROR(shard.status());
  const auto record = ReadJson(store_, RecordPath(index));
  if (absl::IsNotFound(record.status())) return false;
  RETURN_IF_ERROR(record.status());
  if (TextAt(*record, "identity") != options_.identity) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.directory,
                     " holds an unfinished run with other sources, tokenizer or options; "
                     "give another --output, or --overwrite"));
  }
  const std::int64_t tokens = NumberAt(*record, "tokens");
  const std::int64_t expected = kTokenFileHeaderBytes + tokens * options_.kind.token_bytes;
  if (static_cast<std::int64_t>((*shard)->size_bytes()) != expected) {
    return absl::DataLossError(absl::StrCat(path, " has ", (*shard)->size_bytes(), " bytes, not ",
                                            expected, ": it was changed; use --overwrite"));
  }
  shards_.push_back(
      {ShardName(index), tokens, static_cast<std::uint32_t>(NumberAt(*record, "crc32c"))});
  next_block_ = static_cast<std::size_t>(NumberAt(*record, "nextBlock"));
  tokens_of_block_ = NumberAt(*record, "tokensOfBlock");
  counts_ = CountsFrom(*record);
  return true;
}

absl::Status TokenShards::AddBlock(std::span<const TokenId> ids, const DocumentCounts& counts) {
  tokens_of_block_ = std::min(skip_, static_cast<std::int64_t>(ids.size()));
  ids = ids.subspan(static_cast<std::size_t>(tokens_of_block_));
  skip_ = 0;
  while (!ids.empty()) {
    const auto room = static_cast<std::size_t>(options_.shard_tokens - buffer_tokens_);
    const std::size_t count = std::min(room, ids.size());
    Append(ids.first(count));
    ids = ids.subspan(count);
    tokens_of_block_ += static_cast<std::int64_t>(count);
    if (buffer_tokens_ == options_.shard_tokens) RETURN_IF_ERROR(WriteShard());
  }
  counts_ += counts;
  ++next_block_;
  tokens_of_block_ = 0;
  return absl::OkStatus();
}

void TokenShards::Append(std::span<const TokenId> ids) {
  const auto width = static_cast<std::size_t>(options_.kind.token_bytes);
  if (buffer_.empty()) buffer_.resize(kTokenFileHeaderBytes);
  std::size_t at = buffer_.size();
  buffer_.resize(at + ids.size() * width);
  for (const TokenId id : ids) {
    // Little-endian: the low bytes come first.
    std::memcpy(&buffer_[at], &id, width);
    at += width;
  }
  buffer_tokens_ += static_cast<std::int64_t>(ids.size());
}

absl::Status TokenShards::WriteShard() {
  const std::array<std::int32_t, 3> header = {options_.kind.magic, options_.kind.version,
                                              static_cast<std::int32_t>(buffer_tokens_)};
  std::memcpy(buffer_.data(), header.data(), sizeof(header));
  const Shard shard{ShardName(shards_.size()), buffer_tokens_, Crc32c(buffer_)};
  Json record = ToJson(counts_);
  record["identity"] = options_.identity;
  record["tokens"] = shard.num_tokens;
  record["crc32c"] = shard.crc32c;
  record["nextBlock"] = next_block_;
  record["tokensOfBlock"] = tokens_of_block_;
  RETURN_IF_ERROR(Publish(RecordPath(shards_.size()),
                          absl::StrCat(options_.directory, "/", kProgressFolder),
                          BytesOf(record.dump())));
  RETURN_IF_ERROR(
      Publish(absl::StrCat(options_.directory, "/", shard.file), options_.directory, buffer_));
  shards_.push_back(shard);
  buffer_.clear();
  buffer_tokens_ = 0;
  return absl::OkStatus();
}

absl::Status TokenShards::Publish(const std::string& path, const std::string& folder,
                                  std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const auto writer, store_->Create(path));
  RETURN_IF_ERROR(writer->Append(bytes));
  RETURN_IF_ERROR(writer->Sync());
  RETURN_IF_ERROR(writer->Publish());
  return store_->SyncDirectory(folder);
}

absl::Status TokenShards::Finish(Json about) {
  if (buffer_tokens_ > 0) RETURN_IF_ERROR(WriteShard());
  if (shards_.empty()) {
    return absl::InvalidArgumentError("the sources hold not one token; name files with text");
  }
  about["identity"] = options_.identity;
  about["counts"] = ToJson(counts_);
  about["tokens"] = num_tokens();
  about["shards"] = Json::array();
  for (const Shard& shard : shards_) {
    about["shards"].push_back(
        {{"file", shard.file}, {"tokens", shard.num_tokens}, {"crc32c", shard.crc32c}});
  }
  // A path need not be UTF-8.
  const std::string text =
      about.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
  RETURN_IF_ERROR(Publish(absl::StrCat(options_.directory, "/", kTokenManifestName),
                          options_.directory, BytesOf(text)));
  complete_ = true;
  return store_->RemoveTree(absl::StrCat(options_.directory, "/", kProgressFolder));
}

}  // namespace fsdp
