#ifndef FSDPCTL_WORKER_TRAIN_ENGINE_H_
#define FSDPCTL_WORKER_TRAIN_ENGINE_H_

// One rank of a sharded training run: the plan's arena, the weights' shard, and the step. Knows
// nothing of data sources, checkpoints or the control plane.
//
//   Engine::Create -> InitializeWeights (or fill OpenWeights() and call WeightsChanged) ->
//   Step...
//
// Thread rule: one thread, the device's step thread. All ranks call Create, Step and Evaluate in
// the same order with the same step numbers; a rank whose share is empty passes empty spans.
// Each collective is labelled (Communicator::SetLabel) with its unit's name, or "step_stats".
// Lifetime: device and communicators outlive the engine.
// After an error of Step or Evaluate the engine is dead: weights may be half updated, and its
// destructor aborts the communicators, so that nothing waits for peers.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job_record.pb.h"
#include "worker/checkpoint/shard_tensor.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/device/ops.h"
#include "worker/optim/schedule.h"
#include "worker/plan/plan.h"
#include "worker/profile/counters/launch_order.h"
#include "worker/profile/family_recorder.h"
#include "worker/profile/span_recorder.h"

namespace fsdp {

struct EngineOptions {
  OptimizerConfig optimizer;
  // True: Step waits for the device and returns its own figures. False: it returns the previous
  // step's, so that the host never waits; Flush returns the last.
  bool synchronous = true;
  // Work of the compute stream as device graphs, where the device has them. False: launch by
  // launch, for debugging; the same work in the same order.
  bool graphs = true;
  // Times every launch by events, so that families() has seconds on any device: about a microsecond
  // a launch, and no graphs. On the CPU launches are timed anyway.
  bool time_families = false;
  // The same in a few steps only (FamilySampler); the others count as much as those, so that
  // families() has seconds at next to no cost.
  bool sample_families = false;
};

struct StepInput {
  std::int64_t step = 1;  // from 1; Adam's bias correction
  double lr = 0;
  // This rank's share of the global batch, [sequences, S] each; Plan::split says how many
  // sequences.
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;
  // As Ops::AttentionForward's, of the same tokens; empty unless the plan has reset_attention.
  std::span<const std::int32_t> document_begins = {};
  // Of the reduced figures, so that all ranks leave the same update out; the same on every rank.
  StepBounds bounds = {};
};

struct StepResult {
  std::int64_t step = 0;  // 0: nothing yet (the first call in asynchronous mode)
  double loss = 0;        // mean over the valid tokens of all ranks, nats; 0 when there are none
  double grad_norm = 0;   // before clipping
  std::int64_t valid_tokens = 0;  // of all ranks
  // No update was made: no valid token, or one of the next two.
  bool skipped = false;
  bool non_finite = false;  // the loss, a gradient or their norm
  bool spike = false;       // loss or norm is above its bound
  double step_seconds = 0;
  double launch_gap_seconds = 0;  // between launches of the compute stream, with time_families
  v1::StepPhases phases;          // of this rank
};

// A rank's weights and moments between two steps, in host memory.
struct Snapshot {
  // In unit order; `remainder` is set where the master is kept split.
  std::vector<ShardTensor> tensors;
  // Reached when the copy is complete; until then `tensors` hold nothing.
  Event* copied = nullptr;
};

struct EvaluationResult {
  double loss_sum = 0;  // over the valid tokens of all ranks
  std::int64_t valid_tokens = 0;
};

struct MemoryUsage {
  std::string kind;
  std::int64_t now_bytes = 0;  // held between steps
  std::int64_t peak_bytes = 0;
};

class Engine {
 public:
  // `gather` and `scatter` are null at world size 1, and may be the same communicator. Rank and
  // world size come from them and must agree with the plan.
  //   INVALID_ARGUMENT    plan and communicators do not fit together
  //   RESOURCE_EXHAUSTED  the device cannot give the arena
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const Plan& plan,
                                                        const EngineOptions& options,
                                                        Device& device, Communicator* gather,
                                                        Communicator* scatter);
  virtual ~Engine() = default;

  // The plan for `input` with the device's own scratch sizes: what Create expects.
  static absl::StatusOr<Plan> PlanFor(PlanInput input, Device& device);
  // What attends in a step of `plan`: the kernels chosen for its largest micro-batch.
  static absl::StatusOr<AttentionKernels> AttentionFor(const Plan& plan, Device& device);

  // Random weights from the family's rules; the same at any world size. Moments become 0.
  virtual absl::Status InitializeWeights(std::uint64_t seed) = 0;
  // This rank's rows of every parameter, in unit order; also those that it holds no row of. With
  // bf16 weights the f32 masters are put together here, in the memory of the gradients: they are
  // good until the next Step or Evaluate. Whoever writes `master` calls WeightsChanged before that.
  virtual absl::StatusOr<std::vector<ShardTensor>> OpenWeights() = 0;
  // As OpenWeights, with the last step's summed gradient (not divided by the token count, before
  // clipping) as `master`; m and v empty. Good until the next Step, Evaluate or OpenWeights.
  virtual std::vector<ShardTensor> gradient_tensors() = 0;
  // Takes over what was written to the masters of the last OpenWeights.
  virtual absl::Status WeightsChanged() = 0;

  // Copies weights and moments as they are now to host memory, in the copy stream, without waiting.
  // The next step's forward and backward run beside it; its update waits for the copy, a unit at a
  // time. The snapshot is good until the next one is taken.
  //   FAILED_PRECONDITION  the plan has no async_checkpoint
  virtual absl::StatusOr<Snapshot> TakeSnapshot() = 0;

  // One optimizer step.
  //   FAILED_PRECONDITION  spans do not hold the rank's share; the engine is still usable
  //   INVALID_ARGUMENT     a token is outside the vocabulary, or no document can begin where one is
  //                        said to; names value and position; still usable
  //   others               of device and communicators, after which the engine is dead
  virtual absl::StatusOr<StepResult> Step(const StepInput& input) = 0;
  // Asynchronous mode: the last step's figures, waiting for the device.
  virtual absl::StatusOr<StepResult> Flush() = 0;

  // Launches and phases of the next steps also go to `spans`, which outlives them; null: to nobody.
  // Where launches are not timed by the host they then run one by one, without graphs, between
  // events. Synchronous mode.
  virtual void RecordSpans(SpanRecorder* spans) = 0;

  // Between the two calls it is kept what a step puts into the compute stream: for matching it with
  // a profiler's records of kernels.
  virtual void KeepLaunchOrder() = 0;
  virtual std::vector<ExpectedRun> TakeLaunchOrder() = 0;

  // Loss of `sequences` sequences of this rank without gradients. Every rank passes the same
  // `num_rounds`, the number of micro-batches it takes the largest share; see EvaluationRounds.
  // `document_begins` as Step's.
  virtual absl::StatusOr<EvaluationResult> Evaluate(std::span<const std::int32_t> tokens,
                                                    std::span<const std::int32_t> targets,
                                                    std::span<const std::int32_t> document_begins,
                                                    std::int64_t num_rounds) = 0;
  // Micro-batches that the largest share of `total_sequences` needs.
  [[nodiscard]] virtual std::int64_t EvaluationRounds(std::int64_t total_sequences) const = 0;

  // How long the step's launches of `families`, matmuls or attention, take alone, one behind the
  // other in their order: seconds a step, the mean of `repeats`. They read weights as they are and
  // normally distributed activations (a matrix unit draws less power, and runs faster, on zeros
  // and on what is not finite) and write beside the arena. World size 1. Activations and gradients
  // are spoilt.
  //   RESOURCE_EXHAUSTED  no room for the output beside the arena
  virtual absl::StatusOr<double> ReplaySeconds(std::span<const KernelFamily> families,
                                               int repeats) = 0;

  // Logits [S, V] f32 of one sequence, taken for one document, for tests of causality and for
  // parity; world size 1 only.
  virtual absl::Status Logits(std::span<const std::int32_t> tokens, std::span<float> logits) = 0;

  [[nodiscard]] virtual const Plan& plan() const = 0;
  // Plan::rank_exchange, for RankExchange; empty at world size 1.
  [[nodiscard]] virtual std::span<std::byte> exchange_memory() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual std::vector<MemoryUsage> memory() const = 0;
  // Since Create.
  [[nodiscard]] virtual const FamilyTable& families() const = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_ENGINE_H_
