#include "proto/support/metric_table.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "proto/support/metric_family.h"

namespace fsdp {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricTableTest, NamesFollowTheRules) {
  std::set<std::string> names;
  for (const MetricDescriptor& metric : MetricTable()) {
    const std::string name(metric.name);
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    EXPECT_TRUE(name.starts_with("fsdp_")) << name;
    EXPECT_EQ(name.ends_with("_total"), metric.type == MetricType::kCounter) << name;
    EXPECT_EQ(metric.buckets.empty(), metric.type != MetricType::kHistogram) << name;
    EXPECT_TRUE(std::ranges::is_sorted(metric.buckets)) << name;
    EXPECT_THAT(name, Not(HasSubstr("milli"))) << name;
    if (metric.unit == "seconds" || metric.unit == "bytes") {
      EXPECT_THAT(name, HasSubstr(std::string(metric.unit)));
    }
    if (metric.unit == "ratio") {
      EXPECT_TRUE(name.ends_with("_ratio")) << name;
    }
  }
}

TEST(MetricTableTest, LabelsComeFromTheFixedSet) {
  for (const MetricDescriptor& metric : MetricTable()) {
    for (const std::string_view label : metric.labels) {
      EXPECT_THAT(MetricLabelNames(), Contains(label)) << metric.name;
    }
  }
}

TEST(MetricTableTest, HelpIsOneSentenceThatFitsATable) {
  for (const MetricDescriptor& metric : MetricTable()) {
    EXPECT_TRUE(metric.help.ends_with('.')) << metric.name;
    EXPECT_EQ(metric.help.find_first_of("\n|"), std::string_view::npos) << metric.name;
  }
}

TEST(MetricTableTest, FindKnowsTheTableAndNothingElse) {
  ASSERT_NE(FindMetric("fsdp_loss"), nullptr);
  EXPECT_EQ(FindMetric("fsdp_loss")->type, MetricType::kGauge);
  EXPECT_EQ(FindMetric("fsdp_lossy"), nullptr);
  EXPECT_DEATH(GetMetric("fsdp_lossy"), "no metric is named fsdp_lossy");
}

TEST(MetricTableTest, LabelValues) {
  EXPECT_EQ(MetricLabelValue("RANK_STATE_RUNNING", "RANK_STATE_"), "running");
  EXPECT_EQ(MetricJobId("jobs/a-1"), "a-1");
  EXPECT_EQ(MetricJobId("a-1"), "a-1");
}

TEST(MetricTableTest, TheDocumentationIsCurrent) {
  std::ifstream file(FSDP_SOURCE_DIR "/docs/metrics.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), MetricsMarkdown()) << "run: fsdp-metrics-doc > docs/metrics.md";
}

TEST(MetricFamiliesTest, FillsNamesTypesAndLabelsFromTheTable) {
  MetricFamilies families;
  families.Add("fsdp_memory_bytes", {"j", "0", "weights"}, 12);
  families.Add("fsdp_steps_total", {"j", "0"}, 7);
  families.Add("fsdp_memory_bytes", {"j", "1", "weights"}, 13);
  const std::string text = prometheus::TextSerializer().Serialize(families.Take());
  EXPECT_THAT(text, HasSubstr("# TYPE fsdp_memory_bytes gauge\n"
                              "fsdp_memory_bytes{job_id=\"j\",rank=\"0\",kind=\"weights\"} 12\n"
                              "fsdp_memory_bytes{job_id=\"j\",rank=\"1\",kind=\"weights\"} 13\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE fsdp_steps_total counter\n"));
}

TEST(MetricFamiliesTest, AWrongNumberOfLabelsIsOurMistake) {
  MetricFamilies families;
  EXPECT_DEATH(families.Add("fsdp_loss", {"j"}, 1), "fsdp_loss has 2 labels, given were 1");
}

TEST(MetricHistogramTest, BucketsAreCumulativeAndBoundsBelongToTheirBucket) {
  MetricHistogram histogram("fsdp_submit_seconds");
  histogram.Observe(0.0001);  // On the first bound.
  histogram.Observe(0.002);
  histogram.Observe(1000);
  MetricFamilies families;
  histogram.AddTo(&families, {});
  const prometheus::MetricFamily family = families.Take().at(0);
  const auto& filled = family.metric.at(0).histogram;
  EXPECT_EQ(filled.sample_count, 3u);
  EXPECT_DOUBLE_EQ(filled.sample_sum, 1000.0021);
  EXPECT_EQ(filled.bucket.front().cumulative_count, 1u);
  EXPECT_EQ(filled.bucket.at(filled.bucket.size() - 2).cumulative_count, 2u);
  EXPECT_EQ(filled.bucket.back().cumulative_count, 3u);
  EXPECT_EQ(filled.bucket.back().upper_bound, std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace fsdp
