#include "worker/profile/report/trace_layout.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/span_times.h"

namespace fsdp::report {
namespace {

// From the top: what the trainer is at, then the streams.
constexpr std::array kTracks = {v1::PROFILE_TRACK_PHASE,   v1::PROFILE_TRACK_HOST,
                                v1::PROFILE_TRACK_COMPUTE, v1::PROFILE_TRACK_GATHER,
                                v1::PROFILE_TRACK_SCATTER, v1::PROFILE_TRACK_COPY};

// FNV-1a over name and sequence.
std::uint64_t FlowOf(const std::string& name, std::int64_t sequence) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : absl::StrCat(sequence, " ", name)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return hash == 0 ? 1 : hash;
}

// Flow ids of the collectives that more than one rank has.
std::set<std::uint64_t> SharedFlows(const v1::JobProfile& profile) {
  std::map<std::uint64_t, std::int32_t> first_rank;
  std::set<std::uint64_t> shared;
  for (const auto& rank : profile.ranks()) {
    for (const auto& span : rank.spans()) {
      if (span.sequence() == 0) continue;
      const std::uint64_t flow = FlowOf(StringAt(rank, span.name()), span.sequence());
      const auto [first, is_new] = first_rank.emplace(flow, rank.rank());
      if (!is_new && first->second != rank.rank()) shared.insert(flow);
    }
  }
  return shared;
}

// The lanes of one track while it is filled.
class LaneFiller {
 public:
  LaneFiller(std::size_t rank_index, v1::ProfileTrack track)
      : rank_index_(rank_index), track_(track) {}

  // False: there are kMaxLanes, and it nests in none.
  bool Add(const TraceSpan& placed) {
    const std::int64_t end_ns = EndOf(*placed.span);
    for (std::size_t i = 0; i <= lanes_.size() && i < kMaxLanes; ++i) {
      if (i == lanes_.size()) {
        lanes_.push_back({rank_index_, track_, {}});
        open_ends_.emplace_back();
      }
      std::vector<std::int64_t>& open = open_ends_[i];
      while (!open.empty() && open.back() <= placed.span->begin_ns()) open.pop_back();
      if (!open.empty() && open.back() < end_ns) continue;
      open.push_back(end_ns);
      lanes_[i].spans.push_back(placed);
      return true;
    }
    return false;
  }
  std::vector<TraceLane>& lanes() { return lanes_; }

 private:
  std::size_t rank_index_;
  v1::ProfileTrack track_;
  std::vector<TraceLane> lanes_;
  // Ends of the spans that are open in each lane, the innermost last.
  std::vector<std::vector<std::int64_t>> open_ends_;
};

void LayOutTrack(const std::set<std::uint64_t>& shared, std::size_t rank_index,
                 v1::ProfileTrack track, TraceLayout* layout) {
  const v1::RankProfile& rank = *layout->ranks[rank_index].profile;
  LaneFiller filler(rank_index, track);
  TrackCount unplaced{rank.rank(), TrackText(track), false, 0, 0};
  for (const v1::ProfileSpan* span : SpansOf(rank, track)) {
    std::uint64_t flow = 0;
    if (span->sequence() != 0) {
      flow = FlowOf(StringAt(rank, span->name()), span->sequence());
      if (shared.count(flow) == 0) flow = 0;
    }
    if (!filler.Add({span, flow})) ++unplaced.dropped;
  }
  for (TraceLane& lane : filler.lanes()) layout->lanes.push_back(std::move(lane));
  if (unplaced.dropped > 0) layout->unplaced.push_back(unplaced);
}

std::vector<std::string> Notes(const v1::JobProfile& profile, const TraceLayout& layout) {
  std::vector<std::string> notes(profile.missing().begin(), profile.missing().end());
  for (const AlignedRank& rank : layout.ranks) {
    const std::string title = absl::StrCat("rank ", rank.profile->rank());
    if (rank.profile->spans_dropped() > 0) {
      notes.push_back(absl::StrCat(title, ": ", rank.profile->spans_dropped(),
                                   " spans did not fit into the recording"));
    }
    for (const auto& note : rank.profile->notes()) notes.push_back(absl::StrCat(title, ": ", note));
  }
  return notes;
}

}  // namespace

TraceLayout LayOut(const v1::JobProfile& profile) {
  TraceLayout layout;
  layout.ranks = AlignRanks(profile);
  const std::set<std::uint64_t> shared = SharedFlows(profile);
  for (std::size_t i = 0; i < layout.ranks.size(); ++i) {
    for (const v1::ProfileTrack track : kTracks) LayOutTrack(shared, i, track, &layout);
  }
  layout.notes = Notes(profile, layout);
  return layout;
}

std::int64_t FairLimit(std::int64_t longest, std::int64_t max_bytes,
                       const std::function<std::int64_t(std::int64_t)>& size_of) {
  if (size_of(longest) <= max_bytes) return longest;
  if (size_of(0) > max_bytes) return -1;
  std::int64_t fits = 0;
  std::int64_t too_large = longest;
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    (size_of(middle) <= max_bytes ? fits : too_large) = middle;
  }
  return fits;
}

}  // namespace fsdp::report
