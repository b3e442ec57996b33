#ifndef FSDPCTL_WORKER_PROFILE_REPORT_SPAN_TIMES_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_SPAN_TIMES_H_

// What the spans of one rank's recording took, within its steps. Thread-safe (no state).

#include <cstdint>
#include <vector>

#include "fsdp/v1/profile.pb.h"
#include "worker/profile/report/interval_set.h"

namespace fsdp::report {

struct SpanTime {
  // In the RankProfile, whose lifetime it has.
  const v1::ProfileSpan* span = nullptr;
  // Within the steps, without the spans that lie inside it on the same track.
  std::int64_t self_ns = 0;
};

inline std::int64_t EndOf(const v1::ProfileSpan& span) {
  return span.begin_ns() + span.duration_ns();
}

// The track's spans by begin, the enclosing before the enclosed.
std::vector<const v1::ProfileSpan*> SpansOf(const v1::RankProfile& rank, v1::ProfileTrack track);
// When a step ran. A recording without steps counts as one step from its begin to its end.
IntervalSet StepTimes(const v1::RankProfile& rank);
// When the track had a span, within `steps`.
IntervalSet BusyTimes(const v1::RankProfile& rank, v1::ProfileTrack track,
                      const IntervalSet& steps);
// Of every span of the track. Spans that overlap without one enclosing the other keep their whole
// time: then the sum is above BusyTimes.
std::vector<SpanTime> SelfTimes(const v1::RankProfile& rank, v1::ProfileTrack track,
                                const IntervalSet& steps);

inline double Seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_SPAN_TIMES_H_
