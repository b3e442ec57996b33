#ifndef FSDPCTL_COORDINATOR_RENDEZVOUS_RENDEZVOUS_H_
#define FSDPCTL_COORDINATOR_RENDEZVOUS_RENDEZVOUS_H_

// What the ranks of one epoch tell each other through the coordinator: a key-value store whose gets
// wait, and the comparison of what they see at the barrier. Pure; not thread-safe.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/store/record.pb.h"

namespace fsdp::coordinator {

class RendezvousTable {
 public:
  static constexpr size_t kMaxValueBytes = 64 << 10;
  static constexpr size_t kMaxNameBytes = 1024;
  // A world of 1024 ranks that all meet pairwise through one value each needs about 1000 per rank.
  static constexpr size_t kMaxEntriesPerRank = 4096;

  // Stores, and returns the ranks that waited for the value. A later put of the same name replaces
  // it.
  //   INVALID_ARGUMENT    the name or value is too long
  //   RESOURCE_EXHAUSTED  the epoch holds too many values
  absl::Status Put(const std::string& name, std::string value, size_t world_size,
                   std::vector<int>* waiters);
  // The value; absent: `rank` now waits for it.
  const std::string* Get(int rank, const std::string& name);
  void Clear();

 private:
  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<int>> waiters_;
};

struct Disagreement {
  int rank = 0;
  // One sentence that names rank, path and both values.
  std::string message;
};

// Compares the ranks that have joined so far. Rank 0 is the measure when it is among them, else the
// lowest.
std::optional<Disagreement> CompareJoined(
    const google::protobuf::RepeatedPtrField<fsdp::records::v1::MemberRecord>& members);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RENDEZVOUS_RENDEZVOUS_H_
