#ifndef FSDPCTL_WORKER_PROFILE_REPORT_INTERVAL_SET_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_INTERVAL_SET_H_

// A set of times, as half-open intervals of nanoseconds. Not thread-safe while it is built.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::report {

struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

class IntervalSet {
 public:
  IntervalSet() = default;
  // Their union; empty and reversed ones add nothing.
  explicit IntervalSet(std::vector<Interval> intervals);

  // Ascending, apart from each other, none empty.
  [[nodiscard]] const std::vector<Interval>& intervals() const { return intervals_; }
  [[nodiscard]] std::int64_t length_ns() const { return Before(intervals_.size()); }
  // Of what lies in [begin_ns, end_ns).
  [[nodiscard]] std::int64_t LengthWithin(std::int64_t begin_ns, std::int64_t end_ns) const;

  [[nodiscard]] IntervalSet Union(const IntervalSet& other) const;
  [[nodiscard]] IntervalSet Intersection(const IntervalSet& other) const;
  // What is in this one and not in `other`.
  [[nodiscard]] IntervalSet Minus(const IntervalSet& other) const;

 private:
  // Length of the first `count` intervals.
  [[nodiscard]] std::int64_t Before(std::size_t count) const {
    return count == 0 ? 0 : cumulative_ns_[count - 1];
  }
  // Of what lies before `time_ns`.
  [[nodiscard]] std::int64_t LengthBefore(std::int64_t time_ns) const;

  std::vector<Interval> intervals_;
  std::vector<std::int64_t> cumulative_ns_;
};

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_INTERVAL_SET_H_
