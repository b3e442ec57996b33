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
#include "worker/profile/family_sampler.h"
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
  void RecordSpans(SpanRecorder* spans) override;
  void KeepLaunchOrder() override { graphs_.BeginOrder(); }
  std::vector<ExpectedRun> TakeLaunchOrder() override { return graphs_.EndOrder(); }
  absl::StatusOr<EvaluationResult> Evaluate(std::span<const std::int32_t> tokens,
                                            std::span<const std::int32_t> targets,
                                            std::span<const std::int32_t> document_begins,
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

  // Bytes of host memory that Create allocates: two results, and two batches that are staged.
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
    double host_idle_seconds = 0;
    TimeBase begin = {};        // of the device's work
    double launch_seconds = 0;  // of all launches before it, where the host times them
    bool timed = false;         // its launches, by events
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

  // Sequences in host memory, [n, S] each.
  struct HostBatch {
    std::span<const std::int32_t> tokens, targets, document_begins;
  };
  absl::Status CheckBatch(const HostBatch& batch, std::int64_t sequences) const;
  absl::Status CheckDocuments(std::span<const std::int32_t> begins, std::size_t expected) const;
  // Copies a batch to the device by way of staged memory, where what a plan of documents has
  // besides waits for OpenBatch.
  absl::Status StageBatch(const HostBatch& batch);
  // Of the staged batch, what is on the device of some of its sequences. It holds until the next
  // call: document_begins and position_ids have room for one micro-batch.
  absl::StatusOr<ModelBatch> OpenBatch(std::int64_t first_sequence, std::int64_t sequences);
  // Elements of each part of a staged batch.
  static std::int64_t ShareTokens(const Plan& plan) {
    return plan.split.Share(0).count * plan.input.sequence_length;
  }
  // Part `part` (tokens, targets, document_begins, position_ids) of this slot's staged batch.
  [[nodiscard]] std::int32_t* Staged(int part) const;

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
  // Whether the launches of the next step are timed by events, one by one.
  [[nodiscard]] bool TimesNextStep() const;
  // The seconds between launches of the compute stream, and those of its families into the
  // recorder.
  absl::StatusOr<double> CollectLaunches(const Pending& pending, std::size_t slot,
                                         double busy_seconds);
  // Of the compute stream's families together.
  [[nodiscard]] double LaunchSeconds() const;
  absl::Status AddPhaseSpans(StepTimeline& timeline, const TimeBase& base);
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
  FamilySampler sampler_;
  StepTimeline evaluation_timeline_;
  std::unique_ptr<Event> snapshot_begins_;
  std::vector<std::unique_ptr<Event>> snapshot_copied_;  // by unit
  bool snapshot_pending_ = false;                        // no update has waited for it yet
  SpanRecorder* spans_ = nullptr;
  std::size_t slot_ = 0;  // of the current step
  std::optional<Pending> pending_;
  absl::Status dead_;
  std::int64_t num_steps_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_ENGINE_IMPL_H_
