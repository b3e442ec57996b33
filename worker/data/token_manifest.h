#ifndef FSDPCTL_WORKER_DATA_TOKEN_MANIFEST_H_
#define FSDPCTL_WORKER_DATA_TOKEN_MANIFEST_H_

// The manifest.json that fsdp-tokenize writes beside its shards, as far as their readers need it.
//
// Thread rule: stateless.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace fsdp {

inline constexpr char kTokenManifestName[] = "manifest.json";

// Of fsdp-tokenize: changes when the same sources and options give other ids or shards.
inline constexpr std::uint64_t kTokenizeVersion = 1;

struct TokenManifest {
  std::map<std::string, std::uint32_t> shards;  // CRC-32C of the whole file, by name
  std::string tokenizer;                        // wherever it lies: "bpe of hash 0123456789abcdef"
  std::int64_t vocab_size = 0;                  // of the tokenizer; 0: not known
  std::optional<std::int64_t> separator;        // the token that ends a document
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;  // of the documents; 0: not known
};

// Nothing where a folder has none, or one of another program.
//   INVALID_ARGUMENT  it is no JSON
//   otherwise         it cannot be read
absl::StatusOr<std::optional<TokenManifest>> ReadTokenManifest(const std::string& folder);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_TOKEN_MANIFEST_H_
