#ifndef FSDPCTL_WORKER_PROFILE_REPORT_TRACE_LAYOUT_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_TRACE_LAYOUT_H_

// What both traces have in common: the spans of all ranks on one time axis, in lanes within which
// they nest, and the choice of what is left out when a trace must not exceed a size. Thread-safe
// (no state).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/v1/profile.pb.h"
#include "worker/profile/report/rank_clock.h"

namespace fsdp {

// What a trace has of one track of one rank, or of one counter.
struct TrackCount {
  std::int32_t rank = 0;
  // "compute", "gather", ..., or the counter's name.
  std::string track;
  bool is_counter = false;
  std::int64_t written = 0;
  std::int64_t dropped = 0;
};

struct Trace {
  std::string bytes;
  std::vector<TrackCount> tracks;
  // Of all tracks.
  std::int64_t written = 0;
  std::int64_t dropped = 0;
};

namespace report {

// More spans of one track than this at one time do not nest in its lanes; they are dropped and
// counted.
inline constexpr std::size_t kMaxLanes = 32;

struct TraceSpan {
  // In the RankProfile, whose lifetime it has.
  const v1::ProfileSpan* span = nullptr;
  // The same for one collective on all ranks; 0: not a collective, or one that a single rank has.
  std::uint64_t flow = 0;
};

// Spans that nest: each lies inside the one before it, or after it.
struct TraceLane {
  std::size_t rank_index = 0;
  v1::ProfileTrack track = v1::PROFILE_TRACK_UNSPECIFIED;
  // By begin, the enclosing first.
  std::vector<TraceSpan> spans;
};

struct TraceLayout {
  std::vector<AlignedRank> ranks;
  // By rank and track; a track whose spans overlap has several.
  std::vector<TraceLane> lanes;
  // Spans that found no lane.
  std::vector<TrackCount> unplaced;
  // Sentences about the trace as a whole: missing ranks, dropped spans, the recorders' notes.
  std::vector<std::string> notes;
};

// The layout points into `profile`.
TraceLayout LayOut(const v1::JobProfile& profile);

// The largest limit (0 to `longest`) whose size is at most `max_bytes`, where every list longer
// than the limit is cut to it: the longest lists lose first, short ones stay whole. `size_of` must
// not fall as its argument grows. -1: not even 0 fits.
std::int64_t FairLimit(std::int64_t longest, std::int64_t max_bytes,
                       const std::function<std::int64_t(std::int64_t)>& size_of);

}  // namespace report
}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_TRACE_LAYOUT_H_
