#ifndef FSDPCTL_WORKER_TOKENIZE_TOKEN_SHARDS_H_
#define FSDPCTL_WORKER_TOKENIZE_TOKEN_SHARDS_H_

// The shards of a run, and how it goes on after a crash. Before a shard appears, a record in
// DIR/.progress says how the run goes on behind it; a shard counts as finished when both are there,
// and is never written again. At the end manifest.json describes all, and .progress goes.
//
// Thread rule: one thread. A shard is held in memory until it is full.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/data/token_file.h"
#include "worker/tokenize/bpe.h"
#include "worker/tokenize/documents.h"

namespace fsdp {

struct TokenShardsOptions {
  // Exists.
  std::string directory;
  TokenFileKind kind = kTokenFile16;
  std::int64_t shard_tokens = 100'000'000;
  // Of everything that the ids depend on: a run goes on only with its own.
  std::string identity;
};

class TokenShards {
 public:
  // Looks at what is in the directory.
  //   FAILED_PRECONDITION  another run's shards, finished or not
  //   DATA_LOSS            a record or manifest that does not parse
  static absl::StatusOr<TokenShards> Open(BlobStore* store, TokenShardsOptions options);

  // The directory holds the whole of this run.
  [[nodiscard]] bool complete() const { return complete_; }
  // The block to go on with; those before are done.
  [[nodiscard]] std::size_t next_block() const { return next_block_; }
  // Of the blocks before next_block().
  [[nodiscard]] const DocumentCounts& counts() const { return counts_; }
  [[nodiscard]] std::int64_t num_tokens() const;
  [[nodiscard]] std::size_t num_shards() const { return shards_.size(); }

  // The whole of block next_block().
  //   errors of BlobStore; the run may be opened again then
  absl::Status AddBlock(std::span<const TokenId> ids, const DocumentCounts& counts);
  // Writes what is left, then the manifest: `about` with "identity", "counts", "tokens" and
  // "shards" added.
  //   INVALID_ARGUMENT  there is not one token
  absl::Status Finish(nlohmann::ordered_json about);

  // Removes the shards, records and manifest of any run in `directory`.
  static absl::Status Clear(BlobStore* store, const std::string& directory);

 private:
  struct Shard {
    std::string file;
    std::int64_t num_tokens = 0;
    std::uint32_t crc32c = 0;
  };

  TokenShards(BlobStore* store, TokenShardsOptions options)
      : store_(store), options_(std::move(options)) {}
  absl::Status CheckManifest();
  absl::Status ReadRecords();
  // False: there is no finished shard `index`.
  absl::StatusOr<bool> ReadRecord(std::size_t index);
  absl::Status WriteShard();
  absl::Status Publish(const std::string& path, const std::string& folder,
                       std::span<const std::byte> bytes);
  [[nodiscard]] std::string RecordPath(std::size_t index) const;
  void Append(std::span<const TokenId> ids);

  BlobStore* store_;
  TokenShardsOptions options_;
  bool complete_ = false;
  std::size_t next_block_ = 0;
  // Of block next_block_, in the shards or in buffer_ already.
  std::int64_t tokens_of_block_ = 0;
  // As tokens_of_block_ was when the run went on: those are not written again.
  std::int64_t skip_ = 0;
  DocumentCounts counts_;
  std::vector<Shard> shards_;
  // Header and ids of the shard that grows.
  std::vector<std::byte> buffer_;
  std::int64_t buffer_tokens_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_TOKEN_SHARDS_H_
