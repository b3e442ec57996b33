#include "worker/profile/report/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/interval_set.h"

namespace fsdp {
namespace {

using report::IntervalSet;
using testing::HasSubstr;
using testing::Not;

const KernelRow& Row(const KernelReport& report, const std::string& name,
                     const std::string& family) {
  for (const KernelRow& row : report.kernels) {
    if (row.name == name && row.family == family) return row;
  }
  ADD_FAILURE() << "no row " << name;
  return report.kernels.front();
}

TEST(IntervalSetTest, UnionMinusIntersection) {
  const IntervalSet a({{10, 20}, {0, 5}, {15, 30}, {40, 40}, {9, 3}});
  EXPECT_EQ(a.length_ns(), 25);
  EXPECT_EQ(a.LengthWithin(0, 100), 25);
  EXPECT_EQ(a.LengthWithin(3, 12), 4);
  EXPECT_EQ(a.LengthWithin(20, 20), 0);
  const IntervalSet b({{4, 11}, {25, 50}});
  EXPECT_EQ(a.Intersection(b).length_ns(), 1 + 1 + 5);
  EXPECT_EQ(a.Minus(b).length_ns(), 25 - 7);
  EXPECT_EQ(b.Minus(a).length_ns(), 32 - 7);
  EXPECT_EQ(a.Union(b).length_ns(), 25 + 32 - 7);
  EXPECT_EQ(IntervalSet().Minus(a).length_ns(), 0);
  EXPECT_EQ(a.Minus(IntervalSet()).length_ns(), 25);
}

TEST(KernelTableTest, FamiliesAndGapsAreTheStep) {
  const KernelReport report = BuildKernelReport(ExampleProfile(ExampleNames::kPlain));
  ASSERT_EQ(report.coverage.size(), 3U);
  for (const CoverageRow& rank : report.coverage) {
    EXPECT_NEAR(rank.step_seconds, 20e-3, 1e-12);
    EXPECT_NEAR(rank.family_seconds, 2 * 8.2e-3, 1e-12);
    EXPECT_NEAR(rank.gap_seconds, 2 * 1.8e-3, 1e-12);
    // The end of step 0 and the begin of step 1 are one gap, as long as the one before AdamW.
    EXPECT_NEAR(rank.longest_gap_seconds, 0.8e-3, 1e-12);
    EXPECT_NEAR(rank.difference_ratio, 0, 1e-12);
  }
}

TEST(KernelTableTest, LaunchesThatOverlapShowAsADifference) {
  RankBuilder rank(0, 1);
  rank.AddStep(0, 0, 1000)
      .Add({v1::PROFILE_TRACK_COMPUTE, 0, 500, "a", "norm", "", 0, 0, 0, 0})
      .Add({v1::PROFILE_TRACK_COMPUTE, 400, 500, "b", "norm", "", 0, 0, 0, 0});
  v1::JobProfile profile;
  *profile.add_ranks() = rank.profile();
  const KernelReport report = BuildKernelReport(profile);
  EXPECT_NEAR(report.coverage[0].difference_ratio, 0.1, 1e-12);
  EXPECT_THAT(KernelTableText(profile, 0), HasSubstr("miss the step's time on rank 0 by 10.0 %"));
}

TEST(KernelTableTest, SelfTimeIsWithoutNestedSpans) {
  const KernelReport report = BuildKernelReport(ExampleProfile(ExampleNames::kPlain));
  const KernelRow& outer = Row(report, "attention.fwd", "attention.fwd");
  const KernelRow& inner = Row(report, "softmax", "attention.fwd");
  // Three ranks, two steps.
  EXPECT_NEAR(outer.self_seconds, 6 * 1.5e-3, 1e-12);
  EXPECT_NEAR(inner.self_seconds, 6 * 0.5e-3, 1e-12);
  EXPECT_EQ(outer.calls, 6);
  EXPECT_EQ(outer.bound, v1::BOUND_BALANCED);
}

TEST(KernelTableTest, OnlyWhatLiesInStepsCounts) {
  RankBuilder rank(0, 1);
  rank.AddStep(0, 100, 100).Add({v1::PROFILE_TRACK_COMPUTE, 50, 100, "a", "norm", "", 0, 0, 0, 0});
  v1::JobProfile profile;
  *profile.add_ranks() = rank.profile();
  const KernelReport report = BuildKernelReport(profile);
  EXPECT_NEAR(report.kernels[0].self_seconds, 50e-6, 1e-15);
  EXPECT_NEAR(report.coverage[0].gap_seconds, 50e-6, 1e-15);
}

TEST(KernelTableTest, RoofsAreTheRanksOwn) {
  const KernelReport report = BuildKernelReport(ExampleProfile(ExampleNames::kPlain));
  // adamw: 1.2e9 bytes at 2.4e12 B/s are 0.5 ms, on the two ranks that have roofs.
  EXPECT_NEAR(Row(report, "adamw", "optimizer").roof_seconds, 4 * 0.5e-3, 1e-9);
  EXPECT_NEAR(Row(report, "adamw", "optimizer").judged_seconds, 4 * 0.6e-3, 1e-9);
  EXPECT_EQ(Row(report, "all_gather layers.0", "gather").roof_seconds, 0);
}

TEST(KernelTableTest, FamiliesOfRanksBecomeOne) {
  const KernelReport report = BuildKernelReport(ExampleProfile(ExampleNames::kPlain));
  const auto norm = std::find_if(report.families.begin(), report.families.end(),
                                 [](const FamilyRow& row) { return row.family == "norm"; });
  ASSERT_NE(norm, report.families.end());
  EXPECT_EQ(norm->bound, v1::BOUND_MEMORY);
  EXPECT_EQ(norm->ranks_agreeing, 2);
  EXPECT_EQ(norm->num_ranks, 3);
  EXPECT_EQ(norm->launches, 6);
  EXPECT_NEAR(norm->memory_ratio, 1e9 / 500e-6 / 2.4e12, 1e-9) << "of the ranks that have it";
  EXPECT_THAT(norm->remedy, HasSubstr("fuse"));
  for (std::size_t i = 1; i < report.families.size(); ++i) {
    EXPECT_GE(report.families[i - 1].seconds, report.families[i].seconds);
  }
}

TEST(KernelTableTest, ExposedIsWhatRanWhileNothingComputed) {
  const KernelReport report = BuildKernelReport(ExampleProfile(ExampleNames::kPlain));
  // Union of the gathers 0-2 and the scatter 7.9-8.9; computing are 0.3-3.3 and up to 8.1.
  EXPECT_NEAR(report.coverage[0].communication_seconds, 2 * 3.0e-3, 1e-12);
  EXPECT_NEAR(report.coverage[0].exposed_seconds, 2 * (0.3e-3 + 0.8e-3), 1e-12);
  // Rank 3 begins 0.5 ms later.
  EXPECT_NEAR(report.coverage[2].exposed_seconds, 2 * 0.5e-3, 1e-12);
  ASSERT_EQ(report.collectives.size(), 3U);
  EXPECT_EQ(report.collectives[0].name, "reduce_scatter layers.0");
  EXPECT_NEAR(report.collectives[0].exposed_seconds, 2 * (0.8e-3 * 2 + 0.5e-3), 1e-12);
  EXPECT_EQ(report.collectives[0].calls, 6);
}

TEST(KernelTableTest, TextIsCutAndSaysWhatIsMissing) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kHostile);
  const std::string all = KernelTableText(profile, 0);
  EXPECT_THAT(all, Not(HasSubstr("more rows")));
  EXPECT_THAT(all, HasSubstr("3 ranks, 2 steps each, 10.0 ms a step"));
  EXPECT_THAT(all, HasSubstr("memory (2 of 3 ranks)"));
  EXPECT_THAT(all, HasSubstr("7 spans did not fit"));
  EXPECT_THAT(all, Not(HasSubstr("\x01"))) << "control characters stay out of terminals";
  const std::string two = KernelTableText(profile, 2);
  EXPECT_THAT(two, HasSubstr("... 12 more rows, "));
  EXPECT_THAT(KernelTableText(v1::JobProfile(), 0), HasSubstr("no recordings"));
}

TEST(KernelTableTest, RanksThatAreNotInItAreNamed) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  for (auto& rank : *profile.mutable_ranks()) rank.clear_notes();
  profile.clear_missing();
  EXPECT_THAT(KernelTableText(profile, 0), Not(HasSubstr("What is missing")));
  profile.add_missing("rank 1: its worker\x1b[1m was lost");
  profile.mutable_ranks(2)->add_notes("3 of 5 steps are recorded");
  EXPECT_THAT(KernelTableText(profile, 0),
              HasSubstr("\nWhat is missing:\n\n- rank 1: its worker\xef\xbf\xbd[1m was lost\n"
                        "- rank 3: 3 of 5 steps are recorded\n"));
}

TEST(KernelTableTest, ARecordingWithoutStepsHasATable) {
  RankBuilder rank(0, 1);
  rank.Add({v1::PROFILE_TRACK_COMPUTE, 0, 100, "a", "norm", "", 0, 0, 0, 0});
  rank.profile().set_end_ns(rank.profile().begin_ns() + 400'000);
  v1::JobProfile profile;
  *profile.add_ranks() = rank.profile();
  const KernelReport report = BuildKernelReport(profile);
  EXPECT_NEAR(report.coverage[0].gap_seconds, 300e-6, 1e-12);
}

}  // namespace
}  // namespace fsdp
