// The same job gives the same losses on every world size and in any number of micro-batches.
//
// Tolerance 1e-5 relative over ten steps: the runs differ in the order of f32 sums only, about 1e-7
// relative per step at these sizes, and Adam's first steps multiply differences of gradients near
// zero; ten steps stay two orders below the limit.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/parity/engine_harness.h"

namespace fsdp {
namespace {

using testing_support::Losses;
using testing_support::Preset;
using testing_support::RunOptions;
using testing_support::SmallPlan;
using testing_support::Train;

// Odd sizes: nothing divides by the world sizes, and 7 ranks share 5 sequences.
ModelConfig OddLlama() {
  v1::ModelSpec spec;
  spec.set_family(v1::MODEL_FAMILY_LLAMA);
  spec.set_vocab_size(101);
  spec.set_dim(36);
  spec.set_num_layers(2);
  spec.set_num_heads(3);
  spec.set_num_kv_heads(1);
  spec.set_head_dim(10);
  spec.set_mlp_dim(52);
  return *ResolveModel(spec);
}

RunOptions Options(const ModelConfig& model, int world, std::int64_t micro_batches) {
  RunOptions options;
  options.plan = SmallPlan(model);
  options.plan.global_batch = 5;
  options.plan.world_size = world;
  const std::int64_t share = (5 + world - 1) / world;
  options.plan.micro_batch = (share + micro_batches - 1) / micro_batches;
  options.optimizer.lr = 1e-3;
  options.optimizer.max_grad_norm = 1;
  options.ignore_every = 6;
  options.steps = 10;
  return options;
}

void ExpectClose(const std::vector<double>& expected, const std::vector<double>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LE(std::abs(actual[i] - expected[i]), 1e-5 * std::abs(expected[i]))
        << "step " << i + 1 << ": " << actual[i] << " instead of " << expected[i];
  }
}

class WorldParityTest : public testing::TestWithParam<const char*> {
 protected:
  static ModelConfig Model() {
    const std::string name = GetParam();
    if (name == "odd-llama") return OddLlama();
    ModelConfig model = Preset(name);
    if (name == "llama-tiny") model.tie_embeddings = true;
    return model;
  }
};

TEST_P(WorldParityTest, LossesDoNotDependOnWorldSizeOrMicroBatches) {
  const ModelConfig model = Model();
  const auto reference = Train(Options(model, 1, 1));
  ASSERT_TRUE(reference.ok()) << reference.status();
  EXPECT_LT(reference->steps.back().loss, reference->steps.front().loss * 1.5);
  for (const int world : {1, 2, 3, 4, 7}) {
    for (const std::int64_t micro_batches : {1, 2, 4}) {
      SCOPED_TRACE(absl::StrCat("world ", world, ", micro-batches ", micro_batches));
      RunOptions options = Options(model, world, micro_batches);
      options.communicator = CommunicatorKind::kGloo;
      const auto run = Train(options);
      ASSERT_TRUE(run.ok()) << run.status();
      ExpectClose(Losses(*reference), Losses(*run));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WorldParityTest,
                         testing::Values("minillm-tiny", "llama-tiny", "odd-llama"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name[name.find('-')] = '_';
                           return name;
                         });

// Every way of moving units gives the same bits: they differ in when, not in what is summed.
TEST(ShardingModes, GiveTheSameBits) {
  RunOptions options = Options(Preset("llama-tiny"), 3, 2);
  options.steps = 4;
  const auto reference = Train(options);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (int mode = 0; mode < 5; ++mode) {
    SCOPED_TRACE(absl::StrCat("mode ", mode));
    RunOptions other = options;
    if (mode == 0) other.plan.prefetch = 0;
    if (mode == 1) other.plan.num_communicators = 1;
    if (mode == 2) other.plan.reshard_after_forward = false;
    if (mode == 3) other.plan.overlay = false;
    if (mode == 4) other.communicator = CommunicatorKind::kGloo;
    const auto run = Train(other);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(Losses(*reference), Losses(*run));
    EXPECT_EQ(reference->weights, run->weights);
  }
}

TEST(ShardingModes, RerunsAreBitIdentical) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    RunOptions options = Options(Preset("llama-tiny"), 3, 2);
    options.plan.parameter_dtype = dtype;
    options.steps = 4;
    const auto first = Train(options);
    const auto second = Train(options);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(first->weights, second->weights);
  }
}

// A bf16 payload rounds each rank's gradient once: losses stay near those of the f32 payload.
TEST(ShardingModes, Bf16PayloadStaysNear) {
  RunOptions options = Options(Preset("llama-tiny"), 3, 2);
  options.plan.parameter_dtype = DType::kBf16;
  const auto wide = Train(options);
  options.plan.reduce_dtype = DType::kBf16;
  const auto narrow = Train(options);
  ASSERT_TRUE(wide.ok()) << wide.status();
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_NE(Losses(*wide), Losses(*narrow));
  for (std::size_t i = 0; i < wide->steps.size(); ++i) {
    EXPECT_NEAR(wide->steps[i].loss, narrow->steps[i].loss, 0.01 * wide->steps[i].loss);
  }
}

}  // namespace
}  // namespace fsdp
