#include "worker/profile/report/chrome_trace.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/profile/report/encoded_track.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/span_times.h"

namespace fsdp {
namespace report {
namespace {

// The format's times are microseconds.
std::string Microseconds(std::int64_t ns) {
  return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000);
}

std::string Number(double value) { return absl::StrFormat("%.17g", value); }

// The arguments of a span that has them.
std::string Arguments(const v1::RankProfile& rank, const v1::ProfileSpan& span) {
  std::string text = absl::StrCat("\"step\":", span.step());
  const auto quoted = [&](const char* name, std::uint32_t index) {
    const std::string& value = StringAt(rank, index);
    if (!value.empty()) absl::StrAppend(&text, ",\"", name, "\":", JsonQuoted(value));
  };
  quoted("family", span.family());
  quoted("shape", span.shape());
  if (span.flops() != 0) absl::StrAppend(&text, ",\"flops\":", Number(span.flops()));
  if (span.bytes() != 0) absl::StrAppend(&text, ",\"bytes\":", Number(span.bytes()));
  if (span.sequence() != 0) absl::StrAppend(&text, ",\"sequence\":", span.sequence());
  return text;
}

std::string Metadata(const char* what, int process, int thread, const std::string& argument) {
  return absl::StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", process,
                      ",\"tid\":", thread, ",\"args\":{", argument, "}},\n");
}

std::string FlowEvent(char phase, const TraceSpan& placed, std::int64_t begin_ns, int process,
                      int thread) {
  // As text: JavaScript's numbers do not hold 64 bits.
  return absl::StrFormat(
      "{\"ph\":\"%c\",\"name\":\"collective\",\"cat\":\"collective\",\"id\":\"%016x\",\"bp\":\"e\","
      "\"pid\":%d,\"tid\":%d,\"ts\":%s},\n",
      phase, placed.flow, process, thread, Microseconds(begin_ns));
}

class JsonBuilder {
 public:
  JsonBuilder(const v1::JobProfile& profile, const TraceLayout& layout)
      : profile_(profile), layout_(layout) {
    int thread = 0;
    std::size_t lane = 0;
    for (std::size_t i = 0; i < layout_.ranks.size(); ++i) {
      const AlignedRank& rank = layout_.ranks[i];
      // As in the Perfetto trace.
      const int process = rank.profile->rank() + 1;
      metadata_ += Metadata("process_name", process, 0,
                            absl::StrCat("\"name\":", JsonQuoted(RankTitle(rank))));
      metadata_ += Metadata("process_sort_index", process, 0,
                            absl::StrCat("\"sort_index\":", rank.profile->rank()));
      for (; lane < layout_.lanes.size() && layout_.lanes[lane].rank_index == i; ++lane) {
        AddLane(rank, layout_.lanes[lane], process, ++thread);
      }
      for (const auto& counter : rank.profile->counters()) AddCounter(rank, counter, process);
    }
  }

  [[nodiscard]] std::int64_t longest() const { return LongestTrack(tracks_); }

  // Of the trace with every track cut to `limit`, or a few bytes more.
  [[nodiscard]] std::int64_t SizeOf(std::int64_t limit) const {
    const std::size_t bytes = Header(std::numeric_limits<std::int64_t>::max()).size() +
                              metadata_.size() + Footer().size();
    return static_cast<std::int64_t>(bytes) + BytesUpTo(tracks_, limit);
  }

  [[nodiscard]] Trace Build(std::int64_t limit) {
    Trace trace;
    CountEvents(limit, layout_, &tracks_, &trace);
    trace.bytes = Header(trace.dropped) + metadata_;
    for (const EncodedTrack& track : tracks_) {
      trace.bytes.append(track.bytes, 0, track.EndOfFirst(track.count.written));
    }
    trace.bytes += FlowEvents() + Footer();
    return trace;
  }

 private:
  void AddLane(const AlignedRank& rank, const TraceLane& lane, int process, int thread) {
    EncodedTrack track;
    track.count.rank = rank.profile->rank();
    track.count.track = TrackText(lane.track);
    track.lane = &lane;
    track.shift_ns = rank.shift_ns;
    track.id = static_cast<std::uint64_t>(thread);
    metadata_ += Metadata("thread_name", process, thread,
                          absl::StrCat("\"name\":", JsonQuoted(track.count.track)));
    metadata_ +=
        Metadata("thread_sort_index", process, thread, absl::StrCat("\"sort_index\":", thread));
    for (const TraceSpan& placed : lane.spans) {
      const v1::ProfileSpan& span = *placed.span;
      const std::int64_t begin_ns = track.shift_ns + span.begin_ns();
      const std::string& family = StringAt(*rank.profile, span.family());
      const std::size_t flow_bytes =
          placed.flow == 0 ? 0 : FlowEvent('s', placed, begin_ns, process, thread).size();
      track.Push(absl::StrCat(
                     "{\"ph\":\"X\",\"name\":", JsonQuoted(StringAt(*rank.profile, span.name())),
                     ",\"cat\":", JsonQuoted(family.empty() ? track.count.track : family),
                     ",\"pid\":", process, ",\"tid\":", thread, ",\"ts\":", Microseconds(begin_ns),
                     ",\"dur\":", Microseconds(span.duration_ns()), ",\"args\":{",
                     Arguments(*rank.profile, span), "}},\n"),
                 flow_bytes);
    }
    tracks_.push_back(std::move(track));
  }

  void AddCounter(const AlignedRank& rank, const v1::ProfileCounter& counter, int process) {
    EncodedTrack track;
    track.count = {rank.profile->rank(), CleanText(counter.name()), true, 0, 0};
    const std::string unit = counter.unit().empty() ? "value" : counter.unit();
    for (int i = 0; i < std::min(counter.time_ns_size(), counter.values_size()); ++i) {
      track.Push(
          absl::StrCat("{\"ph\":\"C\",\"name\":", JsonQuoted(counter.name()), ",\"pid\":", process,
                       ",\"tid\":0,\"ts\":", Microseconds(rank.shift_ns + counter.time_ns(i)),
                       ",\"args\":{", JsonQuoted(unit), ":", Number(counter.values(i)), "}},\n"),
          0);
    }
    tracks_.push_back(std::move(track));
  }

  static int ProcessOf(const EncodedTrack& track) { return track.count.rank + 1; }

  // Of the collectives that were written: from the first rank to the last, by begin.
  [[nodiscard]] std::string FlowEvents() const {
    struct Stop {
      std::int64_t begin_ns;
      const EncodedTrack* track;
      const TraceSpan* placed;
    };
    std::map<std::uint64_t, std::vector<Stop>> flows;
    for (const EncodedTrack& track : tracks_) {
      if (track.lane == nullptr) continue;
      for (std::int64_t i = 0; i < track.count.written; ++i) {
        const TraceSpan& placed = track.lane->spans[static_cast<std::size_t>(i)];
        if (placed.flow == 0) continue;
        flows[placed.flow].push_back({track.shift_ns + placed.span->begin_ns(), &track, &placed});
      }
    }
    std::string text;
    for (auto& [flow, stops] : flows) {
      if (stops.size() < 2) continue;
      std::stable_sort(stops.begin(), stops.end(),
                       [](const Stop& a, const Stop& b) { return a.begin_ns < b.begin_ns; });
      for (std::size_t i = 0; i < stops.size(); ++i) {
        const char phase = i == 0 ? 's' : i + 1 == stops.size() ? 'f' : 't';
        text += FlowEvent(phase, *stops[i].placed, stops[i].begin_ns, ProcessOf(*stops[i].track),
                          static_cast<int>(stops[i].track->id));
      }
    }
    return text;
  }

  [[nodiscard]] std::string Header(std::int64_t dropped) const {
    constexpr std::size_t kMaxNotes = 100, kMaxNoteCharacters = 300;
    std::string notes;
    for (std::size_t i = 0; i < std::min(layout_.notes.size(), kMaxNotes); ++i) {
      absl::StrAppend(&notes, i == 0 ? "" : ",",
                      JsonQuoted(Shortened(layout_.notes[i], kMaxNoteCharacters)));
    }
    return absl::StrCat(
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"job\":", JsonQuoted(profile_.job()),
        ",\"profile\":", JsonQuoted(profile_.profile()), ",\"events_left_out\":", dropped,
        ",\"notes\":[", notes, "]},\n\"traceEvents\":[\n");
  }

  // Every event ends with a comma; this one does not.
  [[nodiscard]] std::string Footer() const {
    return absl::StrCat(
        "{\"ph\":\"M\",\"name\":\"trace_end\",\"pid\":0,\"tid\":0,\"args\":{}}\n]}\n");
  }

  const v1::JobProfile& profile_;
  const TraceLayout& layout_;
  std::string metadata_;
  std::vector<EncodedTrack> tracks_;
};

}  // namespace
}  // namespace report

absl::StatusOr<Trace> ChromeTrace(const v1::JobProfile& profile, std::int64_t max_bytes) {
  const report::TraceLayout layout = report::LayOut(profile);
  report::JsonBuilder builder(profile, layout);
  const std::int64_t limit = report::FairLimit(
      builder.longest(), max_bytes, [&](std::int64_t limit) { return builder.SizeOf(limit); });
  if (limit < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_json_bytes ", max_bytes,
                                                   " is too small for this profile; give at least ",
                                                   builder.SizeOf(0)));
  }
  return builder.Build(limit);
}

}  // namespace fsdp
