#ifndef FSDPCTL_WORKER_PROFILE_REPORT_ENCODED_TRACK_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_ENCODED_TRACK_H_

// The events of each track as a trace has them, before it is decided how many of them fit. Not
// thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/profile/report/trace_layout.h"

namespace fsdp::report {

struct EncodedTrack {
  TrackCount count;
  // What the format calls the track.
  std::uint64_t id = 0;
  // One more than the rank: process 0 is the idle one.
  int process = 0;
  std::int64_t shift_ns = 0;
  // Null for counters.
  const TraceLane* lane = nullptr;
  // The events one after the other, and where each ends.
  std::string bytes;
  std::vector<std::size_t> ends;
  // What the first i + 1 events take in the trace.
  std::vector<std::int64_t> cumulative_bytes;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(ends.size()); }
  // Where the first `count` end in `bytes`.
  [[nodiscard]] std::size_t EndOfFirst(std::int64_t count) const {
    return count == 0 ? 0 : ends[static_cast<std::size_t>(count) - 1];
  }
  // `more_bytes`: what the event takes elsewhere in the trace.
  void Push(const std::string& event, std::size_t more_bytes);
};

// Of the longest track.
std::int64_t LongestTrack(const std::vector<EncodedTrack>& tracks);
// Bytes of all tracks, each cut to `limit` events.
std::int64_t BytesUpTo(const std::vector<EncodedTrack>& tracks, std::int64_t limit);
// Sets the tracks' counts for `limit`, and the trace's from them and from what found no lane.
void CountEvents(std::int64_t limit, const TraceLayout& layout, std::vector<EncodedTrack>* tracks,
                 Trace* trace);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_ENCODED_TRACK_H_
