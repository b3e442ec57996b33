#include "proto/support/metric_family.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

prometheus::MetricType ToPrometheus(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

}  // namespace

prometheus::ClientMetric& MetricFamilies::NewMetric(std::string_view name,
                                                    std::initializer_list<std::string> labels) {
  const MetricDescriptor& descriptor = GetMetric(name);
  FSDP_CHECK(labels.size() == descriptor.labels.size(), ToAbsl(name), " has ",
             descriptor.labels.size(), " labels, given were ", labels.size());
  auto family = std::ranges::find(families_, name, &prometheus::MetricFamily::name);
  if (family == families_.end()) {
    families_.push_back(
        {std::string(name), std::string(descriptor.help), ToPrometheus(descriptor.type), {}});
    family = std::prev(families_.end());
  }
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  std::size_t index = 0;
  for (const std::string& value : labels) {
    metric.label.push_back({std::string(descriptor.labels[index++]), value});
  }
  return metric;
}

void MetricFamilies::Add(std::string_view name, std::initializer_list<std::string> labels,
                         double value) {
  prometheus::ClientMetric& metric = NewMetric(name, labels);
  if (GetMetric(name).type == MetricType::kCounter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

void MetricFamilies::AddHistogram(std::string_view name, std::initializer_list<std::string> labels,
                                  const std::vector<std::uint64_t>& bucket_counts, double sum) {
  const MetricDescriptor& descriptor = GetMetric(name);
  FSDP_CHECK(bucket_counts.size() == descriptor.buckets.size() + 1, ToAbsl(name));
  prometheus::ClientMetric::Histogram& histogram = NewMetric(name, labels).histogram;
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < bucket_counts.size(); ++i) {
    cumulative += bucket_counts[i];
    const double bound = i < descriptor.buckets.size() ? descriptor.buckets[i]
                                                       : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({cumulative, bound});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = sum;
}

MetricHistogram::MetricHistogram(std::string_view name)
    : descriptor_(GetMetric(name)), counts_(descriptor_.buckets.size() + 1) {
  FSDP_CHECK(descriptor_.type == MetricType::kHistogram, ToAbsl(name), " is no histogram");
}

void MetricHistogram::Observe(double value) {
  const auto bound = std::ranges::lower_bound(descriptor_.buckets, value);
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_[static_cast<std::size_t>(bound - descriptor_.buckets.begin())];
  sum_ += value;
}

void MetricHistogram::AddTo(MetricFamilies* families,
                            std::initializer_list<std::string> labels) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  families->AddHistogram(descriptor_.name, labels, counts_, sum_);
}

}  // namespace fsdp
