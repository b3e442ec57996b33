#include "worker/profile/counters/metric_sets.h"

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

bool Has(const MetricSet& set, CounterRole role) {
  return std::any_of(set.metrics.begin(), set.metrics.end(),
                     [role](const CounterMetric& metric) { return metric.role == role; });
}

TEST(MetricSetsTest, HopperHasItsOwnAndOthersThePortableOne) {
  EXPECT_STREQ(MetricSetFor("GH100").name, "hopper");
  EXPECT_STREQ(MetricSetFor("GB100").name, "portable");
  EXPECT_STREQ(MetricSetFor("").name, "portable");
}

TEST(MetricSetsTest, EverySetHasWhatAVerdictNeeds) {
  for (const MetricSet& set : ShippedMetricSets()) {
    SCOPED_TRACE(set.name);
    EXPECT_TRUE(Has(set, CounterRole::kSmThroughput) || Has(set, CounterRole::kInstructions));
    EXPECT_TRUE(Has(set, CounterRole::kHbmThroughput));
    EXPECT_TRUE(Has(set, CounterRole::kTensorActive));
    EXPECT_TRUE(Has(set, CounterRole::kSmClock));
    std::set<CounterRole> roles;
    for (const CounterMetric& metric : set.metrics) {
      EXPECT_TRUE(roles.insert(metric.role).second) << metric.name;
    }
  }
}

}  // namespace
}  // namespace fsdp
