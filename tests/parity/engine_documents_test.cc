// data.resetAttention in the engine: a packed document is trained as if it were alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/parity/engine_harness.h"

namespace fsdp {
namespace {

using testing::HasSubstr;
using testing_support::GlobalBatch;
using testing_support::Losses;
using testing_support::MakeBatch;
using testing_support::MakeSolo;
using testing_support::Preset;
using testing_support::RunOptions;
using testing_support::SmallPlan;
using testing_support::SoloEngine;
using testing_support::Train;

PlanInput DocumentsPlan(const ModelConfig& model) {
  PlanInput input = SmallPlan(model);
  input.reset_attention = true;
  return input;
}

using Ids = std::vector<std::int32_t>;

// Loss sum and summed gradients (every parameter, one after the other) of one sequence.
struct Pass {
  double loss_sum = 0;
  std::vector<double> gradients;
};

Pass RunPass(const ModelConfig& model, const Ids& tokens, const Ids& targets, const Ids& begins,
             bool reset_positions = false) {
  PlanInput input = SmallPlan(model);
  input.parameter_dtype = DType::kF64;
  input.sequence_length = static_cast<std::int64_t>(tokens.size());
  input.global_batch = 1;
  input.reset_attention = !begins.empty();
  input.reset_positions = reset_positions;
  Pass pass;
  auto solo = MakeSolo(input);
  EXPECT_TRUE(solo.ok()) << solo.status();
  if (!solo.ok()) return pass;
  const auto evaluation = solo->engine->Evaluate(tokens, targets, begins, 1);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  // A learning rate of zero leaves the weights where they are.
  const auto step = solo->engine->Step({1, 0.0, tokens, targets, begins});
  EXPECT_TRUE(step.ok()) << step.status();
  if (!evaluation.ok() || !step.ok()) return pass;
  pass.loss_sum = evaluation->loss_sum;
  EXPECT_NEAR(step->loss * static_cast<double>(step->valid_tokens), pass.loss_sum,
              1e-12 * pass.loss_sum);
  for (const ShardTensor& tensor : solo->engine->gradient_tensors()) {
    const auto* values = static_cast<const double*>(tensor.master.data);
    pass.gradients.insert(pass.gradients.end(), values, values + tensor.master.size);
  }
  return pass;
}

Ids Part(const Ids& all, std::size_t begin, std::size_t end) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin),
          all.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Rope turns a query and a key of one document by angles whose difference is that of their
// positions, wherever the document begins; learned positions must count from its beginning. f64:
// each angle is right to 1e-16 x 16 positions, and what is computed from it to some thousand
// roundings of 1e-16.
void ExpectPackedAsAlone(const ModelConfig& model, bool reset_positions) {
  RunOptions options;
  options.plan = SmallPlan(model);
  options.plan.global_batch = 1;
  const GlobalBatch batch = MakeBatch(options, 1);
  constexpr std::size_t kLength = 16;
  constexpr std::size_t kBorder = 7;
  Ids begins(kLength, 0);
  std::fill(begins.begin() + kBorder, begins.end(), static_cast<std::int32_t>(kBorder));

  const Pass packed = RunPass(model, batch.tokens, batch.targets, begins, reset_positions);
  const Pass first =
      RunPass(model, Part(batch.tokens, 0, kBorder), Part(batch.targets, 0, kBorder), {});
  const Pass second = RunPass(model, Part(batch.tokens, kBorder, kLength),
                              Part(batch.targets, kBorder, kLength), {});
  Ids second_only = batch.targets;
  std::fill_n(second_only.begin(), kBorder, kIgnoreTarget);
  const Pass of_second = RunPass(model, batch.tokens, second_only, begins, reset_positions);
  EXPECT_NEAR(of_second.loss_sum, second.loss_sum, 1e-11 * second.loss_sum);
  EXPECT_NEAR(packed.loss_sum, first.loss_sum + second.loss_sum, 1e-11 * packed.loss_sum);
  ASSERT_EQ(packed.gradients.size(), first.gradients.size());
  ASSERT_EQ(packed.gradients.size(), second.gradients.size());
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < packed.gradients.size(); ++i) {
    const double alone = first.gradients[i] + second.gradients[i];
    largest = std::max(largest, std::abs(alone));
    worst = std::max(worst, std::abs(packed.gradients[i] - alone));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(worst, 1e-11 * largest);
  // It is the reset that does it.
  const Pass whole = RunPass(model, batch.tokens, batch.targets, {});
  EXPECT_GT(std::abs(whole.loss_sum - packed.loss_sum), 1e-6 * packed.loss_sum);
  // Learned positions tell where a document lies, unless they are reset; rotary ones do not.
  const Pass counted_on = RunPass(model, batch.tokens, second_only, begins);
  const double moved = std::abs(counted_on.loss_sum - second.loss_sum);
  if (model.position == PositionKind::kLearned) {
    EXPECT_GT(moved, 1e-6 * second.loss_sum);
  } else {
    EXPECT_LE(moved, 1e-11 * second.loss_sum);
  }
}

TEST(Documents, PackedIsAsAlone) { ExpectPackedAsAlone(Preset("llama-tiny"), false); }

TEST(Documents, PackedIsAsAloneWithRopeThatIsReset) {
  ExpectPackedAsAlone(Preset("llama-tiny"), true);
}

TEST(Documents, PackedIsAsAloneWithLearnedPositionsThatAreReset) {
  ExpectPackedAsAlone(Preset("gpt2-tiny"), true);
}

// Tolerance as in world_parity_test.cc.
TEST(Documents, LossesDoNotDependOnWorldSizeOrMicroBatches) {
  for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
    RunOptions options;
    options.plan = DocumentsPlan(Preset(preset));
    options.plan.reset_positions = true;
    options.plan.global_batch = 5;
    options.optimizer.lr = 1e-3;
    options.ignore_every = 6;
    options.steps = 6;
    options.evaluate = true;
    const auto reference = Train(options);
    ASSERT_TRUE(reference.ok()) << reference.status();
    RunOptions whole = options;
    whole.plan.reset_attention = false;
    whole.plan.reset_positions = false;
    const auto without = Train(whole);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_NE(Losses(*without), Losses(*reference));
    EXPECT_NE(without->schedule_hash, reference->schedule_hash);
    for (const int world : {1, 3}) {
      for (const std::int64_t micro_batch : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(preset, " world ", world, ", micro-batches of ", micro_batch));
        options.plan.world_size = world;
        options.plan.micro_batch = micro_batch;
        options.synchronous = micro_batch == 1;
        const auto run = Train(options);
        ASSERT_TRUE(run.ok()) << run.status();
        for (std::size_t i = 0; i < run->steps.size(); ++i) {
          const double want = reference->steps[i].loss;
          EXPECT_NEAR(run->steps[i].loss, want, 1e-5 * want) << "step " << i + 1;
        }
        const double want = reference->evaluation.loss_sum;
        EXPECT_NEAR(run->evaluation.loss_sum, want, 1e-5 * want);
      }
    }
  }
}

TEST(Documents, EveryRecomputePolicyGivesTheSameBits) {
  for (const char* preset : {"llama-tiny", "gpt2-tiny"}) {
    RunOptions options;
    options.plan = DocumentsPlan(Preset(preset, 3));
    options.plan.micro_batch = 2;
    options.plan.recompute = v1::RECOMPUTE_POLICY_NONE;
    options.plan.overlay = false;
    const auto reference = Train(options);
    ASSERT_TRUE(reference.ok()) << reference.status();
    options.plan.overlay = true;
    for (const auto policy :
         {v1::RECOMPUTE_POLICY_NONE, v1::RECOMPUTE_POLICY_SELECTIVE, v1::RECOMPUTE_POLICY_FULL}) {
      options.plan.recompute = policy;
      const auto run = Train(options);
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_EQ(reference->weights, run->weights) << preset << " " << policy;
    }
  }
}

TEST(Documents, BeginsThatDoNotFitAreRefusedAndTheEngineLives) {
  const auto solo = MakeSolo(DocumentsPlan(Preset("llama-tiny")));
  ASSERT_TRUE(solo.ok()) << solo.status();
  RunOptions options;
  options.plan = solo->engine->plan().input;
  const GlobalBatch batch = MakeBatch(options, 1);
  const auto step = [&](const SoloEngine& engine, const Ids& begins) {
    return engine.engine->Step({1, 1e-3, batch.tokens, batch.targets, begins}).status();
  };
  EXPECT_EQ(step(*solo, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(step(*solo, {}).message()), HasSubstr("of 64 tokens, got 0"));
  // Of the second sequence: 3 stands at index 2 and 0 behind it; a sequence begins with 2.
  for (const auto& [at, value, place] :
       {std::tuple(18, 3, "3 at position 18"), std::tuple(16, 2, "2 at position 16"),
        std::tuple(20, -1, "-1 at position 20")}) {
    Ids bad = batch.document_begins;
    bad[static_cast<std::size_t>(at)] = value;
    const absl::Status status = step(*solo, bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(place));
  }
  EXPECT_TRUE(step(*solo, batch.document_begins).ok());
  const auto plain = MakeSolo(SmallPlan(Preset("llama-tiny")));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(step(*plain, batch.document_begins).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(step(*plain, {}).ok());
}

// For tests and exports a sequence is one document.
TEST(Documents, LogitsAreThoseOfOneDocument) {
  const PlanInput plain_input = SmallPlan(Preset("llama-tiny"));
  const auto plain = MakeSolo(plain_input);
  const auto reset = MakeSolo(DocumentsPlan(plain_input.model));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(reset.ok()) << reset.status();
  Ids tokens(16);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 13);
  std::vector<float> want(tokens.size() * 256);
  std::vector<float> got(want.size());
  ASSERT_TRUE(plain->engine->Logits(tokens, want).ok());
  ASSERT_TRUE(reset->engine->Logits(tokens, got).ok());
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace fsdp
