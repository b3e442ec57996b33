#ifndef FSDPCTL_CLIENT_SUGGEST_H_
#define FSDPCTL_CLIENT_SUGGEST_H_

#include <string>
#include <vector>

namespace fsdp {

// The candidate that was probably meant by `typed`: a unique completion of it, or the nearest
// within a third of its length in edits (a swap of neighbours counts once); empty when there is
// none.
std::string Suggest(const std::string& typed, const std::vector<std::string>& candidates);

// "; did you mean X?" or nothing.
std::string DidYouMean(const std::string& typed, const std::vector<std::string>& candidates,
                       const std::string& prefix = "");

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_SUGGEST_H_
