#include "worker/sharding/step_timeline.h"

#include "proto/support/status.h"

namespace fsdp {

absl::StatusOr<Event*> StepTimeline::Mark(Stream& stream) {
  if (used_ == events_.size()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device_.CreateEvent());
    events_.push_back(std::move(event));
  }
  Event* event = events_[used_++].get();
  RETURN_IF_ERROR(device_.Record(*event, stream));
  return event;
}

absl::Status StepTimeline::TimedWait(SpanKind kind, Stream& stream, Event& event) {
  ASSIGN_OR_RETURN(Event * begin, Mark(stream));
  RETURN_IF_ERROR(device_.Wait(stream, event));
  ASSIGN_OR_RETURN(Event * end, Mark(stream));
  AddSpan(kind, begin, end);
  return absl::OkStatus();
}

absl::StatusOr<std::array<double, kNumSpanKinds>> StepTimeline::Sum() {
  std::array<double, kNumSpanKinds> seconds{};
  for (const Span& span : spans_) {
    ASSIGN_OR_RETURN(const double elapsed, device_.ElapsedSeconds(*span.begin, *span.end));
    seconds[static_cast<std::size_t>(span.kind)] += elapsed;
  }
  return seconds;
}

}  // namespace fsdp
