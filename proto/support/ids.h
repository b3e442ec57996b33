#ifndef FSDPCTL_PROTO_SUPPORT_IDS_H_
#define FSDPCTL_PROTO_SUPPORT_IDS_H_

// Strong types for identities, so that a worker's name cannot be passed where a job's id is meant.

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

namespace fsdp {

template <typename Tag, typename Value>
class StrongId {
 public:
  StrongId() = default;
  explicit StrongId(Value value) : value_(std::move(value)) {}
  [[nodiscard]] const Value& value() const { return value_; }

  friend bool operator==(const StrongId&, const StrongId&) = default;
  friend auto operator<=>(const StrongId&, const StrongId&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const StrongId& id) {
    return H::combine(std::move(hash), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, const StrongId& id) {
    return out << id.value_;
  }

 private:
  Value value_{};
};

// Without the "jobs/" of its resource name.
using JobId = StrongId<struct JobIdTag, std::string>;
// Without the "workers/" of its resource name.
using WorkerId = StrongId<struct WorkerIdTag, std::string>;
// One life of a worker process (random, 16 hex digits).
using Incarnation = StrongId<struct IncarnationTag, std::string>;
using Rank = StrongId<struct RankTag, std::int32_t>;
using AttemptNumber = StrongId<struct AttemptTag, std::int32_t>;
// Strictly increasing per job; 0 = none yet.
using Epoch = StrongId<struct EpochTag, std::int64_t>;

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_IDS_H_
