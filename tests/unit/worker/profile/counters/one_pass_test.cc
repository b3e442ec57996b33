// PM sampling reads its counters in one pass or not at all. Whether a set fits is a property of the
// chip that CUPTI's host library knows without a GPU, so CI asks it.

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/profile/counters/cupti_metrics.h"
#include "worker/profile/counters/metric_sets.h"

namespace fsdp {
namespace {

absl::StatusOr<std::size_t> PassesOf(const std::string& chip, std::vector<const char*> names) {
  const absl::StatusOr<const CuptiLibrary*> cupti = CuptiLibrary::Open();
  if (!cupti.ok()) return cupti.status();
  const auto metrics = CuptiMetrics::Create(**cupti, chip, {}, std::move(names));
  if (!metrics.ok()) return metrics.status();
  return (*metrics)->num_passes();
}

std::vector<const char*> NamesOf(const MetricSet& set) {
  std::vector<const char*> names;
  for (const CounterMetric& metric : set.metrics) names.push_back(metric.name);
  return names;
}

void ExpectOnePass(const std::string& chip) {
  const MetricSet& set = MetricSetFor(chip);
  SCOPED_TRACE(chip + " with set " + set.name);
  const absl::StatusOr<std::size_t> passes = PassesOf(chip, NamesOf(set));
  ASSERT_TRUE(passes.ok()) << passes.status();
  EXPECT_EQ(*passes, 1U);
}

TEST(OnePassTest, TheLibraryIsHereAndHasEveryCall) {
  const absl::StatusOr<const CuptiLibrary*> cupti = CuptiLibrary::Open();
  ASSERT_TRUE(cupti.ok()) << cupti.status();
}

TEST(OnePassTest, TheSetOfHopperIsOnePass) { ExpectOnePass("GH100"); }

// The portable set is what GH100 would fall back to as well.
TEST(OnePassTest, ThePortableSetIsOnePassOnOtherChips) {
  for (const char* chip : {"GB100", "AD102", "GA100"}) ExpectOnePass(chip);
  const absl::StatusOr<std::size_t> passes = PassesOf("GH100", NamesOf(MetricSetFor("none")));
  ASSERT_TRUE(passes.ok()) << passes.status();
  EXPECT_EQ(*passes, 1U);
}

TEST(OnePassTest, EveryShippedSetIsAskedAbout) {
  std::set<std::string> asked;
  for (const char* chip : {"GH100", "GB100"}) asked.insert(MetricSetFor(chip).name);
  for (const MetricSet& set : ShippedMetricSets()) {
    EXPECT_TRUE(asked.contains(set.name)) << set.name;
    for (const char* chip : set.chips) ExpectOnePass(chip);
  }
}

// What ncu calls SM throughput: the check above can fail.
TEST(OnePassTest, ASetOfManyPassesIsSeen) {
  const absl::StatusOr<std::size_t> passes =
      PassesOf("GH100", {"sm__throughput.avg.pct_of_peak_sustained_elapsed",
                         "dram__throughput.avg.pct_of_peak_sustained_elapsed"});
  ASSERT_TRUE(passes.ok()) << passes.status();
  EXPECT_GT(*passes, 1U);
}

TEST(OnePassTest, AnUnknownMetricOrChipIsAnErrorThatNamesTheCall) {
  const absl::Status metric = PassesOf("GH100", {"no_such_metric.sum"}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(metric)) << metric;
  EXPECT_NE(std::string(metric.message()).find("cuptiProfilerHostConfigAddMetrics"),
            std::string::npos)
      << metric;
  const absl::Status chip = PassesOf("XX999", NamesOf(MetricSetFor("GH100"))).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(chip)) << chip;
}

TEST(OnePassTest, WhoHoldsTheCountersAndWhoMayNotReadThemAreToldApart) {
  const absl::StatusOr<const CuptiLibrary*> cupti = CuptiLibrary::Open();
  ASSERT_TRUE(cupti.ok()) << cupti.status();
  const auto code = [&](CUptiResult result) { return (*cupti)->ToStatus(result, "c").code(); };
  EXPECT_EQ(code(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(CUPTI_ERROR_HARDWARE_BUSY), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(CUPTI_ERROR_INVALID_OPERATION), absl::StatusCode::kInternal);
  EXPECT_EQ(CuptiClaimToStatus(**cupti, CUPTI_ERROR_INVALID_OPERATION, "c").code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE((*cupti)->ToStatus(CUPTI_SUCCESS, "c").ok());
}

}  // namespace
}  // namespace fsdp
