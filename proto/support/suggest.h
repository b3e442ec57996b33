#ifndef FSDPCTL_PROTO_SUPPORT_SUGGEST_H_
#define FSDPCTL_PROTO_SUPPORT_SUGGEST_H_

// What was probably meant by a name that does not exist.
//
// Thread rule: pure functions.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

// Edits (insert, delete, replace, swap of neighbours) from one to the other: optimal string
// alignment.
std::size_t EditDistance(std::string_view a, std::string_view b);

// The candidate that was probably meant by `typed`: a unique completion of it, or the nearest
// within a third of its length in edits (a swap of neighbours counts once); empty when there is
// none.
std::string Suggest(const std::string& typed, const std::vector<std::string>& candidates);

// "; did you mean X?" or nothing.
std::string DidYouMean(const std::string& typed, const std::vector<std::string>& candidates,
                       const std::string& prefix = "");

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_SUGGEST_H_
