#include "worker/profile/span_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace fsdp {
namespace {

// Length prefixes and tags of a string or a span within the recording.
constexpr std::int64_t kFraming = 6;

std::int64_t NsOf(MonotonicTime time) { return absl::ToInt64Nanoseconds(time.since_start()); }

}  // namespace

std::string ShapeText(const LaunchWork& work) {
  std::string text;
  for (const std::int64_t size : work.shape) {
    if (size > 0) absl::StrAppend(&text, text.empty() ? "" : "x", size);
  }
  return text.empty() ? text : absl::StrCat(text, " ", NameOf(work.dtype));
}

SpanRecorder::SpanRecorder(std::int64_t begin_ns, std::int64_t max_bytes)
    : begin_ns_(begin_ns), max_bytes_(max_bytes) {
  profile_.add_strings("");
}

bool SpanRecorder::Reserve(std::int64_t bytes) {
  if (bytes_ + bytes > max_bytes_) return false;
  bytes_ += bytes;
  return true;
}

std::uint32_t SpanRecorder::Intern(std::string_view text) {
  if (text.empty()) return 0;
  const auto found = strings_.find(text);
  if (found != strings_.end()) return found->second;
  const auto index = static_cast<std::uint32_t>(profile_.strings_size());
  profile_.add_strings(std::string(text));
  strings_.emplace(text, index);
  bytes_ += static_cast<std::int64_t>(text.size()) + kFraming;
  return index;
}

void SpanRecorder::Add(const Span& span) {
  v1::ProfileSpan entry;
  entry.set_track(span.track);
  // What began before the recording belongs to no step of it.
  entry.set_begin_ns(std::max<std::int64_t>(0, span.begin_ns - begin_ns_));
  entry.set_duration_ns(std::max<std::int64_t>(0, span.end_ns - span.begin_ns));
  entry.set_name(Intern(span.name));
  entry.set_family(Intern(span.family));
  entry.set_shape(Intern(span.shape));
  entry.set_flops(span.flops);
  entry.set_bytes(span.bytes);
  entry.set_step(step_);
  entry.set_sequence(span.sequence);
  if (!Reserve(static_cast<std::int64_t>(entry.ByteSizeLong()) + kFraming)) {
    profile_.set_spans_dropped(profile_.spans_dropped() + 1);
    return;
  }
  *profile_.add_spans() = std::move(entry);
}

void SpanRecorder::AddCounter(const std::string& name, const std::string& unit,
                              std::int64_t time_ns, double value) {
  if (!Reserve(2 * static_cast<std::int64_t>(sizeof(double)))) return;
  const auto [found, added] = counters_.emplace(name, profile_.counters_size());
  if (added) {
    profile_.add_counters()->set_name(name);
    profile_.mutable_counters(found->second)->set_unit(unit);
  }
  v1::ProfileCounter& counter = *profile_.mutable_counters(found->second);
  counter.add_time_ns(std::max<std::int64_t>(0, time_ns - begin_ns_));
  counter.add_values(value);
}

void SpanRecorder::OnLaunch(const LaunchWork& work, std::int64_t begin_ns, std::int64_t end_ns) {
  Add({.track = v1::PROFILE_TRACK_COMPUTE,
       .begin_ns = begin_ns,
       .end_ns = end_ns,
       .name = work.operation,
       .family = NameOf(work.family),
       .shape = ShapeText(work),
       .flops = work.flops,
       .bytes = work.bytes});
}

std::string_view SpanRecorder::FamilyOf(const CollectiveEntry& entry) const {
  // Gradients, and the sums of the step that follow them.
  if (entry.communicator == "scatter") return NameOf(KernelFamily::kScatter);
  if (units_.empty() || units_.contains(entry.unit)) return NameOf(KernelFamily::kGather);
  return "agreement";
}

std::int64_t SpanRecorder::AddCollectives(const FlightRecorder& recorder, std::int64_t after) {
  std::int64_t last = after;
  for (const CollectiveEntry& entry : recorder.Snapshot()) {
    if (entry.sequence <= after) continue;
    if (last == after && entry.sequence > after + 1) {
      profile_.set_spans_dropped(profile_.spans_dropped() + entry.sequence - after - 1);
    }
    // One that is still under way comes with the next step.
    if (entry.phase == CollectivePhase::kEnqueued || entry.phase == CollectivePhase::kStarted) {
      break;
    }
    last = entry.sequence;
    if (!entry.has_started) continue;
    const bool scatter = entry.communicator == "scatter";
    Add({.track = scatter ? v1::PROFILE_TRACK_SCATTER : v1::PROFILE_TRACK_GATHER,
         .begin_ns = NsOf(entry.started),
         .end_ns = NsOf(entry.finished),
         .name = absl::StrCat(entry.operation, entry.unit.empty() ? "" : " ", entry.unit),
         .family = FamilyOf(entry),
         .bytes = static_cast<double>(entry.bytes),
         .sequence = entry.sequence});
  }
  return last;
}

v1::RankProfile SpanRecorder::Take() {
  v1::RankProfile piece;
  piece.mutable_spans()->Swap(profile_.mutable_spans());
  for (int i = num_strings_taken_; i < profile_.strings_size(); ++i) {
    piece.add_strings(profile_.strings(i));
  }
  num_strings_taken_ = profile_.strings_size();
  for (v1::ProfileCounter& counter : *profile_.mutable_counters()) {
    if (counter.values().empty()) continue;
    *piece.add_counters() = counter;
    counter.clear_time_ns();
    counter.clear_values();
  }
  piece.set_spans_dropped(profile_.spans_dropped());
  return piece;
}

}  // namespace fsdp
