#include "worker/plan/plan_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace fsdp {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

PlanInput CudaInput(const std::string& preset, std::int64_t length, std::int64_t batch) {
  v1::ModelSpec spec;
  spec.set_preset(preset);
  PlanInput input;
  input.model = *ResolveModel(spec);
  input.sequence_length = length;
  input.global_batch = batch;
  input.device = DeviceKind::kCuda;
  return input;
}

bool Fits(PlanInput input, v1::RecomputePolicy policy, int world, std::int64_t micro_batch) {
  input.recompute = policy;
  input.world_size = world;
  input.micro_batch = micro_batch;
  return BuildPlan(input).ok();
}

TEST(AdviseOnMemory, Llama8bAtAGlobalBatchOf8x8192) {
  const v1::MemoryAdvice advice = AdviseOnMemory(CudaInput("llama8b", 8192, 8));
  EXPECT_EQ(FittingRanksText(advice),
            "3 ranks (recompute none), 2 ranks (selective), 1 rank (full)");
}

// What is advised fits, and a rank less, or a micro-batch less than its own, does not.
TEST(AdviseOnMemory, EveryShapeFitsAndNoFewerRanksDo) {
  PlanInput input = CudaInput("llama8b", 8192, 8);
  input.device_memory_bytes = 139 * kGiB;
  const v1::MemoryAdvice advice = AdviseOnMemory(input);
  EXPECT_EQ(advice.device_memory_bytes(), 139 * kGiB);
  EXPECT_EQ(advice.assumed_device(), "");
  ASSERT_EQ(advice.policies_size(), 3);
  bool smaller_seen = false;
  for (const v1::PolicyAdvice& policy : advice.policies()) {
    SCOPED_TRACE(policy.ShortDebugString());
    ASSERT_TRUE(policy.has_as_is());
    const int ranks = policy.as_is().world_size();
    ASSERT_LE(ranks, 8);
    EXPECT_TRUE(Fits(input, policy.recompute(), ranks, 0));
    EXPECT_EQ(policy.as_is().micro_batch(), (8 + ranks - 1) / ranks);
    EXPECT_LE(policy.as_is().total_bytes(), 139 * kGiB);
    for (int fewer = 1; fewer < ranks; ++fewer) {
      EXPECT_FALSE(Fits(input, policy.recompute(), fewer, 0)) << fewer;
    }
    if (!policy.has_smaller_micro_batch()) continue;
    smaller_seen = true;
    const v1::FittingShape& smaller = policy.smaller_micro_batch();
    ASSERT_LT(smaller.world_size(), ranks);
    EXPECT_TRUE(Fits(input, policy.recompute(), smaller.world_size(), smaller.micro_batch()));
    for (int fewer = 1; fewer < smaller.world_size(); ++fewer) {
      EXPECT_FALSE(Fits(input, policy.recompute(), fewer, 1)) << fewer;
    }
  }
  EXPECT_TRUE(smaller_seen);
}

// With one micro-batch less a step does not fit: the advice does not ask for more of them than
// needed, and spreads the share evenly over them.
TEST(AdviseOnMemory, TheMicroBatchIsTheLargestThatFitsSpreadEvenly) {
  PlanInput input = CudaInput("llama1b", 8192, 30);
  input.recompute = v1::RECOMPUTE_POLICY_NONE;
  input.device_memory_bytes = 80 * kGiB;
  ASSERT_FALSE(BuildPlan(input).ok());
  const v1::PolicyAdvice none = AdviseOnMemory(input).policies(0);
  ASSERT_EQ(none.recompute(), v1::RECOMPUTE_POLICY_NONE);
  ASSERT_TRUE(none.has_same_ranks());
  EXPECT_EQ(none.same_ranks().world_size(), 1);
  const std::int64_t size = none.same_ranks().micro_batch();
  ASSERT_GT(size, 1);
  EXPECT_TRUE(Fits(input, v1::RECOMPUTE_POLICY_NONE, 1, size));
  const std::int64_t parts = (30 + size - 1) / size;
  const std::int64_t of_fewer_parts = (30 + parts - 2) / (parts - 1);
  EXPECT_FALSE(Fits(input, v1::RECOMPUTE_POLICY_NONE, 1, of_fewer_parts));
  EXPECT_EQ(size, (30 + parts - 1) / parts);
}

TEST(AdviseOnMemory, OfAnUnknownGpuItIsForAnH200) {
  const PlanInput input = CudaInput("llama8b", 8192, 8);
  const v1::MemoryAdvice advice = AdviseOnMemory(input);
  EXPECT_EQ(advice.assumed_device(), "NVIDIA H200");
  EXPECT_EQ(advice.device_memory_bytes(), kH200MemoryBytes);
  PlanInput known = input;
  known.device_memory_bytes = kH200MemoryBytes;
  EXPECT_EQ(FittingRanksText(advice), FittingRanksText(AdviseOnMemory(known)));
}

TEST(AdviseOnMemory, OfAHostOfUnknownMemoryThereIsNone) {
  PlanInput input = CudaInput("llama-tiny", 128, 8);
  input.device = DeviceKind::kCpu;
  EXPECT_EQ(AdviseOnMemory(input).policies_size(), 0);
  EXPECT_EQ(FittingRanksText(AdviseOnMemory(input)), "");
}

// The engine's scratch is of its own shapes: advice for others does not carry it along.
TEST(AdviseOnMemory, TakesNothingFromTheInputsOwnShapes) {
  PlanInput input = CudaInput("llama8b", 8192, 8);
  input.device_memory_bytes = 139 * kGiB;
  const std::string ranks = FittingRanksText(AdviseOnMemory(input));
  input.scratch = ScratchSizes{.attention_backward_bytes = 500 * kGiB};
  input.nccl_bytes = 500 * kGiB;
  input.world_size = 4;
  input.recompute = v1::RECOMPUTE_POLICY_FULL;
  EXPECT_EQ(FittingRanksText(AdviseOnMemory(input)), ranks);
}

TEST(FittingRanksText, NamesAChoiceOnlyForFewerRanks) {
  v1::MemoryAdvice advice;
  const auto add = [&advice](v1::RecomputePolicy policy, int as_is, int smaller) {
    v1::PolicyAdvice& to = *advice.add_policies();
    to.set_recompute(policy);
    if (as_is > 0) to.mutable_as_is()->set_world_size(as_is);
    if (smaller == 0) return;
    to.mutable_smaller_micro_batch()->set_world_size(smaller);
    to.mutable_smaller_micro_batch()->set_micro_batch(2);
  };
  add(v1::RECOMPUTE_POLICY_NONE, 6, 3);
  add(v1::RECOMPUTE_POLICY_SELECTIVE, 6, 3);
  add(v1::RECOMPUTE_POLICY_FULL, 3, 1);
  EXPECT_EQ(FittingRanksText(advice),
            "6 ranks (recompute none), 3 ranks (full), 1 rank (full, microBatch 2)");
  advice.Clear();
  add(v1::RECOMPUTE_POLICY_FULL, 0, 1);
  EXPECT_EQ(FittingRanksText(advice), "1 rank (recompute full, microBatch 2)");
}

// A job that follows the remedies is planned.
TEST(MemoryRemedies, AreWhatBuildPlanAccepts) {
  PlanInput input = CudaInput("llama8b", 8192, 64);
  input.device_memory_bytes = 139 * kGiB;
  const std::string message(BuildPlan(input).status().message());
  const v1::MemoryAdvice advice = AdviseOnMemory(input);
  EXPECT_THAT(message, HasSubstr("remedies: " + FittingRanksText(advice)));
  const auto usable = std::find_if(advice.policies().begin(), advice.policies().end(),
                                   [](const auto& policy) { return policy.has_same_ranks(); });
  ASSERT_NE(usable, advice.policies().end());
  const std::int64_t micro_batch = usable->same_ranks().micro_batch();
  EXPECT_THAT(message, HasSubstr("on 1 rank spec.train.microBatch: " + std::to_string(micro_batch) +
                                 " with spec.train.recompute: "));
  EXPECT_TRUE(Fits(input, usable->recompute(), 1, micro_batch));
  EXPECT_FALSE(Fits(input, usable->recompute(), 1, 64));
}

TEST(MemoryRemedies, SayWhenNoNumberOfRanksIsEnough) {
  PlanInput input = CudaInput("llama8b", 8192, 8);
  input.device_memory_bytes = kGiB;
  EXPECT_EQ(MemoryRemedies(input),
            "no number of ranks up to 1024 is enough; spec.data.sequenceLength below 8192");
  input.parameter_dtype = DType::kF32;
  input.reshard_after_forward = false;
  EXPECT_EQ(MemoryRemedies(input),
            "no number of ranks up to 1024 is enough; spec.data.sequenceLength below 8192; "
            "spec.precision.parameters: bf16; spec.sharding.reshardAfterForward: true");
  EXPECT_THAT(MemoryRemedies(input), Not(HasSubstr("microBatch")));
}

}  // namespace
}  // namespace fsdp
