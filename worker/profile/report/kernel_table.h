#ifndef FSDPCTL_WORKER_PROFILE_REPORT_KERNEL_TABLE_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_KERNEL_TABLE_H_

// Where the time of a profile's steps went: by kernel, by family, by collective; and whether that
// is all of it. Totals are over ranks and steps; `rank_steps` makes means of them. Thread-safe (no
// state).

#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/v1/profile.pb.h"

namespace fsdp {

// Launches with one name, family and shape.
struct KernelRow {
  std::string name;
  std::string family;
  std::string shape;
  v1::ProfileTrack track = v1::PROFILE_TRACK_UNSPECIFIED;
  std::int64_t calls = 0;
  // Within steps, without what is nested in them on the same track.
  double self_seconds = 0;
  double flops = 0;
  double bytes = 0;
  // Of the ranks whose roofs are known: self time, and what the launches would take on the nearer
  // roof.
  double judged_seconds = 0;
  double roof_seconds = 0;
  // The family's verdict.
  v1::Bound bound = v1::BOUND_UNSPECIFIED;
};

struct FamilyRow {
  std::string family;
  // The verdict of most of the time that has one, and how many of the ranks that have the family
  // agree.
  v1::Bound bound = v1::BOUND_UNSPECIFIED;
  int ranks_agreeing = 0;
  int num_ranks = 0;
  v1::MetricSource source = v1::METRIC_SOURCE_UNSPECIFIED;
  std::string remedy;
  double seconds = 0;
  std::int64_t launches = 0;
  double flops = 0;
  double bytes = 0;
  // Means by time of the ranks that have them, 0..1.
  double compute_ratio = 0;
  double memory_ratio = 0;
  double tensor_ratio = 0;
  std::int64_t samples = 0;
  double savable_seconds = 0;
};

// Collectives of one name ("all_gather layers.3").
struct CollectiveRow {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0;
  // While nothing computed.
  double exposed_seconds = 0;
  double bytes = 0;
};

// Whether a rank's spans account for its steps: what its kernel families took on the compute track
// and the gaps between them must be the steps' time.
struct CoverageRow {
  std::int32_t rank = 0;
  double step_seconds = 0;
  // Sum of the families' self time.
  double family_seconds = 0;
  // Step time during which the compute track had nothing.
  double gap_seconds = 0;
  double longest_gap_seconds = 0;
  // |families + gaps - steps| / steps; above 0.01 launches overlap each other.
  double difference_ratio = 0;
  // Union of gather and scatter, and what of it ran while nothing computed.
  double communication_seconds = 0;
  double exposed_seconds = 0;
};

struct KernelReport {
  int num_ranks = 0;
  // Steps of all ranks, at least 1.
  std::int64_t rank_steps = 1;
  // Of all ranks.
  double step_seconds = 0;
  // Most time first.
  std::vector<KernelRow> kernels;
  std::vector<FamilyRow> families;
  // Most exposed time first.
  std::vector<CollectiveRow> collectives;
  // By rank.
  std::vector<CoverageRow> coverage;
  std::int64_t spans_dropped = 0;
};

KernelReport BuildKernelReport(const v1::JobProfile& profile);

// The report as a text of tables, at most `top` kernels (0: all), rows that are left out counted
// with their share of the time.
std::string KernelTableText(const v1::JobProfile& profile, int top);
// As above, where the profile's report is there already.
std::string KernelTableText(const v1::JobProfile& profile, const KernelReport& report, int top);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_KERNEL_TABLE_H_
