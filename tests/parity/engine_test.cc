// The engine's promises on one or a few ranks: causality, recomputation, skipped updates,
// evaluation, phases, memory, errors.

#include "worker/train/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/spec.h"
#include "tests/parity/engine_harness.h"
#include "worker/plan/plan_cost.h"

namespace fsdp {
namespace {

using testing::HasSubstr;
using testing_support::GlobalBatch;
using testing_support::Losses;
using testing_support::MakeBatch;
using testing_support::MakeSolo;
using testing_support::Preset;
using testing_support::RunOptions;
using testing_support::RunResult;
using testing_support::SmallPlan;
using testing_support::Train;

std::vector<float> LogitsOf(Engine& engine, const std::vector<std::int32_t>& tokens) {
  std::vector<float> logits(tokens.size() *
                            static_cast<std::size_t>(engine.plan().input.model.vocab_size));
  EXPECT_TRUE(engine.Logits(tokens, logits).ok());
  return logits;
}

std::vector<std::int32_t> SomeTokens(std::int64_t length) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i) {
    tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((i * 37 + 11) % 256);
  }
  return tokens;
}

TEST(Causality, LaterTokensLeaveEarlierLogitsBitEqual) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
      SCOPED_TRACE(absl::StrCat(preset, " ", NameOf(dtype)));
      PlanInput input = SmallPlan(Preset(preset));
      input.sequence_length = 48;
      input.parameter_dtype = dtype;
      auto solo = MakeSolo(input);
      ASSERT_TRUE(solo.ok()) << solo.status();
      const std::vector<std::int32_t> tokens = SomeTokens(48);
      const std::vector<float> before = LogitsOf(*solo->engine, tokens);
      for (const std::size_t t : {0, 1, 15, 31, 46}) {
        std::vector<std::int32_t> changed = tokens;
        for (std::size_t i = t + 1; i < changed.size(); ++i) changed[i] = (changed[i] + 5) % 256;
        const std::vector<float> after = LogitsOf(*solo->engine, changed);
        const std::size_t same = (t + 1) * 256;
        EXPECT_TRUE(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(same),
                               after.begin()))
            << "after token " << t;
        EXPECT_NE(before, after);
      }
    }
  }
}

TEST(Causality, FullMaskSeesEverything) {
  auto solo = MakeSolo(SmallPlan(Preset("minillm-tiny")));
  ASSERT_TRUE(solo.ok()) << solo.status();
  std::vector<std::int32_t> tokens = SomeTokens(16);
  const std::vector<float> before = LogitsOf(*solo->engine, tokens);
  tokens.back() = 3;
  const std::vector<float> after = LogitsOf(*solo->engine, tokens);
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + 256, after.begin()));
}

TEST(Recompute, EveryPolicyGivesTheSameBits) {
  for (const char* preset : {"minillm-tiny", "llama-tiny", "gpt2-tiny"}) {
    RunOptions options;
    options.plan = SmallPlan(Preset(preset, 3));
    options.plan.recompute = v1::RECOMPUTE_POLICY_NONE;
    const auto reference = Train(options);
    ASSERT_TRUE(reference.ok()) << reference.status();
    for (const auto policy :
         {v1::RECOMPUTE_POLICY_KEEP, v1::RECOMPUTE_POLICY_SELECTIVE, v1::RECOMPUTE_POLICY_FULL}) {
      options.plan.recompute = policy;
      const auto run = Train(options);
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_EQ(reference->weights, run->weights) << preset << " " << policy;
    }
  }
}

// Overlaid lifetimes must never clobber each other, whatever is kept.
TEST(Overlay, ChangesNoBit) {
  for (const char* preset : {"minillm-tiny", "llama-tiny", "gpt2-tiny"}) {
    for (const auto policy : {v1::RECOMPUTE_POLICY_KEEP, v1::RECOMPUTE_POLICY_NONE,
                              v1::RECOMPUTE_POLICY_SELECTIVE, v1::RECOMPUTE_POLICY_FULL}) {
      RunOptions options;
      options.plan = SmallPlan(Preset(preset, 3));
      options.plan.recompute = policy;
      options.plan.micro_batch = 2;
      options.plan.logits_chunk_bytes = 1 << 14;  // several chunks
      options.plan.world_size = 2;
      const auto overlaid = Train(options);
      options.plan.overlay = false;
      const auto apart = Train(options);
      ASSERT_TRUE(overlaid.ok()) << overlaid.status();
      ASSERT_TRUE(apart.ok()) << apart.status();
      EXPECT_EQ(overlaid->weights, apart->weights) << preset << " " << policy;
    }
  }
}

TEST(Step, WithoutValidTokensNothingIsUpdated) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.world_size = 2;
  options.steps = 0;
  const auto untouched = Train(options);
  options.steps = 2;
  options.ignore_all = true;
  const auto run = Train(options);
  ASSERT_TRUE(untouched.ok() && run.ok()) << run.status();
  EXPECT_EQ(run->steps[0].loss, 0);
  EXPECT_EQ(run->steps[0].valid_tokens, 0);
  EXPECT_TRUE(run->steps[0].skipped);
  EXPECT_FALSE(run->steps[0].non_finite);
  EXPECT_EQ(run->weights, untouched->weights);
}

TEST(Step, NonFiniteGradientLeavesTheWeightsAlone) {
  auto solo = MakeSolo(SmallPlan(Preset("llama-tiny")));
  ASSERT_TRUE(solo.ok()) << solo.status();
  Engine& engine = *solo->engine;
  const auto tensors = engine.OpenWeights();
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  auto* norm = static_cast<float*>(tensors->back().master.data);
  norm[0] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(engine.WeightsChanged().ok());
  const float other = norm[1];
  RunOptions options;
  options.plan = engine.plan().input;
  const GlobalBatch batch = MakeBatch(options, 1);
  const auto result = engine.Step({1, 1e-3, batch.tokens, batch.targets});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->non_finite);
  EXPECT_TRUE(result->skipped);
  EXPECT_EQ(norm[1], other);
}

// On any world size: slices of ranks begin and end within parameters.
TEST(Step, DecayLeavesVectorsAloneWhereItIsToldTo) {
  std::int64_t num_vectors = 0;
  for (const int world : {1, 3}) {
    RunOptions options;
    options.plan = SmallPlan(Preset("gpt2-tiny"));
    options.plan.world_size = world;
    // Two steps: biases begin at 0, where decay does nothing.
    options.steps = 2;
    options.optimizer.weight_decay = 0.5;
    const auto all = Train(options);
    options.optimizer.decay_vectors = false;
    const auto matrices = Train(options);
    // As torch.optim.AdamW with the vectors in a group of their own: of the first step alone can it
    // be told apart, since later gradients depend on all weights.
    options.steps = 1;
    const auto matrices_once = Train(options);
    options.optimizer.weight_decay = 0;
    const auto undecayed_once = Train(options);
    ASSERT_TRUE(all.ok() && matrices.ok() && matrices_once.ok() && undecayed_once.ok());
    const auto plan = BuildPlan(options.plan);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::size_t at = 0;  // in rank 0's rows
    for (const UnitPlan& unit : plan->units) {
      for (std::size_t i = 0; i < unit.spec.parameters.size(); ++i) {
        const ParameterSpec& parameter = unit.spec.parameters[i];
        const RowRange rows = unit.layout.RowsOf(0, static_cast<int>(i), parameter);
        const auto size =
            static_cast<std::size_t>((rows.end - rows.begin) * parameter.row_elements());
        if (size == 0) continue;
        const auto slice = [&](const RunResult& run) {
          return std::span(run.weights).subspan(at, size);
        };
        const auto same = [&](const RunResult& a, const RunResult& b) {
          return std::equal(slice(a).begin(), slice(a).end(), slice(b).begin());
        };
        EXPECT_EQ(same(*matrices_once, *undecayed_once), parameter.is_vector()) << parameter.name;
        EXPECT_FALSE(same(*matrices, *all)) << parameter.name;
        num_vectors += parameter.is_vector() ? 1 : 0;
        at += size;
      }
    }
    EXPECT_EQ(at, all->weights.size());
  }
  EXPECT_GT(num_vectors, 0);
}

// Above the bounds of the step no rank updates anything, with and without waiting for the figures;
// at them all do.
TEST(Step, ASpikeLeavesTheWeightsOfAllRanksAlone) {
  for (const int world : {1, 2, 3, 4}) {
    for (const bool synchronous : {true, false}) {
      RunOptions options;
      options.plan = SmallPlan(Preset("llama-tiny"));
      options.plan.world_size = world;
      options.synchronous = synchronous;
      options.steps = 1;
      options.evaluate = true;  // by the weights of all ranks
      const auto once = Train(options);
      ASSERT_TRUE(once.ok()) << once.status();
      EXPECT_FALSE(once->steps[0].spike);
      const double loss = once->steps[0].loss;
      const double norm = once->steps[0].grad_norm;
      options.bounds = [&](std::int64_t) { return StepBounds{loss, norm}; };
      const auto at_bounds = Train(options);
      ASSERT_TRUE(at_bounds.ok()) << at_bounds.status();
      EXPECT_FALSE(at_bounds->steps[0].skipped);
      EXPECT_EQ(at_bounds->weights, once->weights);
      options.steps = 2;
      for (const StepBounds bounds : {StepBounds{.loss = 1e-3}, StepBounds{.grad_norm = 1e-9}}) {
        options.bounds = [&](std::int64_t step) { return step == 2 ? bounds : StepBounds{}; };
        const auto spiked = Train(options);
        ASSERT_TRUE(spiked.ok()) << spiked.status();
        EXPECT_TRUE(spiked->steps[1].spike);
        EXPECT_TRUE(spiked->steps[1].skipped);
        EXPECT_FALSE(spiked->steps[1].non_finite);
        EXPECT_EQ(spiked->weights, once->weights) << "world " << world;
        EXPECT_EQ(spiked->evaluation.loss_sum, once->evaluation.loss_sum) << "world " << world;
      }
    }
  }
}

TEST(Step, AsynchronousFiguresAreTheSameOneStepLater) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.world_size = 2;
  options.steps = 5;
  const auto synchronous = Train(options);
  options.synchronous = false;
  const auto asynchronous = Train(options);
  ASSERT_TRUE(synchronous.ok()) << synchronous.status();
  ASSERT_TRUE(asynchronous.ok()) << asynchronous.status();
  EXPECT_EQ(Losses(*synchronous), Losses(*asynchronous));
  EXPECT_EQ(asynchronous->steps.back().step, 5);
}

TEST(Step, PhasesAddUpToTheStep) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.sequence_length = 128;
  options.plan.world_size = 2;
  const auto run = Train(options);
  ASSERT_TRUE(run.ok()) << run.status();
  for (const StepResult& step : run->steps) {
    const v1::StepPhases& p = step.phases;
    const double sum = p.data_seconds() + p.compute_seconds() + p.exposed_gather_seconds() +
                       p.exposed_scatter_seconds() + p.optimizer_seconds() + p.other_seconds() +
                       p.unattributed_seconds();
    EXPECT_NEAR(sum, step.step_seconds, 1e-9);
    EXPECT_GT(p.compute_seconds(), 0);
    EXPECT_GE(p.unattributed_seconds(), 0);
  }
}

TEST(Step, WrongSpansAndTokensAreRefusedAndTheEngineLives) {
  auto solo = MakeSolo(SmallPlan(Preset("llama-tiny")));
  ASSERT_TRUE(solo.ok()) << solo.status();
  RunOptions options;
  options.plan = solo->engine->plan().input;
  GlobalBatch batch = MakeBatch(options, 1);
  const std::span<const std::int32_t> tokens = batch.tokens;
  const auto short_share = solo->engine->Step({1, 1e-3, tokens.first(16), tokens.first(16)});
  EXPECT_EQ(short_share.status().code(), absl::StatusCode::kFailedPrecondition);
  std::vector<std::int32_t> bad = batch.tokens;
  bad[17] = 256;
  const auto outside = solo->engine->Step({1, 1e-3, bad, batch.targets});
  EXPECT_EQ(outside.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(outside.status().message()), HasSubstr("token 256 at position 17"));
  EXPECT_TRUE(solo->engine->Step({1, 1e-3, batch.tokens, batch.targets}).ok());
}

TEST(Evaluate, IsTheTrainingLossBeforeTheUpdate) {
  for (const char* preset : {"minillm-tiny", "llama-tiny"}) {
    auto solo = MakeSolo(SmallPlan(Preset(preset)));
    ASSERT_TRUE(solo.ok()) << solo.status();
    RunOptions options;
    options.plan = solo->engine->plan().input;
    options.ignore_every = 5;
    const GlobalBatch batch = MakeBatch(options, 1);
    const auto evaluation = solo->engine->Evaluate(batch.tokens, batch.targets, {}, 1);
    const auto step = solo->engine->Step({1, 1e-3, batch.tokens, batch.targets});
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(evaluation->valid_tokens, step->valid_tokens);
    EXPECT_DOUBLE_EQ(evaluation->loss_sum / static_cast<double>(evaluation->valid_tokens),
                     step->loss);
  }
}

TEST(Evaluate, DoesNotDependOnTheWorldSize) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.global_batch = 5;
  options.evaluate = true;
  const auto one = Train(options);
  options.plan.world_size = 4;
  options.plan.micro_batch = 1;
  const auto four = Train(options);
  options.plan.reshard_after_forward = false;
  const auto resident = Train(options);
  ASSERT_TRUE(one.ok() && four.ok() && resident.ok());
  EXPECT_EQ(one->evaluation.valid_tokens, four->evaluation.valid_tokens);
  EXPECT_NEAR(one->evaluation.loss_sum, four->evaluation.loss_sum, 1e-5 * one->evaluation.loss_sum);
  EXPECT_EQ(four->evaluation.loss_sum, resident->evaluation.loss_sum);
}

TEST(Memory, IsWhatThePlanSaid) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    PlanInput input = SmallPlan(Preset("llama-tiny"));
    input.parameter_dtype = dtype;
    auto solo = MakeSolo(input);
    ASSERT_TRUE(solo.ok()) << solo.status();
    RunOptions options;
    options.plan = input;
    const GlobalBatch batch = MakeBatch(options, 1);
    ASSERT_TRUE(solo->engine->Step({1, 1e-3, batch.tokens, batch.targets}).ok());
    const auto measured = static_cast<double>(solo->device->allocated_bytes());
    const auto planned = static_cast<double>(solo->engine->plan().total_bytes);
    EXPECT_NEAR(measured, planned, 0.02 * planned);
    std::int64_t rows = 0;
    for (const MemoryRow& row : solo->engine->plan().memory) rows += row.bytes;
    EXPECT_EQ(rows, solo->engine->plan().total_bytes);
    for (const MemoryUsage& usage : solo->engine->memory()) {
      EXPECT_LE(usage.now_bytes, usage.peak_bytes) << usage.kind;
    }
  }
}

// Admission plans without a device: its estimate of scratch must not spoil the figure.
TEST(Memory, AdmissionsEstimateIsWithinTwoPercent) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    PlanInput input = SmallPlan(Preset("llama-bytes", 4));
    input.sequence_length = 256;
    input.global_batch = 8;
    input.parameter_dtype = dtype;
    auto device = CreateCpuDevice({.num_threads = 2});
    ASSERT_TRUE(device.ok());
    const auto exact = Engine::PlanFor(input, **device);
    const auto estimate = BuildPlan(input);
    ASSERT_TRUE(exact.ok() && estimate.ok());
    const auto bytes = static_cast<double>(exact->total_bytes);
    EXPECT_NEAR(static_cast<double>(estimate->total_bytes), bytes, 0.02 * bytes);
  }
}

TEST(Memory, AdmissionsEstimateHoldsForTheExamples) {
  for (const char* name : {"tiny", "llama-bytes", "minillm"}) {
    SCOPED_TRACE(name);
    std::ifstream file(absl::StrCat(FSDP_SOURCE_DIR "/deploy/examples/", name, ".yaml"));
    std::stringstream text;
    text << file.rdbuf();
    const SpecResult spec = LoadJob(text.str());
    ASSERT_TRUE(spec.ok());
    const int world_size = WorldSizeOf(spec.job);
    const auto estimate = PlanFromJob(spec.job, world_size, 0);
    const auto input = PlanInputFromJob(spec.job, world_size, 0);
    ASSERT_TRUE(estimate.ok() && input.ok());
    for (const int num_threads : {1, 2, 4}) {
      auto device = CreateCpuDevice({.num_threads = num_threads});
      ASSERT_TRUE(device.ok());
      const auto exact = Engine::PlanFor(*input, **device);
      ASSERT_TRUE(exact.ok()) << exact.status();
      const auto bytes = static_cast<double>(exact->total_bytes);
      EXPECT_NEAR(static_cast<double>(estimate->total_bytes), bytes, 0.02 * bytes) << num_threads;
    }
  }
}

// The plan predicts time from counts of its own: they are those of the launches.
TEST(Families, AreWhatThePlanCounted) {
  for (const char* preset : {"minillm-tiny", "llama-tiny", "gpt2-tiny"}) {
    for (const auto policy : {v1::RECOMPUTE_POLICY_KEEP, v1::RECOMPUTE_POLICY_NONE,
                              v1::RECOMPUTE_POLICY_SELECTIVE, v1::RECOMPUTE_POLICY_FULL}) {
      SCOPED_TRACE(absl::StrCat(preset, " ", v1::RecomputePolicy_Name(policy)));
      RunOptions options;
      options.plan = SmallPlan(Preset(preset));
      options.plan.recompute = policy;
      options.plan.micro_batch = 1;
      auto solo = MakeSolo(options.plan);
      ASSERT_TRUE(solo.ok()) << solo.status();
      const GlobalBatch batch = MakeBatch(options, 1);
      ASSERT_TRUE(solo->engine->Step({1, 1e-3, batch.tokens, batch.targets}).ok());
      double matmul = 0, attention = 0, elementwise = 0, optimizer = 0;
      std::int64_t launches = 0;
      for (int i = 0; i < kNumKernelFamilies; ++i) {
        const FamilyTotals& totals = solo->engine->families()[static_cast<std::size_t>(i)];
        const auto family = static_cast<KernelFamily>(i);
        launches += totals.launches;
        if (absl::StartsWith(NameOf(family), "matmul.")) {
          matmul += totals.flops;
        } else if (IsAttention(family)) {
          attention += totals.flops;
        } else if (family == KernelFamily::kOptimizer) {
          optimizer += totals.bytes;
        } else {
          elementwise += totals.bytes;
        }
      }
      const PlanCost cost = CostOf(solo->engine->plan());
      EXPECT_DOUBLE_EQ(cost.matmul_flops, matmul);
      EXPECT_DOUBLE_EQ(cost.attention_flops, attention);
      // The gradient norm is counted with the optimizer there and with the sums here.
      EXPECT_NEAR(cost.elementwise_bytes + cost.optimizer_bytes, elementwise + optimizer,
                  0.001 * (elementwise + optimizer));
      EXPECT_EQ(cost.launches, launches);
    }
  }
}

TEST(Replay, TimesMatMulsAloneAndLeavesTheWeights) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.parameter_dtype = DType::kBf16;
  const auto run = [&](bool replays) {
    auto solo = MakeSolo(options.plan);
    EXPECT_TRUE(solo.ok()) << solo.status();
    std::vector<double> losses;
    for (std::int64_t step = 1; step <= 3; ++step) {
      const GlobalBatch batch = MakeBatch(options, static_cast<int>(step));
      const auto result = solo->engine->Step({step, 1e-2, batch.tokens, batch.targets});
      EXPECT_TRUE(result.ok()) << result.status();
      losses.push_back(result->loss);
      if (!replays) continue;
      for (const KernelFamily family :
           {KernelFamily::kMatMulMlp, KernelFamily::kAttentionForward}) {
        const auto index = static_cast<std::size_t>(family);
        const FamilyTotals before = solo->engine->families()[index];
        const auto seconds = solo->engine->ReplaySeconds(std::array{family}, 2);
        EXPECT_TRUE(seconds.ok()) << seconds.status();
        EXPECT_GT(*seconds, 0);
        const FamilyTotals& after = solo->engine->families()[index];
        EXPECT_EQ(after.launches - before.launches, 2 * before.launches / (3 * step - 2));
      }
    }
    return losses;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Families, CountTheModelsFlops) {
  auto solo = MakeSolo(SmallPlan(Preset("llama-tiny")));
  ASSERT_TRUE(solo.ok()) << solo.status();
  RunOptions options;
  options.plan = solo->engine->plan().input;
  const GlobalBatch batch = MakeBatch(options, 1);
  ASSERT_TRUE(solo->engine->Step({1, 1e-3, batch.tokens, batch.targets}).ok());
  double matmul = 0;
  for (const KernelFamily family : {KernelFamily::kMatMulQkv, KernelFamily::kMatMulAttnOut,
                                    KernelFamily::kMatMulMlp, KernelFamily::kMatMulHead}) {
    const FamilyTotals& totals = solo->engine->families()[static_cast<std::size_t>(family)];
    EXPECT_GT(totals.seconds, 0);
    matmul += totals.flops;
  }
  const Plan& plan = solo->engine->plan();
  EXPECT_DOUBLE_EQ(matmul, 6.0 * static_cast<double>(NumMatmulParameters(plan.input.model)) *
                               static_cast<double>(plan.tokens_per_step));
}

TEST(Initialization, IsTheSameOnEveryWorldSize) {
  RunOptions options;
  options.plan = SmallPlan(Preset("minillm-tiny"));
  options.steps = 1;
  const auto one = Train(options);
  options.plan.world_size = 3;
  const auto three = Train(options);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_NEAR(one->steps[0].loss, three->steps[0].loss, 1e-6 * one->steps[0].loss);
}

// A rank that leaves is seen as gone at once; nobody waits out the communicators' timeout.
TEST(Step, OneRanksFailureEndsAllRanks) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.world_size = 3;
  const LocalRanksOptions ranks{3, CommunicatorKind::kInProcess, 2};
  std::array<absl::Status, 3> steps;
  const absl::Status status =
      RunLocalRanks(ranks, CpuBackend(), [&](LocalRank& rank) -> absl::Status {
        const auto plan = Engine::PlanFor(options.plan, rank.device);
        if (!plan.ok()) return plan.status();
        const auto engine = Engine::Create(*plan, {}, rank.device, rank.gather, rank.scatter);
        if (!engine.ok()) return engine.status();
        if (const auto ready = (*engine)->InitializeWeights(1); !ready.ok()) return ready;
        // Rank 1 never joins the step.
        if (rank.rank == 1) return absl::DataLossError("no more data");
        const GlobalBatch batch = MakeBatch(options, 1);
        steps[static_cast<std::size_t>(rank.rank)] =
            (*engine)
                ->Step({1, 1e-3, testing_support::ShareOf(batch.tokens, *plan, rank.rank),
                        testing_support::ShareOf(batch.targets, *plan, rank.rank)})
                .status();
        return steps[static_cast<std::size_t>(rank.rank)];
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(steps[0].code(), absl::StatusCode::kUnavailable) << steps[0];
  EXPECT_EQ(steps[2].code(), absl::StatusCode::kUnavailable) << steps[2];
}

TEST(Create, RefusesCommunicatorsThatDoNotFit) {
  auto device = CreateCpuDevice({});
  ASSERT_TRUE(device.ok());
  PlanInput input = SmallPlan(Preset("llama-tiny"));
  input.world_size = 2;
  const auto plan = Engine::PlanFor(input, **device);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto engine = Engine::Create(*plan, {}, **device, nullptr, nullptr);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fsdp
