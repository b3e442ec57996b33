#include "worker/profile/report/span_times.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fsdp::report {

std::vector<const v1::ProfileSpan*> SpansOf(const v1::RankProfile& rank, v1::ProfileTrack track) {
  std::vector<const v1::ProfileSpan*> spans;
  for (const auto& span : rank.spans()) {
    if (span.track() == track) spans.push_back(&span);
  }
  const auto earlier = [](const v1::ProfileSpan* a, const v1::ProfileSpan* b) {
    if (a->begin_ns() != b->begin_ns()) return a->begin_ns() < b->begin_ns();
    return a->duration_ns() > b->duration_ns();
  };
  // Recordings are by time.
  if (!std::is_sorted(spans.begin(), spans.end(), earlier)) {
    std::stable_sort(spans.begin(), spans.end(), earlier);
  }
  return spans;
}

IntervalSet StepTimes(const v1::RankProfile& rank) {
  std::vector<Interval> steps;
  for (const auto& step : rank.steps()) {
    steps.push_back({step.begin_ns(), step.begin_ns() + step.duration_ns()});
  }
  if (steps.empty()) steps.push_back({0, rank.end_ns() - rank.begin_ns()});
  return IntervalSet(std::move(steps));
}

IntervalSet BusyTimes(const v1::RankProfile& rank, v1::ProfileTrack track,
                      const IntervalSet& steps) {
  std::vector<Interval> spans;
  for (const auto& span : rank.spans()) {
    if (span.track() == track) spans.push_back({span.begin_ns(), EndOf(span)});
  }
  return IntervalSet(std::move(spans)).Intersection(steps);
}

std::vector<SpanTime> SelfTimes(const v1::RankProfile& rank, v1::ProfileTrack track,
                                const IntervalSet& steps) {
  std::vector<SpanTime> times;
  std::vector<std::size_t> open;  // the spans around the current one, in `times`
  for (const v1::ProfileSpan* span : SpansOf(rank, track)) {
    const std::int64_t length_ns = steps.LengthWithin(span->begin_ns(), EndOf(*span));
    // One that ends before this one does cannot enclose it, nor anything after it that this one
    // encloses.
    while (!open.empty() && (EndOf(*times[open.back()].span) <= span->begin_ns() ||
                             EndOf(*times[open.back()].span) < EndOf(*span))) {
      open.pop_back();
    }
    if (!open.empty()) times[open.back()].self_ns -= length_ns;
    open.push_back(times.size());
    times.push_back({span, length_ns});
  }
  return times;
}

}  // namespace fsdp::report
