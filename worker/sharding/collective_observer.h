#ifndef FSDPCTL_WORKER_SHARDING_COLLECTIVE_OBSERVER_H_
#define FSDPCTL_WORKER_SHARDING_COLLECTIVE_OBSERVER_H_

// Who wants to know about every collective of a rank: the flight recorder, the hang rule, faults in
// tests.

#include <cstdint>
#include <string_view>

namespace fsdp {

enum class CollectiveOp : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kBarrier
};

constexpr const char* NameOf(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllGather:
      return "all_gather";
    case CollectiveOp::kReduceScatter:
      return "reduce_scatter";
    case CollectiveOp::kAllReduce:
      return "all_reduce";
    case CollectiveOp::kBroadcast:
      return "broadcast";
    case CollectiveOp::kBarrier:
      return "barrier";
  }
  return "unknown";
}

// Thread rule: OnEnqueue comes from the step thread, in the order of launch, which is the same on
// every rank. OnStart and OnFinish come from whatever thread runs the stream (they are host calls
// in its order) and must neither block nor call the device. Devices without host calls never call
// them.
class CollectiveObserver {
 public:
  virtual ~CollectiveObserver() = default;
  // `name` is the unit ("layers.3") or "step_stats"; `bytes` the size of the larger side. Returns
  // the id that OnStart and OnFinish carry.
  virtual std::int64_t OnEnqueue(std::string_view name, CollectiveOp op, std::int64_t bytes) = 0;
  virtual void OnStart(std::int64_t id) = 0;
  virtual void OnFinish(std::int64_t id) = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_SHARDING_COLLECTIVE_OBSERVER_H_
