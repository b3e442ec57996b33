// Rope tables, views of units, and verdicts on kernel families.

#include <gtest/gtest.h>

#include <cmath>

#include "worker/model/rope_table.h"
#include "worker/model/unit_view.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {
namespace {

ModelConfig Llama() {
  v1::ModelSpec spec;
  spec.set_preset("llama-tiny");
  return *ResolveModel(spec);
}

TEST(RopeTable, AnglesArePositionTimesFrequency) {
  const ModelConfig model = Llama();
  const RopeTable table = MakeRopeTable(model, 32);
  const std::int64_t pairs = model.head_dim / 2;
  for (const std::int64_t position : {0, 1, 31}) {
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const double angle =
          static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(pair) / 16);
      const auto at = static_cast<std::size_t>(position * pairs + pair);
      EXPECT_DOUBLE_EQ(table.cos[at], std::cos(angle));
      EXPECT_DOUBLE_EQ(table.sin[at], std::sin(angle));
    }
  }
}

TEST(RopeTable, ScalingStretchesLongWavesOnly) {
  ModelConfig model = Llama();
  const RopeTable plain = MakeRopeTable(model, 2);
  model.rope_scaling.type = RopeScalingConfig::Type::kLlama3;
  model.rope_scaling.factor = 8;
  model.rope_scaling.original_max_positions = 256;
  const RopeTable scaled = MakeRopeTable(model, 2);
  const auto first = static_cast<std::size_t>(model.head_dim / 2);
  EXPECT_DOUBLE_EQ(scaled.sin[first], plain.sin[first]);
  const std::size_t last = plain.sin.size() - 1;
  EXPECT_NEAR(std::asin(scaled.sin[last]), std::asin(plain.sin[last]) / 8, 1e-12);
  model.rope_scaling.type = RopeScalingConfig::Type::kLinear;
  const RopeTable linear = MakeRopeTable(model, 2);
  EXPECT_NEAR(std::asin(linear.sin[last]), std::asin(plain.sin[last]) / 8, 1e-12);
}

// Against figures of the formula in the YaRN paper (appendix A.2), worked out by hand for theta
// 1e4, 16 elements, an original context of 256 and a factor of 8: a pair i turns 256 / (2 pi
// 1e4^(i/8)) times over that context, which is 32 at i = 0.21 and 1 at i = 3.22. So the ramp runs
// from 0 to 4.
TEST(RopeTable, YarnKeepsFastPairsAndStretchesSlowOnes) {
  ModelConfig model = Llama();
  const RopeTable plain = MakeRopeTable(model, 2);
  model.rope_scaling.type = RopeScalingConfig::Type::kYarn;
  model.rope_scaling.factor = 8;
  model.rope_scaling.original_max_positions = 256;
  const RopeTable scaled = MakeRopeTable(model, 2);
  const auto first = static_cast<std::size_t>(model.head_dim / 2);
  const double magnitude = 0.1 * std::log(8.0) + 1;
  const auto ratio = [&](std::size_t pair) {
    return std::atan2(scaled.sin[first + pair], scaled.cos[first + pair]) /
           std::atan2(plain.sin[first + pair], plain.cos[first + pair]);
  };
  EXPECT_NEAR(ratio(0), 1, 1e-12);
  EXPECT_NEAR(ratio(1), 0.75 + 0.25 / 8, 1e-12);
  EXPECT_NEAR(ratio(2), 0.5 + 0.5 / 8, 1e-12);
  for (std::size_t pair = 4; pair < first; ++pair) EXPECT_NEAR(ratio(pair), 1.0 / 8, 1e-12);
  EXPECT_NEAR(std::hypot(scaled.sin[first + 3], scaled.cos[first + 3]), magnitude, 1e-12);
  model.rope_scaling.attention_factor = 1.5;
  EXPECT_DOUBLE_EQ(MakeRopeTable(model, 1).cos[0], 1.5);
}

TEST(UnitView, FusedGroupsAreOneMatrix) {
  PlanInput input;
  input.model = Llama();
  input.world_size = 3;
  input.sequence_length = 8;
  input.global_batch = 1;
  const Plan plan = *BuildPlan(input);
  std::vector<float> memory(static_cast<std::size_t>(plan.units[1].layout.unit_elements()));
  const UnitView view(plan.units[1], memory.data(), DType::kF32);
  const Matrix qkv = view.Weight(ParameterRole::kQkvWeight);
  EXPECT_EQ(qkv.rows, 128);
  EXPECT_EQ(qkv.cols, 64);
  EXPECT_EQ(static_cast<float*>(view.Weight(ParameterRole::kKWeight).data),
            static_cast<float*>(qkv.data) + 64 * 64);
  EXPECT_EQ(view.Weight(ParameterRole::kMlpInWeight).rows, 2 * 176);
  EXPECT_EQ(view.Values(ParameterRole::kNorm1Weight).size, 64);
  EXPECT_TRUE(view.Values(ParameterRole::kQkvBias).empty());
  EXPECT_FALSE(view.Has(ParameterRole::kEmbedding));
}

// A user who has the defaults gains nothing from being told to use them.
TEST(Verdict, ARemedyNamesOnlyWhatTheJobDoesNotDoAlready) {
  JobSettings settings;
  settings.bf16_parameters = true;
  const auto remedy = [&](KernelFamily family) {
    return Judge(family, {1, 1, 0, 900}, {1000, 1000}, settings).remedy;
  };
  EXPECT_EQ(remedy(KernelFamily::kGather),
            "sharding.reshardAfterForward false, a larger train.globalBatch or fewer ranks");
  EXPECT_EQ(remedy(KernelFamily::kScatter),
            "precision.reduce bf16, a larger train.globalBatch or fewer ranks");
  settings = {.bf16_parameters = false,
              .bf16_reduce = false,
              .reshards_after_forward = false,
              .prefetches = false,
              .two_communicators = false,
              .accumulates = true};
  EXPECT_EQ(remedy(KernelFamily::kGather),
            "sharding.prefetch 1, sharding.communicators 2, a larger train.microBatch, "
            "precision.parameters bf16");
  EXPECT_EQ(Judge(KernelFamily::kMatMulMlp, {1, 1, 990, 1}, {1000, 1000}, settings).remedy,
            "precision.parameters bf16, and sizes that are multiples of 64 or 128");
  settings.bf16_parameters = true;
  EXPECT_EQ(Judge(KernelFamily::kMatMulMlp, {1, 1, 990, 1}, {1000, 1000}, settings).remedy,
            "sizes that are multiples of 64 or 128");
}

TEST(Judge, FollowsTheThresholds) {
  const Ceilings ceilings{100, 1000};
  const auto bound = [&](double flops, double bytes, double seconds, std::int64_t launches = 1) {
    return Judge(KernelFamily::kMatMulMlp, {seconds, launches, flops, bytes}, ceilings).bound;
  };
  EXPECT_EQ(bound(80, 300, 1), v1::BOUND_COMPUTE);
  EXPECT_EQ(bound(20, 800, 1), v1::BOUND_MEMORY);
  EXPECT_EQ(bound(50, 500, 1), v1::BOUND_BALANCED);
  EXPECT_EQ(bound(80, 600, 1), v1::BOUND_BALANCED);
  EXPECT_EQ(bound(1, 10, 1), v1::BOUND_BALANCED);
  EXPECT_EQ(bound(1, 10, 1, 1'000'000), v1::BOUND_LATENCY);
  EXPECT_EQ(bound(1, 1, 0), v1::BOUND_UNSPECIFIED);
  EXPECT_EQ(Judge(KernelFamily::kGather, {1, 1, 0, 900}, ceilings).bound, v1::BOUND_COMMUNICATION);
  const Verdict verdict = Judge(KernelFamily::kNorm, {1, 1, 10, 900}, ceilings);
  EXPECT_DOUBLE_EQ(verdict.compute_ratio, 0.1);
  EXPECT_DOUBLE_EQ(verdict.memory_ratio, 0.9);
  EXPECT_NE(verdict.remedy.find("fuse"), std::string::npos);
}

TEST(AppendVerdicts, LargestTimeFirstAndOnlyWhatRan) {
  FamilyRecorder recorder(/*time_launches=*/false);
  recorder.Add(KernelFamily::kNorm, 1, 0, 1);
  recorder.Add(KernelFamily::kAttentionForward, 3, 1, 1);
  google::protobuf::RepeatedPtrField<v1::FamilyVerdict> verdicts;
  AppendVerdicts(recorder.totals(), {1, 1}, {}, {}, &verdicts);
  ASSERT_EQ(verdicts.size(), 2);
  EXPECT_EQ(verdicts[0].family(), "attention.fwd");
  EXPECT_EQ(verdicts[1].source(), v1::METRIC_SOURCE_ANALYTIC);
}

TEST(Launch, CountsAndTimes) {
  FamilyRecorder recorder(/*time_launches=*/true);
  EXPECT_TRUE(
      Launch(recorder, {KernelFamily::kRope, "rope", 5, 7}, [] { return absl::OkStatus(); }).ok());
  const absl::Status failed = Launch(recorder, {KernelFamily::kRope, "rope", 1, 1},
                                     [] { return absl::InternalError("x"); });
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  const FamilyTotals& totals = recorder.totals()[static_cast<std::size_t>(KernelFamily::kRope)];
  EXPECT_EQ(totals.launches, 2);
  EXPECT_EQ(totals.flops, 6);
  EXPECT_GT(totals.seconds, 0);
}

}  // namespace
}  // namespace fsdp
