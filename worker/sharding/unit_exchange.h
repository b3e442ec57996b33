#ifndef FSDPCTL_WORKER_SHARDING_UNIT_EXCHANGE_H_
#define FSDPCTL_WORKER_SHARDING_UNIT_EXCHANGE_H_

// Moves units between shards and unit buffers: gathers weights before a stage computes, scatters
// gradients after it. At world size 1 the shard is the unit and nothing moves.
//
// A stage's weights are SHARDED, GATHERING (asked for, in the gather stream) or UNSHARDED (the
// compute stream waits for them from here on). Synchronisation is by events only:
// - a gather starts after everything that the compute stream had been given when it was asked for,
//   so the memory it writes is free (the plan's lifetimes count on it);
// - a scatter starts after the stage's backward; WaitScatter makes the compute stream wait for it.
//
// Thread rule: the step thread. Collectives are issued in the same order on every rank.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/device/ops.h"
#include "worker/model/arena_view.h"
#include "worker/model/unit_view.h"
#include "worker/optim/segments.h"
#include "worker/profile/family_recorder.h"
#include "worker/sharding/step_timeline.h"

namespace fsdp {

enum class Pass : std::uint8_t { kForward, kBackward };

class UnitExchange {
 public:
  // Communicators are null at world size 1; one communicator for both shares the gather stream.
  UnitExchange(const ArenaView& arena, Device& device, FamilyRecorder& recorder,
               Communicator* gather, Communicator* scatter, int rank);

  // Marks of this step go to `timeline`, until the next call.
  void BeginStep(StepTimeline* timeline);
  // The weights have changed: whatever is unsharded is stale.
  void InvalidateWeights();

  // Asks for a stage's weights; does nothing when they are on their way or there.
  absl::Status Prefetch(int stage, Pass pass);
  // The stage's weights, for the compute stream; asks for them first when nobody has.
  absl::StatusOr<UnitView> Acquire(int stage, Pass pass);
  // The stage's weights are no longer needed in this pass. `keep`: they stay for backward.
  void Release(int stage, bool keep);

  // Where the stage's backward writes the unit's gradients.
  [[nodiscard]] UnitView Gradients(int stage) const;
  [[nodiscard]] Vector GradientBuffer(int stage) const;
  // At world size 1, or where several stages share a unit: gradients are added to what is there.
  [[nodiscard]] bool sharded() const { return gather_ != nullptr; }

  // Sends the stage's gradients off. `first`: they are the unit's first of the step and replace
  // what the shard holds. `last`: the unit's sum is complete, its statistics are added to `stats`.
  absl::Status Scatter(int stage, bool first, bool last, StepStats* stats);
  // The compute stream waits until the stage's last scatter, if any, has ended.
  absl::Status WaitScatter(int stage, SpanKind kind);
  // All that is pending.
  absl::Status WaitScatters();
  // Sums `stats` over the ranks after everything above; the compute stream waits for it.
  absl::Status ReduceStats(StepStats* stats);

  // A rank's slice of a unit in the flat shard, as gathered and as reduced.
  [[nodiscard]] Vector GatherSource(int unit) const;
  [[nodiscard]] Vector GradientShard(int unit) const;

 private:
  enum class State : std::uint8_t { kSharded, kGathering, kUnsharded };
  struct StageState {
    State weights = State::kSharded;
    BufferId held = kNoBuffer;   // the buffer that is being filled or is full
    Event* gathered = nullptr;   // of kGathering
    Event* scattered = nullptr;  // pending scatter
  };

  [[nodiscard]] BufferId WeightsBuffer(int stage, Pass pass) const;
  [[nodiscard]] const UnitPlan& UnitOf(int stage) const;
  absl::Status AddGradStats(int unit, Stream& stream, StepStats* stats);
  absl::Status IssueGather(int stage, BufferId buffer);
  absl::Status ReduceInto(int stage, bool first);

  ArenaView arena_;
  const Plan& plan_;
  Device& device_;
  FamilyRecorder& recorder_;
  Communicator* gather_;
  Communicator* scatter_;
  Stream& gather_stream_;
  Stream& scatter_stream_;
  StepTimeline* timeline_ = nullptr;
  std::vector<StageState> stages_;
  std::vector<std::vector<ElementRun>> runs_;  // by unit
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_SHARDING_UNIT_EXCHANGE_H_
