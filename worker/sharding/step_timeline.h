#ifndef FSDPCTL_WORKER_SHARDING_STEP_TIMELINE_H_
#define FSDPCTL_WORKER_SHARDING_STEP_TIMELINE_H_

// The events of one step: synchronisation points between streams and, by the time between pairs of
// them, where the step's time went. Events are made the first time a step needs them and reused by
// every later step, each once a step, so that no mark moves while somebody waits for it.
//
// Thread rule: the step thread.

#include <array>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace fsdp {

enum class SpanKind : std::uint8_t {
  kData,
  kForwardBackward,  // with the waits inside
  kGather,           // in the gather stream
  kScatter,          // in the scatter stream
  kGatherWait,       // of the compute stream
  kScatterWait,
  kReduceWait,  // for the last scatters and the all-reduce of the step's sums
  kOptimizer,
  kOther,
  kStep,
};
inline constexpr int kNumSpanKinds = 10;

class StepTimeline {
 public:
  explicit StepTimeline(Device& device) : device_(device) {}

  // Forgets the last step's marks; its events are used again.
  void Begin() {
    used_ = 0;
    spans_.clear();
  }
  // A mark at `stream`'s current end, valid until the next Begin.
  absl::StatusOr<Event*> Mark(Stream& stream);
  void AddSpan(SpanKind kind, Event* begin, Event* end) { spans_.push_back({kind, begin, end}); }
  // `stream` waits for `event`; the wait is a span of `kind`.
  absl::Status TimedWait(SpanKind kind, Stream& stream, Event& event);
  // Calls `visit(kind, seconds from `base` to the span's begin, its seconds)` for each span; every
  // mark must have been reached, and so must `base`, a mark of this step.
  template <typename Visit>
  absl::Status ForEach(Event& base, Visit&& visit) {
    for (const Span& span : spans_) {
      const absl::StatusOr<double> since = device_.ElapsedSeconds(base, *span.begin);
      if (!since.ok()) return since.status();
      const absl::StatusOr<double> seconds = device_.ElapsedSeconds(*span.begin, *span.end);
      if (!seconds.ok()) return seconds.status();
      visit(span.kind, *since, *seconds);
    }
    return absl::OkStatus();
  }
  // Seconds by kind; every mark must have been reached.
  [[nodiscard]] absl::StatusOr<std::array<double, kNumSpanKinds>> Sum();

 private:
  struct Span {
    SpanKind kind;
    Event* begin;
    Event* end;
  };
  Device& device_;
  std::vector<std::unique_ptr<Event>> events_;
  std::size_t used_ = 0;
  std::vector<Span> spans_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_SHARDING_STEP_TIMELINE_H_
