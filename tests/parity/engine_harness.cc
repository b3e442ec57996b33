#include "tests/parity/engine_harness.h"

#include <cstring>

#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/device/philox.h"

namespace fsdp::testing_support {
namespace {

absl::StatusOr<RunResult> TrainRank(const RunOptions& options, LocalRank& rank) {
  ASSIGN_OR_RETURN(const Plan plan, Engine::PlanFor(options.plan, rank.device));
  EngineOptions engine_options;
  engine_options.optimizer = options.optimizer;
  engine_options.synchronous = options.synchronous;
  ASSIGN_OR_RETURN(const auto engine,
                   Engine::Create(plan, engine_options, rank.device, rank.gather, rank.scatter));
  RETURN_IF_ERROR(engine->InitializeWeights(options.seed));
  RunResult result;
  result.schedule_hash = plan.schedule_hash;
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const GlobalBatch batch = MakeBatch(options, step);
    StepInput input{step, options.optimizer.lr, ShareOf(batch.tokens, plan, rank.rank),
                    ShareOf(batch.targets, plan, rank.rank),
                    ShareOf(batch.document_begins, plan, rank.rank)};
    if (options.bounds) input.bounds = options.bounds(step);
    ASSIGN_OR_RETURN(const StepResult figures, engine->Step(input));
    if (figures.step > 0) result.steps.push_back(figures);
  }
  if (!options.synchronous) {
    ASSIGN_OR_RETURN(const StepResult last, engine->Flush());
    result.steps.push_back(last);
  }
  if (options.evaluate) {
    const GlobalBatch batch = MakeBatch(options, 1000);
    ASSIGN_OR_RETURN(result.evaluation,
                     engine->Evaluate(ShareOf(batch.tokens, plan, rank.rank),
                                      ShareOf(batch.targets, plan, rank.rank),
                                      ShareOf(batch.document_begins, plan, rank.rank),
                                      engine->EvaluationRounds(plan.input.global_batch)));
  }
  ASSIGN_OR_RETURN(const std::vector<ShardTensor> weights, engine->OpenWeights());
  for (const ShardTensor& tensor : weights) {
    if (tensor.master.empty()) continue;
    const std::size_t at = result.weights.size();
    result.weights.resize(at + static_cast<std::size_t>(tensor.master.size));
    std::memcpy(result.weights.data() + at, tensor.master.data,
                static_cast<std::size_t>(tensor.master.size_bytes()));
  }
  return result;
}

}  // namespace

ModelConfig Preset(const std::string& name, int num_layers) {
  v1::ModelSpec spec;
  spec.set_preset(name);
  spec.set_num_layers(num_layers);
  const auto model = ResolveModel(spec);
  FSDP_CHECK(model.ok(), "preset ", name);
  return *model;
}

PlanInput SmallPlan(const ModelConfig& model) {
  PlanInput input;
  input.model = model;
  input.sequence_length = 16;
  input.global_batch = 4;
  input.parameter_dtype = DType::kF32;
  return input;
}

GlobalBatch MakeBatch(const RunOptions& options, std::int64_t step) {
  const auto vocab = static_cast<std::uint32_t>(options.plan.model.vocab_size);
  const auto size =
      static_cast<std::size_t>(options.plan.global_batch * options.plan.sequence_length);
  GlobalBatch batch;
  for (std::size_t i = 0; i < size; ++i) {
    const PhiloxBlock bits = PhiloxAt(static_cast<std::uint64_t>(step) + 99, i);
    batch.tokens.push_back(static_cast<std::int32_t>(bits[0] % vocab));
    const bool ignored =
        options.ignore_all || (options.ignore_every > 0 &&
                               bits[2] % static_cast<std::uint64_t>(options.ignore_every) == 0);
    batch.targets.push_back(ignored ? -100 : static_cast<std::int32_t>(bits[1] % vocab));
    if (!options.plan.reset_attention) continue;
    const std::size_t at = i % static_cast<std::size_t>(options.plan.sequence_length);
    const bool begins = at == 0 || bits[3] % 5 == 0;
    batch.document_begins.push_back(begins ? static_cast<std::int32_t>(at)
                                           : batch.document_begins.back());
  }
  return batch;
}

std::span<const std::int32_t> ShareOf(const std::vector<std::int32_t>& all, const Plan& plan,
                                      int rank) {
  if (all.empty()) return {};
  const SequenceRange share = plan.split.Share(rank);
  const std::int64_t length = plan.input.sequence_length;
  return std::span<const std::int32_t>(all).subspan(static_cast<std::size_t>(share.begin * length),
                                                    static_cast<std::size_t>(share.count * length));
}

absl::StatusOr<RunResult> Train(const RunOptions& options) {
  RunResult result;
  const LocalRanksOptions ranks{options.plan.world_size, options.communicator,
                                options.plan.num_communicators};
  RETURN_IF_ERROR(RunLocalRanks(ranks, CpuBackend(), [&](LocalRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(RunResult mine, TrainRank(options, rank));
    if (rank.rank == 0) result = std::move(mine);
    return absl::OkStatus();
  }));
  return result;
}

absl::StatusOr<SoloEngine> MakeSolo(const PlanInput& input, const OptimizerConfig& optimizer) {
  SoloEngine solo;
  ASSIGN_OR_RETURN(solo.device, CreateCpuDevice({}));
  ASSIGN_OR_RETURN(const Plan plan, Engine::PlanFor(input, *solo.device));
  EngineOptions options;
  options.optimizer = optimizer;
  ASSIGN_OR_RETURN(solo.engine, Engine::Create(plan, options, *solo.device, nullptr, nullptr));
  RETURN_IF_ERROR(solo.engine->InitializeWeights(7));
  return solo;
}

std::vector<double> Losses(const RunResult& result) {
  std::vector<double> losses;
  losses.reserve(result.steps.size());
  for (const StepResult& step : result.steps) losses.push_back(step.loss);
  return losses;
}

}  // namespace fsdp::testing_support
