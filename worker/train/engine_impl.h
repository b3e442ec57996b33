#ifndef FSDPCTL_WORKER_TRAIN_ENGINE_IMPL_H_
#define FSDPCTL_WORKER_TRAIN_ENGINE_IMPL_H_

// The engine's state. engine.cc builds it and holds the weights, engine_step.cc is the training
// step, engine_evaluate.cc the passes without gradients, engine_snapshot.cc the copy that a
// checkpoint is written from, engine_replay.cc parts of a step alone.

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "worker/device/ops.h"
#include "worker/model/arena_view.h"
#include "worker/model/transformer.h"
#include "worker/profile/event_launch_timer.h"
#include "worker/sharding/step_timeline.h"
#include "worker/sharding/unit_exchange.h"
#include "worker/train/engine.h"
#include "worker/train/stage_graphs.h"

namespace fsdp {

// What the plan's `stats` buffer holds. Two sets alternate, so that the host may read one while the
// next step fills the other.
struct DeviceScalars {
  std::array<StepStats, 2> stats;
  std::array<UpdateScalars, 2> update;
  std::array<StepScalars, 2> step;
  StepStats evaluation;
};
static_assert(sizeof(DeviceScalars) <= kStatsBytes, "Plan::stats has no room for them");

class EngineImpl final : public Engine {
 public:
  EngineImpl(const Plan& plan, const EngineOptions& options, Device& device, Communicator* gather,
             Communicator* scatter, std::unique_ptr<DeviceBuffer> arena,
             std::unique_ptr<DeviceBuffer> host, std::unique_ptr<DeviceBuffer> snapshot);
  ~EngineImpl() override;

  absl::Status Start();

  absl::Status InitializeWeights(std::uint64_t seed) override;
  absl::StatusOr<std::vector<ShardTensor>> OpenWeights() override;
  std::vector<ShardTensor> gradient_tensors() override;
  absl::Status WeightsChanged() override;
  absl::StatusOr<Snapshot> TakeSnapshot() override;
  absl::StatusOr<StepResult> Step(const StepInput& input) override;
  absl::StatusOr<StepResult> Flush() override;
  absl::StatusOr<EvaluationResult> Evaluate(std::span<const std::int32_t> tokens,
                                            std::span<const std::int32_t> targets,
                                            std::int64_t num_rounds) override;
  [[nodiscard]] std::int64_t EvaluationRounds(std::int64_t total_sequences) const override;
  absl::StatusOr<double> ReplaySeconds(std::span<const KernelFamily> families,
                                       int repeats) override;
  absl::Status Logits(std::span<const std::int32_t> tokens, std::span<float> logits) override;
  [[nodiscard]] const Plan& plan() const override { return plan_; }
  [[nodiscard]] std::span<std::byte> exchange_memory() const override {
    return plan_.rank_exchange == kNoBuffer ? std::span<std::byte>()
                                            : arena_.Bytes(plan_.rank_exchange);
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] std::vector<MemoryUsage> memory() const override;
  [[nodiscard]] const FamilyTable& families() const override { return recorder_.totals(); }

  // Bytes of host memory that Create allocates: staged tokens and targets, two results.
  static std::int64_t HostBytes(const Plan& plan);

 private:
  // A step's figures: as the device wrote them, and what the host uploads for it.
  struct HostResult {
    StepStats stats;
    UpdateScalars update;
    StepScalars step;
  };
  // A step whose figures the host has not looked at.
  struct Pending {
    std::int64_t step = 0;
    double wall_seconds = 0;  // 0: by the device's clock
  };

  [[nodiscard]] std::vector<ShardTensor> Tensors(bool gradients) const;
  // A unit's slice of one of the plan's flat arrays.
  [[nodiscard]] Vector Slice(BufferId id, DType dtype, const UnitPlan& unit) const;
  absl::Status UpdateUnits(const AdamWOptions& options);
  absl::Status UpdateUnit(std::size_t unit, const AdamWOptions& options);
  // The compute stream waits for the part of a snapshot that `unit`'s update would write over.
  absl::Status WaitForSnapshot(std::size_t unit);
  // The host waits for a snapshot that is still being copied.
  absl::Status FinishSnapshot();
  absl::Status CopyForSnapshot(std::size_t unit);
  [[nodiscard]] std::vector<ShardTensor> SnapshotTensors() const;
  absl::Status UploadRopeTables();
  absl::Status Upload(const Vector& to, const std::vector<double>& values);

  absl::Status CheckTokens(std::span<const std::int32_t> tokens,
                           std::span<const std::int32_t> targets, std::int64_t sequences) const;
  // Copies host tokens to the device by way of staged memory.
  absl::Status StageBatch(std::span<const std::int32_t> tokens,
                          std::span<const std::int32_t> targets);
  [[nodiscard]] ModelBatch BatchAt(std::int64_t first_sequence, std::int64_t sequences) const;

  // Forward up to the head, without it. `train`: the last block's weights stay for backward.
  absl::Status ForwardBlocks(const ModelBatch& batch, bool train);
  // The model's work of one stage, as a graph where the device has them.
  absl::Status ForwardStage(int stage, const ModelBatch& batch, const UnitView& weights);
  absl::Status HeadStage(const ModelBatch& batch, const UnitView& weights,
                         const GradientTarget& gradients);
  absl::Status BackwardStage(int stage, const ModelBatch& batch, const UnitView& weights,
                             const GradientTarget& gradients);
  absl::Status Head(const ModelBatch& batch, std::int64_t micro_batch);
  absl::Status BackwardBlock(int stage, const ModelBatch& batch, std::int64_t micro_batch);
  absl::Status BackwardEmbed(const ModelBatch& batch, std::int64_t micro_batch);
  absl::Status MicroBatch(std::int64_t index);
  // Where a stage's backward writes, cleared first where it only adds.
  absl::StatusOr<GradientTarget> PrepareGradients(int stage, bool empty, std::int64_t micro_batch);
  absl::Status ScatterStage(int stage, std::int64_t micro_batch);
  absl::Status Update(const StepInput& input);
  absl::Status ReadBack();
  absl::Status RunStep(const StepInput& input);
  absl::StatusOr<StepResult> Collect(const Pending& pending, std::size_t slot);
  absl::Status CheckAllocations(std::int64_t before);
  // Normally distributed numbers into all memory that activations share, as bf16 or f32.
  absl::Status FillActivations();
  [[nodiscard]] absl::Status CheckPeers() const;
  // None, one or two.
  [[nodiscard]] std::vector<Communicator*> communicators() const;

  [[nodiscard]] int head_stage() const { return static_cast<int>(plan_.stages.size()) - 1; }
  [[nodiscard]] DeviceScalars* scalars() const {
    return static_cast<DeviceScalars*>(arena_.Address(plan_.stats));
  }
  [[nodiscard]] StepStats* stats() const { return &scalars()->stats[slot_]; }
  [[nodiscard]] HostResult* host_result(std::size_t slot) const;

  const Plan plan_;
  const EngineOptions options_;
  Device& device_;
  Communicator* const gather_;  // null at world size 1
  Communicator* const scatter_;
  const int rank_;
  std::unique_ptr<DeviceBuffer> arena_memory_;
  std::unique_ptr<DeviceBuffer> host_memory_;
  std::unique_ptr<DeviceBuffer> snapshot_memory_;  // null without async_checkpoint
  const ArenaView arena_;
  FamilyRecorder recorder_;
  Transformer model_;
  UnitExchange exchange_;
  StageGraphs graphs_;
  std::vector<std::vector<DecaySegment>> segments_;  // by unit
  std::array<StepTimeline, 2> timelines_;
  std::array<EventLaunchTimer, 2> launch_timers_;
  StepTimeline evaluation_timeline_;
  std::unique_ptr<Event> snapshot_begins_;
  std::vector<std::unique_ptr<Event>> snapshot_copied_;  // by unit
  bool snapshot_pending_ = false;                        // no update has waited for it yet
  std::size_t slot_ = 0;                                 // of the current step
  std::optional<Pending> pending_;
  absl::Status dead_;
  std::int64_t num_steps_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_ENGINE_IMPL_H_
