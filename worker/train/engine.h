#ifndef FSDPCTL_WORKER_TRAIN_ENGINE_H_
#define FSDPCTL_WORKER_TRAIN_ENGINE_H_

// One rank of a sharded training run: the plan's arena, the weights' shard, and the step. Knows
// nothing of data sources, checkpoints or the control plane.
//
//   Engine::Create -> InitializeWeights (or fill shard_tensors() and call WeightsChanged) ->
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
#include "fsdp/v1/job.pb.h"
#include "worker/checkpoint/shard_tensor.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/optim/schedule.h"
#include "worker/plan/plan.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {

struct EngineOptions {
  OptimizerConfig optimizer;
  // True: Step waits for the device and returns its own figures. False: it returns the previous
  // step's, so that the host never waits; Flush returns the last.
  bool synchronous = true;
  // Waits for every launch, so that families() has seconds on any device; steps get slower. On the
  // CPU launches are timed anyway.
  bool time_families = false;
};

struct StepInput {
  std::int64_t step = 1;  // from 1; Adam's bias correction
  double lr = 0;
  // This rank's share of the global batch, [sequences, S] each; Plan::split says how many
  // sequences.
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;
};

struct StepResult {
  std::int64_t step = 0;  // 0: nothing yet (the first call in asynchronous mode)
  double loss = 0;        // mean over the valid tokens of all ranks, nats; 0 when there are none
  double grad_norm = 0;   // before clipping
  std::int64_t valid_tokens = 0;  // of all ranks
  // No update was made: no valid token, or a non-finite gradient.
  bool skipped = false;
  bool non_finite = false;
  double step_seconds = 0;
  v1::StepPhases phases;  // of this rank
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

  // Random weights from the family's rules; the same at any world size. Moments become 0.
  virtual absl::Status InitializeWeights(std::uint64_t seed) = 0;
  // This rank's rows of every parameter, in unit order; also those that it holds no row of. Stable
  // for the engine's life. Whoever writes `master` calls WeightsChanged afterwards.
  virtual std::vector<ShardTensor> shard_tensors() = 0;
  // As shard_tensors, with the last step's summed gradient (not divided by the token count, before
  // clipping) as `master`; m and v empty.
  virtual std::vector<ShardTensor> gradient_tensors() = 0;
  // Refreshes what is derived from the masters (the bf16 copy).
  virtual absl::Status WeightsChanged() = 0;

  // One optimizer step.
  //   FAILED_PRECONDITION  spans do not hold the rank's share; the engine is still usable
  //   INVALID_ARGUMENT     a token is outside the vocabulary; names value and position; still
  //   usable others               of device and communicators, after which the engine is dead
  virtual absl::StatusOr<StepResult> Step(const StepInput& input) = 0;
  // Asynchronous mode: the last step's figures, waiting for the device.
  virtual absl::StatusOr<StepResult> Flush() = 0;

  // Loss of `sequences` sequences of this rank without gradients. Every rank passes the same
  // `num_rounds`, the number of micro-batches it takes the largest share; see EvaluationRounds.
  virtual absl::StatusOr<EvaluationResult> Evaluate(std::span<const std::int32_t> tokens,
                                                    std::span<const std::int32_t> targets,
                                                    std::int64_t num_rounds) = 0;
  // Micro-batches that the largest share of `total_sequences` needs.
  [[nodiscard]] virtual std::int64_t EvaluationRounds(std::int64_t total_sequences) const = 0;

  // Logits [S, V] f32 of one sequence, for tests of causality and for parity; world size 1 only.
  virtual absl::Status Logits(std::span<const std::int32_t> tokens, std::span<float> logits) = 0;

  [[nodiscard]] virtual const Plan& plan() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual std::vector<MemoryUsage> memory() const = 0;
  // Since Create.
  [[nodiscard]] virtual const FamilyTable& families() const = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_ENGINE_H_
