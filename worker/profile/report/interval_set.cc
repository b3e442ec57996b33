#include "worker/profile/report/interval_set.h"

#include <algorithm>
#include <utility>

namespace fsdp::report {

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  const auto earlier = [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; };
  // Most come in order: recordings are by time.
  if (!std::is_sorted(intervals.begin(), intervals.end(), earlier)) {
    std::sort(intervals.begin(), intervals.end(), earlier);
  }
  for (const Interval& one : intervals) {
    if (one.end_ns <= one.begin_ns) continue;
    if (!intervals_.empty() && one.begin_ns <= intervals_.back().end_ns) {
      intervals_.back().end_ns = std::max(intervals_.back().end_ns, one.end_ns);
    } else {
      intervals_.push_back(one);
    }
  }
  cumulative_ns_.reserve(intervals_.size());
  std::int64_t total_ns = 0;
  for (const Interval& one : intervals_) {
    total_ns += one.end_ns - one.begin_ns;
    cumulative_ns_.push_back(total_ns);
  }
}

std::int64_t IntervalSet::LengthBefore(std::int64_t time_ns) const {
  const auto after =
      std::lower_bound(intervals_.begin(), intervals_.end(), time_ns,
                       [](const Interval& one, std::int64_t time) { return one.begin_ns < time; });
  const auto count = static_cast<std::size_t>(after - intervals_.begin());
  if (count == 0) return 0;
  const std::int64_t beyond_ns = intervals_[count - 1].end_ns - time_ns;
  return Before(count) - std::max<std::int64_t>(0, beyond_ns);
}

std::int64_t IntervalSet::LengthWithin(std::int64_t begin_ns, std::int64_t end_ns) const {
  return end_ns <= begin_ns ? 0 : LengthBefore(end_ns) - LengthBefore(begin_ns);
}

IntervalSet IntervalSet::Union(const IntervalSet& other) const {
  std::vector<Interval> all = intervals_;
  all.insert(all.end(), other.intervals_.begin(), other.intervals_.end());
  return IntervalSet(std::move(all));
}

IntervalSet IntervalSet::Intersection(const IntervalSet& other) const {
  std::vector<Interval> both;
  for (std::size_t i = 0, j = 0; i < intervals_.size() && j < other.intervals_.size();) {
    const Interval& a = intervals_[i];
    const Interval& b = other.intervals_[j];
    both.push_back({std::max(a.begin_ns, b.begin_ns), std::min(a.end_ns, b.end_ns)});
    a.end_ns < b.end_ns ? ++i : ++j;
  }
  return IntervalSet(std::move(both));
}

IntervalSet IntervalSet::Minus(const IntervalSet& other) const {
  std::vector<Interval> rest;
  std::size_t j = 0;
  for (const Interval& one : intervals_) {
    std::int64_t begin_ns = one.begin_ns;
    while (j < other.intervals_.size() && other.intervals_[j].end_ns <= begin_ns) ++j;
    for (std::size_t k = j;
         k < other.intervals_.size() && other.intervals_[k].begin_ns < one.end_ns; ++k) {
      rest.push_back({begin_ns, other.intervals_[k].begin_ns});
      begin_ns = std::max(begin_ns, other.intervals_[k].end_ns);
    }
    rest.push_back({begin_ns, one.end_ns});
  }
  return IntervalSet(std::move(rest));
}

}  // namespace fsdp::report
