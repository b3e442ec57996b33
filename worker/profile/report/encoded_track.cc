#include "worker/profile/report/encoded_track.h"

#include <algorithm>

namespace fsdp::report {

void EncodedTrack::Push(const std::string& event, std::size_t more_bytes) {
  bytes += event;
  ends.push_back(bytes.size());
  const std::int64_t before = cumulative_bytes.empty() ? 0 : cumulative_bytes.back();
  cumulative_bytes.push_back(before + static_cast<std::int64_t>(event.size() + more_bytes));
}

std::int64_t LongestTrack(const std::vector<EncodedTrack>& tracks) {
  std::int64_t longest = 0;
  for (const EncodedTrack& track : tracks) longest = std::max(longest, track.size());
  return longest;
}

std::int64_t BytesUpTo(const std::vector<EncodedTrack>& tracks, std::int64_t limit) {
  std::int64_t bytes = 0;
  for (const EncodedTrack& track : tracks) {
    const std::int64_t kept = std::min(limit, track.size());
    if (kept > 0) bytes += track.cumulative_bytes[static_cast<std::size_t>(kept) - 1];
  }
  return bytes;
}

void CountEvents(std::int64_t limit, const TraceLayout& layout, std::vector<EncodedTrack>* tracks,
                 Trace* trace) {
  for (EncodedTrack& track : *tracks) {
    track.count.written = std::min(limit, track.size());
    track.count.dropped = track.size() - track.count.written;
    trace->tracks.push_back(track.count);
  }
  trace->tracks.insert(trace->tracks.end(), layout.unplaced.begin(), layout.unplaced.end());
  for (const TrackCount& count : trace->tracks) {
    trace->written += count.written;
    trace->dropped += count.dropped;
  }
}

}  // namespace fsdp::report
