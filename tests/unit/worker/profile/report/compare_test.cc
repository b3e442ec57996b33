#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/profile_compare.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// One rank, one step: `mlp_calls` launches of `mlp_us` each, 100 us of norm, a gather of 200 us of
// which the first `exposed_us` are before the first launch, and 50 us at the end.
v1::JobProfile Step(int mlp_calls, std::int64_t mlp_us, std::int64_t exposed_us = 30,
                    double mlp_flops = 1e9) {
  RankBuilder rank(0, 1);
  rank.Add({v1::PROFILE_TRACK_GATHER, 0, 200, "all_gather layers.0", "gather", "", 0, 1e6, 0, 1});
  std::int64_t at = exposed_us;
  for (int i = 0; i < mlp_calls; ++i, at += mlp_us) {
    rank.Add({v1::PROFILE_TRACK_COMPUTE, at, mlp_us, "matmul", "matmul.mlp", "64x64x64", mlp_flops,
              1e6, 0, 0});
  }
  rank.Add({v1::PROFILE_TRACK_COMPUTE, at, 100, "rms_norm", "norm", "64x64", 0, 1e6, 0, 0});
  rank.AddStep(0, 0, at + 150);
  rank.profile().mutable_steps(0)->mutable_phases()->set_compute_seconds(
      static_cast<double>(at + 100 - exposed_us) * 1e-6);
  v1::JobProfile profile;
  profile.set_job("jobs/a");
  *profile.add_ranks() = rank.profile();
  return profile;
}

const Contribution& Of(const Comparison& comparison, const std::string& name) {
  for (const Contribution& one : comparison.contributions) {
    if (one.name == name) return one;
  }
  ADD_FAILURE() << "no contribution " << name;
  return comparison.contributions.front();
}

double Sum(const Comparison& comparison) {
  double sum = 0;
  for (const Contribution& one : comparison.contributions) sum += one.difference_seconds;
  return sum;
}

TEST(CompareTest, MoreCallsAreNamed) {
  const Comparison comparison = Compare(Step(12, 100), Step(24, 100));
  EXPECT_NEAR(comparison.after_seconds - comparison.before_seconds, 1.2e-3, 1e-12);
  EXPECT_NEAR(Sum(comparison), 1.2e-3, 1e-12);
  EXPECT_EQ(comparison.contributions.front().sentence,
            "matmul.mlp takes 1.20 ms more: 24 instead of 12 calls");
  EXPECT_THAT(comparison.warnings, IsEmpty());
  EXPECT_EQ(comparison.phases.front().phase, "compute");
  EXPECT_NEAR(comparison.phases.front().after_seconds - comparison.phases.front().before_seconds,
              1.2e-3, 1e-12);
}

TEST(CompareTest, SlowerCallsAreNamed) {
  const Comparison comparison = Compare(Step(10, 100), Step(10, 118));
  EXPECT_EQ(comparison.contributions.front().sentence,
            "matmul.mlp takes 180 us more: same calls, 18 % slower each");
  EXPECT_EQ(Compare(Step(10, 118), Step(10, 100)).contributions.front().sentence,
            "matmul.mlp takes 180 us less: same calls, 15 % faster each");
}

TEST(CompareTest, MoreWorkPerCallIsNamed) {
  const Comparison comparison = Compare(Step(10, 100), Step(10, 200, 30, 2e9));
  EXPECT_EQ(comparison.contributions.front().sentence,
            "matmul.mlp takes 1.00 ms more: same calls, 2.0 times as long each, 2.00 times the "
            "FLOPs each");
}

TEST(CompareTest, ExposedCommunicationIsApart) {
  const Comparison comparison = Compare(Step(10, 100, 30), Step(10, 100, 130));
  const Contribution& gather = Of(comparison, "gather");
  EXPECT_TRUE(gather.is_exposed_time);
  EXPECT_NEAR(gather.difference_seconds, 100e-6, 1e-12);
  EXPECT_EQ(gather.sentence,
            "gather is exposed 100 us more: same calls, 35.0 % of it hidden instead of 85.0 %");
  EXPECT_NEAR(Sum(comparison), comparison.after_seconds - comparison.before_seconds, 1e-12);
}

TEST(CompareTest, TheRestHasAName) {
  v1::JobProfile after = Step(10, 100);
  v1::ProfileStep& step = *after.mutable_ranks(0)->mutable_steps(0);
  step.set_duration_ns(step.duration_ns() + 400'000);
  const Comparison comparison = Compare(Step(10, 100), after);
  EXPECT_EQ(comparison.contributions.front().name, "not in a family");
  EXPECT_NEAR(comparison.contributions.front().difference_seconds, 400e-6, 1e-12);
  EXPECT_THAT(CompareText(Step(10, 100), after),
              HasSubstr("Time in which no family ran (gaps, host) is 400 us more"));
}

TEST(CompareTest, FamiliesThatComeAndGo) {
  const Comparison comparison = Compare(Step(0, 0), Step(5, 100));
  EXPECT_EQ(Of(comparison, "matmul.mlp").sentence, "matmul.mlp takes 500 us more: it is new");
  EXPECT_EQ(Of(Compare(Step(5, 100), Step(0, 0)), "matmul.mlp").sentence,
            "matmul.mlp takes 500 us less: it is gone");
}

TEST(CompareTest, ARankThatComesLateIsNamed) {
  // In it rank 3 comes 560 us late to each of three collectives a step.
  const v1::JobProfile late = ExampleProfile(ExampleNames::kPlain);
  v1::JobProfile punctual = late;
  for (auto& span : *punctual.mutable_ranks(2)->mutable_spans()) {
    if (span.sequence() > 0) span.set_begin_ns(span.begin_ns() - 500'000);
  }
  const Comparison comparison = Compare(punctual, late);
  ASSERT_EQ(comparison.late_ranks.size(), 1U);
  EXPECT_EQ(comparison.late_ranks[0].rank, 3);
  EXPECT_EQ(
      comparison.late_ranks[0].sentence,
      "Rank 3 comes 1.68 ms a step late to the collectives instead of 180 us: last in 6 of 6");
  EXPECT_THAT(CompareText(punctual, late), HasSubstr("- Rank 3 comes 1.68 ms a step late"));
  EXPECT_THAT(CompareText(late, punctual),
              HasSubstr("- Rank 3 comes 180 us a step late to the collectives instead of 1.68 ms"));
  EXPECT_THAT(Compare(late, late).late_ranks, IsEmpty());
  // Where the clocks are too uncertain to say who is last, nobody is named.
  v1::JobProfile vague = late;
  vague.mutable_clocks(2)->set_uncertainty_ns(600'000);
  EXPECT_THAT(Compare(punctual, vague).late_ranks, IsEmpty());
}

TEST(CompareTest, TheSameProfileDiffersNowhere) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kHostile);
  const Comparison comparison = Compare(profile, profile);
  EXPECT_NEAR(comparison.before_seconds, 10e-3, 1e-12);
  for (const Contribution& one : comparison.contributions) EXPECT_EQ(one.difference_seconds, 0);
  const std::string text = CompareText(profile, profile);
  EXPECT_THAT(text, AllOf(HasSubstr("(+0.0 %)"),
                          HasSubstr("No family's time differs by more than 0.5 % of the step"),
                          HasSubstr("14 spans did not fit"), Not(HasSubstr("instead"))));
}

TEST(CompareTest, SharesAreTheStepOnEveryRank) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  const Comparison comparison = Compare(profile, profile);
  double sum = 0;
  for (const Contribution& one : comparison.contributions) {
    EXPECT_GE(one.after.seconds, 0) << one.name;
    sum += one.after.seconds;
  }
  EXPECT_NEAR(sum, comparison.after_seconds, 1e-12);
  // Rank 3's exposed scatter is 0.5 ms, the others' 0.8.
  EXPECT_NEAR(Of(comparison, "scatter").after.seconds, 0.7e-3, 1e-12);
}

TEST(CompareTest, WhatIsHardToCompareIsTold) {
  v1::JobProfile after = Step(10, 100);
  after.set_job("jobs/b");
  v1::RankProfile& rank = *after.mutable_ranks(0);
  rank.set_world_size(8);
  rank.set_device("CPU");
  rank.set_dtype("f32");
  rank.set_strings(static_cast<int>(rank.spans(1).shape()), "128x64x64");
  const Comparison comparison = Compare(Step(10, 100), after);
  EXPECT_THAT(comparison.warnings, Contains("different jobs: jobs/a and jobs/b"));
  EXPECT_THAT(comparison.warnings, Contains("different world sizes: 1 and 8"));
  EXPECT_THAT(comparison.warnings, Contains("different devices: NVIDIA H200 and CPU"));
  EXPECT_THAT(comparison.warnings, Contains("different dtypes: bf16 and f32"));
  EXPECT_THAT(comparison.warnings, Contains(HasSubstr("different shapes")));
}

TEST(CompareTest, NothingAgainstNothing) {
  EXPECT_THAT(CompareText(v1::JobProfile(), v1::JobProfile()), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace fsdp
