#ifndef FSDPCTL_TESTS_PARITY_ENGINE_HARNESS_H_
#define FSDPCTL_TESTS_PARITY_ENGINE_HARNESS_H_

// Small training runs of the engine on local ranks, for tests that compare runs with each other.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/train/engine.h"
#include "worker/train/local_ranks.h"

namespace fsdp::testing_support {

struct RunOptions {
  PlanInput plan;  // world size included
  OptimizerConfig optimizer;
  CommunicatorKind communicator = CommunicatorKind::kInProcess;
  std::int64_t steps = 3;
  std::uint64_t seed = 7;
  bool synchronous = true;
  // Every n-th target is ignored; 0: none. A large one leaves ranks with different token counts.
  std::int64_t ignore_every = 0;
  bool ignore_all = false;
  bool evaluate = false;
  std::function<StepBounds(std::int64_t step)> bounds;  // null: none
};

struct RunResult {
  std::vector<StepResult> steps;
  // Rank 0's rows of every parameter (all rows at world size 1), one after the other.
  std::vector<float> weights;
  EvaluationResult evaluation;
  std::uint64_t schedule_hash = 0;
};

// A model of `preset` with another number of layers.
ModelConfig Preset(const std::string& name, int num_layers = 2);
// fp32, sequence length 16, global batch 4.
PlanInput SmallPlan(const ModelConfig& model);

// The step's global batch, the same for every world size: tokens, targets and, where the plan
// resets attention, beginnings of documents of some tokens each; [batch, S].
struct GlobalBatch {
  std::vector<std::int32_t> tokens, targets, document_begins;
};
GlobalBatch MakeBatch(const RunOptions& options, std::int64_t step);

// A rank's part of it; of nothing, nothing.
std::span<const std::int32_t> ShareOf(const std::vector<std::int32_t>& all, const Plan& plan,
                                      int rank);

absl::StatusOr<RunResult> Train(const RunOptions& options);

// An engine of world size 1 on a CPU device that it keeps alive.
struct SoloEngine {
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
};
absl::StatusOr<SoloEngine> MakeSolo(const PlanInput& input, const OptimizerConfig& optimizer = {});

std::vector<double> Losses(const RunResult& result);

}  // namespace fsdp::testing_support

#endif  // FSDPCTL_TESTS_PARITY_ENGINE_HARNESS_H_
