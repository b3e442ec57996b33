#include "worker/tokenize/added_tokens.h"

#include <algorithm>
#include <cstdint>
#include <functional>

namespace fsdp {

void AddedTokens::Add(const std::string& content, TokenId id) {
  ids_[content] = id;
  auto& sizes = sizes_[static_cast<std::uint8_t>(content[0])];
  if (std::find(sizes.begin(), sizes.end(), content.size()) != sizes.end()) return;
  sizes.push_back(content.size());
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
}

AddedTokens::Match AddedTokens::FindFrom(std::string_view text, std::size_t from) const {
  if (ids_.empty()) return {};
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const std::size_t size : sizes_[static_cast<std::uint8_t>(text[at])]) {
      if (size > text.size() - at) continue;
      const auto found = ids_.find(text.substr(at, size));
      if (found != ids_.end()) return {at, size, found->second};
    }
  }
  return {};
}

}  // namespace fsdp
