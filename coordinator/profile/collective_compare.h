#ifndef FSDPCTL_COORDINATOR_PROFILE_COLLECTIVE_COMPARE_H_
#define FSDPCTL_COORDINATOR_PROFILE_COLLECTIVE_COMPARE_H_

// What the last collectives of all ranks say together: the first place at which they part. All
// ranks issue the same collectives in the same order, so their records are compared by sequence.
//
// Pure, thread-safe.

#include <map>
#include <string>
#include <vector>

#include "fsdp/v1/worker_service.pb.h"

namespace fsdp::coordinator {

struct CollectiveVerdict {
  // One sentence. Never empty.
  std::string message;
  // The ranks to look at: those that did something else, or have not come to what others wait in.
  // Empty: no rank stands out.
  std::vector<int> ranks;
  // "all_gather layers.3, sequence 4711"; empty where all are at the same place.
  std::string collective;
};

// `dumps` by rank. `silent`: why there is no dump, by rank; such a rank is to blame for what others
// wait in when nobody else is.
CollectiveVerdict CompareCollectives(const std::map<int, v1::CollectiveDump>& dumps,
                                     const std::map<int, std::string>& silent);

// The same of a job that need not hang: ranks that move are never at quite the same place, so who
// waits for whom is only told when a collective has been pending for long. `pending_seconds`: the
// longest of any rank.
CollectiveVerdict DescribeCollectives(const std::map<int, v1::CollectiveDump>& dumps,
                                      const std::map<int, std::string>& silent,
                                      double pending_seconds);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_PROFILE_COLLECTIVE_COMPARE_H_
