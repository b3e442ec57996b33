#ifndef FSDPCTL_COORDINATOR_ERRORS_NOT_LEADER_H_
#define FSDPCTL_COORDINATOR_ERRORS_NOT_LEADER_H_

// The reason NOT_LEADER: nothing has happened, and another coordinator is to be asked. `leader` in
// its metadata is that one's address; empty: not known, or none leads at the moment.
//
// Pure functions, thread-safe.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"

namespace fsdp::coordinator {

inline absl::Status WithNotLeader(absl::Status status, const std::string& leader) {
  return WithInfo(std::move(status), "NOT_LEADER", {{"leader", leader}});
}

inline bool IsNotLeader(const absl::Status& status) { return ReasonOf(status) == "NOT_LEADER"; }

//   UNAVAILABLE  from one that stands by
inline absl::Status StandsBy(const std::string& leader) {
  return WithNotLeader(
      absl::UnavailableError(leader.empty()
                                 ? "this coordinator stands by, and none leads at the moment: ask "
                                   "again, here or at another of its addresses"
                                 : absl::StrCat("this coordinator stands by; the one at ", leader,
                                                " leads: ask there")),
      leader);
}

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_ERRORS_NOT_LEADER_H_
