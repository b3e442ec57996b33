#include "worker/profile/report/perfetto_trace.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/profile/report/encoded_track.h"
#include "worker/profile/report/perfetto_packets.h"
#include "worker/profile/report/proto_writer.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/span_times.h"

namespace fsdp {
namespace report {
namespace {

constexpr std::uint64_t kNotesUuid = 1;
constexpr std::size_t kMaxNotes = 100;
constexpr std::size_t kMaxNoteCharacters = 300;

class TraceBuilder {
 public:
  TraceBuilder(const v1::JobProfile& profile, const TraceLayout& layout)
      : profile_(profile), layout_(layout) {
    AddTracks();
    for (EncodedTrack& track : tracks_) {
      track.lane != nullptr ? EncodeSpans(&track) : EncodeCounter(&track);
    }
    // So that they are in every trace, whatever is left out.
    for (const AlignedRank& rank : layout_.ranks) AddRankNote(rank);
    for (std::size_t i = 0; i < layout_.notes.size() && i < kMaxNotes; ++i) {
      AddNote(layout_.notes[i], ProtoWriter());
    }
  }

  [[nodiscard]] std::int64_t longest() const { return LongestTrack(tracks_); }

  // Of the trace with every track cut to `limit`, or a few bytes more.
  [[nodiscard]] std::int64_t SizeOf(std::int64_t limit) const {
    const std::size_t bytes = header_.size() + interner_.Definitions(limit).size() +
                              DropNote(std::numeric_limits<std::int64_t>::max()).size();
    return static_cast<std::int64_t>(bytes) + BytesUpTo(tracks_, limit);
  }

  [[nodiscard]] Trace Build(std::int64_t limit) {
    Trace trace;
    CountEvents(limit, layout_, &tracks_, &trace);
    trace.bytes = interner_.Definitions(limit) + header_;
    for (const EncodedTrack& track : tracks_) Append(track, &trace.bytes);
    if (trace.dropped > 0) trace.bytes += DropNote(trace.dropped);
    return trace;
  }

 private:
  void AddTrack(const ProtoWriter& track) { header_ += TrackPacket(track); }

  void AddTracks() {
    AddTrack(ProtoWriter()
                 .Varint(descriptor::kUuid, static_cast<std::int64_t>(kNotesUuid))
                 .Bytes(descriptor::kName, "profile"));
    std::size_t lane = 0;
    for (std::size_t i = 0; i < layout_.ranks.size(); ++i) {
      const AlignedRank& rank = layout_.ranks[i];
      const std::uint64_t process = AddProcess(rank);
      int place = 0;
      for (; lane < layout_.lanes.size() && layout_.lanes[lane].rank_index == i; ++lane) {
        const std::string name = TrackText(layout_.lanes[lane].track);
        AddChild(rank, process, name, place++, ProtoWriter()).lane = &layout_.lanes[lane];
      }
      for (const auto& counter : rank.profile->counters()) {
        ProtoWriter of_counter;
        of_counter.Message(descriptor::kCounter, UnitOf(counter));
        AddChild(rank, process, counter.name(), place++, of_counter).count.is_counter = true;
        counters_.back() = &counter;
      }
    }
  }

  std::uint64_t AddProcess(const AlignedRank& rank) {
    const std::uint64_t process = ++last_uuid_;
    AddTrack(
        ProtoWriter()
            .Varint(descriptor::kUuid, static_cast<std::int64_t>(process))
            .Message(descriptor::kProcess, ProtoWriter()
                                               // Process 0 is the idle one; ranks count from 0.
                                               .Varint(descriptor::kPid, rank.profile->rank() + 1)
                                               .Bytes(descriptor::kProcessName, RankTitle(rank)))
            .Varint(descriptor::kChildOrdering, descriptor::kExplicit));
    return process;
  }

  EncodedTrack& AddChild(const AlignedRank& rank, std::uint64_t process, const std::string& name,
                         int place, const ProtoWriter& more) {
    EncodedTrack track;
    track.id = ++last_uuid_;
    track.shift_ns = rank.shift_ns;
    track.count.rank = rank.profile->rank();
    track.count.track = CleanText(name);
    AddTrack(ProtoWriter()
                 .Varint(descriptor::kUuid, static_cast<std::int64_t>(track.id))
                 .Varint(descriptor::kParentUuid, static_cast<std::int64_t>(process))
                 .Bytes(descriptor::kName, track.count.track)
                 .Varint(descriptor::kSiblingRank, place)
                 .Append(more));
    tracks_.push_back(std::move(track));
    counters_.push_back(nullptr);
    return tracks_.back();
  }

  static ProtoWriter UnitOf(const v1::ProfileCounter& counter) {
    ProtoWriter unit;
    if (counter.unit() == "bytes") return unit.Varint(descriptor::kUnit, descriptor::kUnitBytes);
    return unit.Bytes(descriptor::kUnitName, CleanText(counter.unit()));
  }

  ProtoWriter Named(const char* name) {
    ProtoWriter named;
    // Few, so they are in every trace.
    named.Varint(annotation::kNameIid, interner_.Iid(Table::kAnnotationName, name, -1));
    return named;
  }

  void Annotate(const v1::RankProfile& rank, const v1::ProfileSpan& span, std::int64_t index,
                ProtoWriter* begin) {
    const auto text = [&](const char* name, std::uint32_t string) {
      const std::string& value = StringAt(rank, string);
      if (value.empty()) return;
      begin->Message(event::kAnnotations,
                     Named(name).Varint(annotation::kStringIid,
                                        interner_.Iid(Table::kStringValue, value, index)));
    };
    const auto number = [&](const char* name, double value) {
      if (value == 0) return;
      begin->Message(event::kAnnotations, Named(name).Double(annotation::kDouble, value));
    };
    text("family", span.family());
    text("shape", span.shape());
    number("flops", span.flops());
    number("bytes", span.bytes());
    begin->Message(event::kAnnotations, Named("step").Varint(annotation::kInt, span.step()));
    if (span.sequence() == 0) return;
    begin->Message(event::kAnnotations,
                   Named("sequence").Varint(annotation::kInt, span.sequence()));
  }

  void EncodeSpans(EncodedTrack* track) {
    const v1::RankProfile& rank = *layout_.ranks[track->lane->rank_index].profile;
    for (const TraceSpan& placed : track->lane->spans) {
      const v1::ProfileSpan& span = *placed.span;
      const std::int64_t index = track->size();
      const std::string& family = StringAt(rank, span.family());
      ProtoWriter begin;
      begin.Varint(event::kType, event::kSliceBegin)
          .Varint(event::kTrackUuid, static_cast<std::int64_t>(track->id))
          .Varint(
              event::kCategoryIids,
              interner_.Iid(Table::kCategory, family.empty() ? track->count.track : family, index))
          .Varint(event::kNameIid,
                  interner_.Iid(Table::kEventName, StringAt(rank, span.name()), index));
      if (placed.flow != 0) begin.Fixed64(event::kFlowIds, placed.flow);
      Annotate(rank, span, index, &begin);
      track->Push(EventPacket(track->shift_ns + span.begin_ns(), begin),
                  EndPacket(track->shift_ns + EndOf(span), track->id).size());
    }
  }

  void EncodeCounter(EncodedTrack* track) {
    const v1::ProfileCounter& counter =
        *counters_[static_cast<std::size_t>(track - tracks_.data())];
    for (int i = 0; i < std::min(counter.time_ns_size(), counter.values_size()); ++i) {
      track->Push(EventPacket(track->shift_ns + counter.time_ns(i),
                              ProtoWriter()
                                  .Varint(event::kType, event::kCounter)
                                  .Varint(event::kTrackUuid, static_cast<std::int64_t>(track->id))
                                  .Double(event::kDoubleValue, counter.values(i))),
                  0);
    }
  }

  // The events that are written. A span's end stands before whatever follows it in time.
  static void Append(const EncodedTrack& track, std::string* bytes) {
    std::vector<std::int64_t> open_ends_ns;
    const auto close_until = [&](std::int64_t time_ns) {
      while (!open_ends_ns.empty() && open_ends_ns.back() <= time_ns) {
        *bytes += EndPacket(track.shift_ns + open_ends_ns.back(), track.id);
        open_ends_ns.pop_back();
      }
    };
    if (track.lane == nullptr) {
      bytes->append(track.bytes, 0, track.EndOfFirst(track.count.written));
      return;
    }
    for (std::int64_t i = 0; i < track.count.written; ++i) {
      const v1::ProfileSpan& span = *track.lane->spans[static_cast<std::size_t>(i)].span;
      close_until(span.begin_ns());
      bytes->append(track.bytes, track.EndOfFirst(i),
                    track.EndOfFirst(i + 1) - track.EndOfFirst(i));
      open_ends_ns.push_back(EndOf(span));
    }
    close_until(std::numeric_limits<std::int64_t>::max());
  }

  static ProtoWriter Instant(const std::string& name) {
    ProtoWriter instant;
    instant.Varint(event::kType, event::kInstant)
        .Varint(event::kTrackUuid, static_cast<std::int64_t>(kNotesUuid))
        .Bytes(event::kName, Shortened(name, kMaxNoteCharacters));
    return instant;
  }

  void AddNote(const std::string& name, const ProtoWriter& annotations) {
    header_ += EventPacket(0, Instant(name).Append(annotations));
  }

  void AddRankNote(const AlignedRank& rank) {
    ProtoWriter annotations;
    const auto text = [&](const char* name, const std::string& value) {
      annotations.Message(
          event::kAnnotations,
          Named(name).Bytes(annotation::kString, Shortened(value, kMaxNoteCharacters)));
    };
    text("job", profile_.job());
    text("worker", rank.profile->worker());
    text("host", rank.profile->host());
    text("device", rank.profile->device());
    text("launch_times", TimingText(rank.profile->timing()));
    annotations.Message(event::kAnnotations,
                        Named("clock_shift_ns").Varint(annotation::kInt, rank.shift_ns));
    // Negative: unknown.
    annotations.Message(
        event::kAnnotations,
        Named("clock_uncertainty_ns").Varint(annotation::kInt, rank.uncertainty_ns));
    AddNote(RankTitle(rank), annotations);
  }

  [[nodiscard]] static std::string DropNote(std::int64_t dropped) {
    return EventPacket(0, Instant(absl::StrCat(dropped, " events left out of this trace")));
  }

  const v1::JobProfile& profile_;
  const TraceLayout& layout_;
  Interner interner_;
  std::uint64_t last_uuid_ = kNotesUuid;
  std::string header_;
  std::vector<EncodedTrack> tracks_;
  // By list; null for spans.
  std::vector<const v1::ProfileCounter*> counters_;
};

}  // namespace
}  // namespace report

absl::StatusOr<Trace> PerfettoTrace(const v1::JobProfile& profile, std::int64_t max_bytes) {
  const report::TraceLayout layout = report::LayOut(profile);
  report::TraceBuilder builder(profile, layout);
  const std::int64_t limit = report::FairLimit(
      builder.longest(), max_bytes, [&](std::int64_t limit) { return builder.SizeOf(limit); });
  if (limit < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_trace_bytes ", max_bytes,
                                                   " is too small for this profile; give at least ",
                                                   builder.SizeOf(0)));
  }
  return builder.Build(limit);
}

}  // namespace fsdp
