#ifndef FSDPCTL_WORKER_TOKENIZE_BPE_H_
#define FSDPCTL_WORKER_TOKENIZE_BPE_H_

// Byte-pair encoding of one piece: the adjacent pair with the lowest rank is merged, the leftmost
// of equals first, until no pair has a rank.
//
// Thread rule: a BpeModel is thread-safe; a BpeEncoder is one thread's and outlived by the model.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace fsdp {

using TokenId = std::uint32_t;

class BpeModel {
 public:
  struct Merge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId merged = 0;
  };
  struct Options {
    // The bytes of each token; those that no text has (special tokens) are left out.
    std::vector<std::pair<std::string, TokenId>> tokens;
    // In rank order; of a pair that appears twice the last one counts.
    std::vector<Merge> merges;
    // A piece that is a token is that token, whatever the merges make of it.
    bool ignore_merges = false;
  };

  //   INVALID_ARGUMENT  a byte that valid text can hold is no token
  static absl::StatusOr<BpeModel> Create(Options options);

 private:
  friend class BpeEncoder;
  static constexpr std::uint32_t kNoRank = 0xffffffff;
  struct Slot {
    std::uint64_t pair = 0;
    std::uint32_t rank = kNoRank;
    TokenId merged = 0;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  BpeModel() = default;
  void Insert(const Merge& merge, std::uint32_t rank);
  // A slot with kNoRank when the pair does not merge.
  [[nodiscard]] const Slot& Find(TokenId left, TokenId right) const;

  std::array<TokenId, 256> id_of_byte_{};
  // Open addressing; the number of slots is a power of two.
  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
  int shift_ = 0;
  // Only with ignore_merges.
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> whole_;
};

class BpeEncoder {
 public:
  explicit BpeEncoder(std::shared_ptr<const BpeModel> model);

  // Appends the ids of `piece`.
  void Encode(std::string_view piece, std::vector<TokenId>* ids);

 private:
  static constexpr std::size_t kMaxKeyBytes = 32;
  static constexpr std::size_t kMaxCachedIds = 7;
  // A cache line. A piece's bytes are read as words that overlap, so the size belongs to the key.
  struct alignas(64) CacheEntry {
    std::array<std::uint64_t, 4> key{};
    std::array<TokenId, kMaxCachedIds> ids{};
    std::uint8_t size_bytes = 0;  // 0: empty
    std::uint8_t num_ids = 0;
  };
  struct Node {
    TokenId id = 0;
    std::uint32_t rank = 0;  // of this and the next
    TokenId merged = 0;
  };

  void EncodeUncached(std::string_view piece, std::vector<TokenId>* ids);
  // Looks through all pairs at each merge.
  void MergeShort(std::vector<TokenId>* ids);
  // Keeps the pairs in a heap: a page of one letter does not take a square of its length.
  void MergeLong(std::vector<TokenId>* ids);
  void Rate(Node* node, const Node& next) const;

  const std::shared_ptr<const BpeModel> model_;
  std::vector<CacheEntry> cache_;
  std::vector<Node> nodes_;
  struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t at = 0;
    TokenId left = 0;
    TokenId right = 0;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<Candidate> heap_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> previous_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_BPE_H_
