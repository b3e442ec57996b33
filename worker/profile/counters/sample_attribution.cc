#include "worker/profile/counters/sample_attribution.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fsdp {
namespace {

// A smaller share of a sample tells nothing about a family.
constexpr double kTouched = 0.01;
// The idle device is taken to do nothing, as strongly as this share of all samples would say so.
// Where a family always comes with the same share of gaps, nothing else tells the two apart; where
// samples show the idle device, they outweigh it.
constexpr double kIdlePrior = 0.1;

struct Interval {
  std::int64_t begin_ns;
  std::int64_t end_ns;
};

// Disjoint intervals in order of time, read forward: the share of samples that they cover.
class Coverage {
 public:
  void Add(std::int64_t begin_ns, std::int64_t end_ns) {
    if (begin_ns < end_ns) intervals_.push_back({begin_ns, end_ns});
  }

  void Merge() {
    std::sort(intervals_.begin(), intervals_.end(),
              [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
    std::vector<Interval> merged;
    for (const Interval& next : intervals_) {
      if (!merged.empty() && next.begin_ns <= merged.back().end_ns) {
        merged.back().end_ns = std::max(merged.back().end_ns, next.end_ns);
      } else {
        merged.push_back(next);
      }
    }
    intervals_ = std::move(merged);
  }

  // Samples come in order of time.
  double ShareOf(const CounterSample& sample) {
    while (next_ < intervals_.size() && intervals_[next_].end_ns <= sample.begin_ns) ++next_;
    std::int64_t covered_ns = 0;
    for (std::size_t i = next_; i < intervals_.size() && intervals_[i].begin_ns < sample.end_ns;
         ++i) {
      covered_ns += std::min(intervals_[i].end_ns, sample.end_ns) -
                    std::max(intervals_[i].begin_ns, sample.begin_ns);
    }
    return static_cast<double>(covered_ns) / static_cast<double>(sample.end_ns - sample.begin_ns);
  }

 private:
  std::vector<Interval> intervals_;
  std::size_t next_ = 0;
};

double Clamped(double ratio) { return std::clamp(ratio, 0.0, 1.0); }

}  // namespace

SampleAttribution::SampleAttribution(const Options& options) : options_(options) {
  targets_.fill(std::vector<double>(kNumColumns, 0.0));
}

void SampleAttribution::Add(const SampledWindow& window) {
  std::array<Coverage, kNumColumns> columns;  // the last one: busy with anything
  for (const KernelInterval& kernel : window.kernels) {
    const std::size_t column = kernel.family ? static_cast<std::size_t>(*kernel.family) : kUnknown;
    columns[column].Add(kernel.begin_ns, kernel.end_ns);
    columns[kIdle].Add(kernel.begin_ns, kernel.end_ns);
  }
  for (Coverage& column : columns) column.Merge();
  bool first = true;
  for (const CounterSample& sample : window.samples) {
    const bool edge = std::exchange(first, false) || sample.begin_ns < window.begin_ns ||
                      sample.end_ns > window.end_ns;
    const Values values = {sample.sm, sample.hbm, sample.tensor};
    const bool valid =
        sample.begin_ns < sample.end_ns &&
        std::all_of(
            values.begin(), values.end(), [](double value) { return std::isfinite(value); });
    if (edge || !valid) {
      ++(edge ? counts_.edge : counts_.invalid);
      continue;
    }
    Shares shares;
    for (std::size_t i = 0; i < kNumColumns; ++i) shares[i] = columns[i].ShareOf(sample);
    shares[kIdle] = 1 - shares[kIdle];
    AddRow(shares, values);
  }
}

void SampleAttribution::AddRow(const Shares& shares, const Values& values) {
  ++counts_.used;
  std::size_t num_touched = 0;
  std::size_t last_touched = 0;
  for (std::size_t i = 0; i < kIdle; ++i) {
    if (shares[i] > 0) last_touched = i;
    num_touched += shares[i] > 0 ? 1 : 0;
    if (shares[i] >= kTouched) ++touched_samples_[i];
  }
  if (num_touched == 1 && shares[last_touched] >= options_.min_direct_share) {
    ++direct_samples_[last_touched];
    direct_shares_[last_touched] += shares[last_touched];
    for (std::size_t m = 0; m < kNumMetrics; ++m) direct_values_[last_touched][m] += values[m];
  }
  for (std::size_t i = 0; i < kNumColumns; ++i) {
    for (std::size_t k = 0; k < kNumColumns; ++k) matrix_.at(i, k) += shares[i] * shares[k];
    for (std::size_t m = 0; m < kNumMetrics; ++m) targets_[m][i] += shares[i] * values[m];
  }
  for (std::size_t m = 0; m < kNumMetrics; ++m) squares_[m] += values[m] * values[m];
}

SampleAttribution::Solution SampleAttribution::SolveMetric(const NormalMatrix& matrix,
                                                           std::size_t metric) const {
  Solution solution{SolveNonNegative(matrix, targets_[metric])};
  double residual = squares_[metric];
  std::int64_t num_unknowns = 0;
  for (std::size_t i = 0; i < kNumColumns; ++i) {
    if (touched_samples_[i] > 0) ++num_unknowns;
    residual -= 2 * solution.ratios[i] * targets_[metric][i];
    for (std::size_t k = 0; k < kNumColumns; ++k) {
      residual += solution.ratios[i] * matrix_.at(i, k) * solution.ratios[k];
    }
  }
  const std::int64_t freedom = std::max<std::int64_t>(1, counts_.used - num_unknowns);
  solution.variance = std::max(0.0, residual) / static_cast<double>(freedom);
  return solution;
}

FamilyCounterTable SampleAttribution::Solve() const {
  NormalMatrix matrix = matrix_;
  matrix.at(kIdle, kIdle) += kIdlePrior * static_cast<double>(counts_.used);
  std::array<Solution, kNumMetrics> solutions;
  double variance = 0;
  for (std::size_t m = 0; m < kNumMetrics; ++m) {
    solutions[m] = SolveMetric(matrix, m);
    variance = std::max(variance, solutions[m].variance);
  }
  const std::vector<double> inverse = InverseDiagonal(matrix);

  FamilyCounterTable table;
  for (std::size_t i = 0; i < table.size(); ++i) {
    FamilyCounters& family = table[i];
    Values ratios{};
    if (direct_samples_[i] >= options_.min_samples) {
      family.num_samples = direct_samples_[i];
      for (std::size_t m = 0; m < kNumMetrics; ++m) {
        ratios[m] = direct_values_[i][m] / direct_shares_[i];
      }
    } else if (touched_samples_[i] >= options_.min_samples && std::isfinite(inverse[i]) &&
               std::sqrt(variance * inverse[i]) <= options_.max_standard_error) {
      family.num_samples = touched_samples_[i];
      family.solved = true;
      for (std::size_t m = 0; m < kNumMetrics; ++m) ratios[m] = solutions[m].ratios[i];
    } else {
      continue;
    }
    family.source = v1::METRIC_SOURCE_PM_SAMPLING;
    family.sm = Clamped(ratios[0]);
    family.hbm = Clamped(ratios[1]);
    family.tensor = Clamped(ratios[2]);
  }
  return table;
}

MeasuredTable MeasuredOf(const FamilyCounterTable& table) {
  MeasuredTable measured{};
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (table[i].source != v1::METRIC_SOURCE_PM_SAMPLING) continue;
    measured[i] = {table[i].num_samples, table[i].sm, table[i].hbm, table[i].tensor};
  }
  return measured;
}

}  // namespace fsdp
