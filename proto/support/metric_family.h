#ifndef FSDPCTL_PROTO_SUPPORT_METRIC_FAMILY_H_
#define FSDPCTL_PROTO_SUPPORT_METRIC_FAMILY_H_

// From values to prometheus-cpp's families, with name, type, help and label names from the metric
// table. What a Collectable of coordinator or worker returns.

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "prometheus/metric_family.h"
#include "proto/support/metric_table.h"

namespace fsdp {

// One scrape's families. Not thread-safe; made anew for each scrape.
class MetricFamilies {
 public:
  // `labels` are the values in the descriptor's order. An unknown name or another number of labels
  // is our mistake and ends the process. A second value for the same labels is a duplicate series,
  // which scrapers refuse: callers give each once.
  void Add(std::string_view name, std::initializer_list<std::string> labels, double value);

  // `bucket_counts` has one entry more than the descriptor's buckets (the last: above all bounds);
  // entries are not cumulative.
  void AddHistogram(std::string_view name, std::initializer_list<std::string> labels,
                    const std::vector<std::uint64_t>& bucket_counts, double sum);

  // The families in the order of their first value; empty ones are left out.
  [[nodiscard]] std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& NewMetric(std::string_view name,
                                      std::initializer_list<std::string> labels);

  std::vector<prometheus::MetricFamily> families_;
};

// A histogram's state between scrapes. Thread-safe.
class MetricHistogram {
 public:
  // A histogram of the metric table.
  explicit MetricHistogram(std::string_view name);
  void Observe(double value);
  void AddTo(MetricFamilies* families, std::initializer_list<std::string> labels) const;

 private:
  const MetricDescriptor& descriptor_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_METRIC_FAMILY_H_
