#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/collective_skew.h"

namespace fsdp {
namespace {

TEST(SkewTest, NamesTheLateRank) {
  const SkewReport report = BuildSkewReport(ExampleProfile(ExampleNames::kPlain));
  ASSERT_EQ(report.collectives.size(), 6U);
  ASSERT_EQ(report.ranks.size(), 3U);
  const RankLateness& latest = report.ranks.front();
  EXPECT_EQ(latest.rank, 3);
  // 0.5 ms late, and it began to record 60 us after rank 0.
  EXPECT_NEAR(latest.mean_seconds, 560e-6, 1e-12);
  EXPECT_EQ(latest.times_last, 6);
  EXPECT_EQ(latest.uncertainty_ns, 12'000);
  EXPECT_EQ(report.ranks.back().rank, 0);
  EXPECT_NEAR(report.ranks.back().mean_seconds, 0, 1e-12);
}

TEST(SkewTest, WireIsFromTheLastBeginToTheFirstEnd) {
  const SkewReport report = BuildSkewReport(ExampleProfile(ExampleNames::kPlain));
  for (const CollectiveSkew& one : report.collectives) {
    EXPECT_EQ(one.skew_ns, 560'000);
    EXPECT_EQ(one.first_rank, 0);
    EXPECT_EQ(one.last_rank, 3);
    EXPECT_EQ(one.uncertainty_ns, 12'000);
    // Rank 0 ends first: 1.2 or 1.0 ms after its begin.
    EXPECT_EQ(one.wire_ns, one.name == "all_gather layers.0" ? 640'000 : 440'000);
  }
}

TEST(SkewTest, BelowTheClocksUncertaintyNobodyIsLast) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  profile.mutable_clocks(2)->set_uncertainty_ns(600'000);
  for (const RankLateness& rank : BuildSkewReport(profile).ranks) EXPECT_EQ(rank.times_last, 0);
  profile.clear_clocks();
  profile.mutable_ranks(2)->set_host("node-b");
  for (const CollectiveSkew& one : BuildSkewReport(profile).collectives) {
    EXPECT_EQ(one.uncertainty_ns, -1);
  }
}

TEST(SkewTest, ASingleRankHasNone) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  profile.mutable_ranks()->DeleteSubrange(1, 2);
  EXPECT_TRUE(BuildSkewReport(profile).collectives.empty());
}

}  // namespace
}  // namespace fsdp
