#ifndef FSDPCTL_WORKER_TOKENIZE_ADDED_TOKENS_H_
#define FSDPCTL_WORKER_TOKENIZE_ADDED_TOKENS_H_

// Finds the tokens that are taken out of a text before anything else looks at it. Thread-safe.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "worker/tokenize/bpe.h"

namespace fsdp {

class AddedTokens {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t size = 0;  // 0: there is none
    TokenId id = 0;
  };

  // `content` is not empty.
  void Add(const std::string& content, TokenId id);
  [[nodiscard]] bool empty() const { return ids_.empty(); }
  // The first token in `text` from `from` on; of those that begin there the longest.
  [[nodiscard]] Match FindFrom(std::string_view text, std::size_t from) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  // By first byte: the sizes that begin with it, largest first.
  std::array<std::vector<std::size_t>, 256> sizes_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_ADDED_TOKENS_H_
