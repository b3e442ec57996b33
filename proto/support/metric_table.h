#ifndef FSDPCTL_PROTO_SUPPORT_METRIC_TABLE_H_
#define FSDPCTL_PROTO_SUPPORT_METRIC_TABLE_H_

// The one table of the metrics that coordinator and workers expose. It feeds Prometheus' HELP and
// TYPE lines, docs/metrics.md and the test that dashboards use known names only.
//
// Names: prefix fsdp_, base units (seconds, bytes), counters end in _total. Label names come from a
// fixed set, label values are bounded: never steps, shapes, kernel names or process ids. Label
// values that stand for an enum are the enum's value without its prefix, in lower case ("running").
//
// Everything here is constant and thread-safe.

#include <span>
#include <string>
#include <string_view>

namespace fsdp {

enum class MetricType { kCounter, kGauge, kHistogram };

// Which processes expose it.
enum class MetricOwner { kCoordinator, kWorker, kBoth };

struct MetricDescriptor {
  std::string_view name;
  MetricType type;
  MetricOwner owner;
  // "seconds", "bytes", "ratio", "flops per second", ...; empty: a plain number.
  std::string_view unit;
  // In the order in which values are given.
  std::span<const std::string_view> labels;
  // What it tells the reader, one line.
  std::string_view help;
  // Upper bounds, ascending, without +Inf; histograms only.
  std::span<const double> buckets = {};
};

// All of them, sorted as the documentation lists them.
std::span<const MetricDescriptor> MetricTable();

// nullptr: no such metric.
const MetricDescriptor* FindMetric(std::string_view name);

// As FindMetric; an unknown name is our mistake and ends the process.
const MetricDescriptor& GetMetric(std::string_view name);

// Every label name that a metric may have.
std::span<const std::string_view> MetricLabelNames();

// "counter", "gauge", "histogram".
std::string_view MetricTypeName(MetricType type);

// "RANK_STATE_RUNNING" -> "running", given "RANK_STATE_".
std::string MetricLabelValue(std::string_view enum_name, std::string_view prefix);

// "jobs/x-1234" -> "x-1234": the value of the label job_id.
std::string MetricJobId(std::string_view job);

// The whole of docs/metrics.md.
std::string MetricsMarkdown();

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_METRIC_TABLE_H_
