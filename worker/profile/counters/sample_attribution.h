#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_SAMPLE_ATTRIBUTION_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_SAMPLE_ATTRIBUTION_H_

// Credits counter samples, which are of the whole device, to the kernel families that ran
// meanwhile.
//
// A sample that one family alone fills (at least 90 % of it, the rest gaps) credits that family.
// Every sample is also one row of a least-squares problem: what the device did is the sum of what
// each family does, by the share of the sample in which it ran. Non-negative least squares over all
// rows gives the families that no sample is filled with: kernels shorter than a sample, and those
// that run beside others. A family with fewer than 30 samples, or whose figure the data leaves open
// by more than 3 points, gets none: its verdict is analytic.
//
// Pure. Thread rule: one thread at a time.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fsdp/v1/job_record.pb.h"
#include "worker/profile/counters/nnls.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {

// A kernel's run on the device. Without family: nobody knows which launch it is of.
struct KernelInterval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::optional<KernelFamily> family;
};

// Ratios of the device's peaks, 0 to 1, over [begin_ns, end_ns).
struct CounterSample {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  double sm = 0;
  double hbm = 0;
  double tensor = 0;
};

// One stretch of sampling, all times on one clock.
struct SampledWindow {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  // In any order, of any streams; they may overlap.
  std::span<const KernelInterval> kernels;
  // In order of time, as they were taken: the first one has a garbage length.
  std::span<const CounterSample> samples;
};

struct FamilyCounters {
  // PM_SAMPLING: the ratios hold. ANALYTIC: they are 0 and mean nothing.
  v1::MetricSource source = v1::METRIC_SOURCE_ANALYTIC;
  // That the ratios rest on: filled by the family, or touched by it where `solved`.
  std::int64_t num_samples = 0;
  bool solved = false;  // by least squares
  double sm = 0;
  double hbm = 0;
  double tensor = 0;
};
using FamilyCounterTable = std::array<FamilyCounters, kNumKernelFamilies>;
// As verdicts take them.
MeasuredTable MeasuredOf(const FamilyCounterTable& table);

class SampleAttribution {
 public:
  struct Options {
    std::int64_t min_samples = 30;
    // Of a sample that credits one family directly.
    double min_direct_share = 0.9;
    // Of a solved ratio, above which it is not given.
    double max_standard_error = 0.03;
  };
  struct Counts {
    std::int64_t used = 0;
    std::int64_t edge = 0;     // the first of a window, and those that cross its edges
    std::int64_t invalid = 0;  // without length, or with a value that is no number
  };

  SampleAttribution() : SampleAttribution(Options()) {}
  explicit SampleAttribution(const Options& options);

  // Windows add up.
  void Add(const SampledWindow& window);
  // Costs about a millisecond.
  [[nodiscard]] FamilyCounterTable Solve() const;
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  static constexpr std::size_t kNumMetrics = 3;  // sm, hbm, tensor
  // A column for each family, one for kernels of unknown family, one for the idle device.
  static constexpr std::size_t kUnknown = kNumKernelFamilies;
  static constexpr std::size_t kIdle = kNumKernelFamilies + 1;
  static constexpr std::size_t kNumColumns = kNumKernelFamilies + 2;
  using Shares = std::array<double, kNumColumns>;
  using Values = std::array<double, kNumMetrics>;
  struct Solution {
    std::vector<double> ratios;
    double variance = 0;  // of one row
  };

  void AddRow(const Shares& shares, const Values& values);
  [[nodiscard]] Solution SolveMetric(const NormalMatrix& matrix, std::size_t metric) const;

  const Options options_;
  Counts counts_;
  // Of samples that a family fills.
  std::array<std::int64_t, kNumColumns> direct_samples_{};
  std::array<double, kNumColumns> direct_shares_{};
  std::array<Values, kNumColumns> direct_values_{};
  // Of all samples: A'A, A'b and b'b.
  NormalMatrix matrix_{kNumColumns};
  std::array<std::vector<double>, kNumMetrics> targets_;
  Values squares_{};
  std::array<std::int64_t, kNumColumns> touched_samples_{};
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_SAMPLE_ATTRIBUTION_H_
