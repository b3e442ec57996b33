#ifndef FSDPCTL_WORKER_PROFILE_EVENT_LAUNCH_TIMER_H_
#define FSDPCTL_WORKER_PROFILE_EVENT_LAUNCH_TIMER_H_

// Times launches by the device's own clock: an event before and one after each, in the stream that
// runs it. Nothing waits, so the launches overlap with the host as always; the events themselves
// cost the device about a microsecond a launch. An event is placed on the host's clock by one whose
// time there is known.
//
// Thread rule: the step thread.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {

// An event that was reached, and when by the clock of LaunchObserver.
struct TimeBase {
  Event* event = nullptr;
  std::int64_t ns = 0;
};

class EventLaunchTimer final : public LaunchTimer {
 public:
  explicit EventLaunchTimer(Device& device) : device_(device) {}

  // Forgets the marks; events are used again.
  void Clear() { launches_.clear(); }
  absl::Status Begin() override;
  absl::Status End(const LaunchWork& work) override;

  // Adds every launch's seconds to `recorder`, and tells its observer; all must have been reached.
  // Returns the seconds between launches: from one's end to the next one's begin.
  absl::StatusOr<double> Drain(FamilyRecorder& recorder, const TimeBase& base);

 private:
  struct Marks {
    std::unique_ptr<Event> begin, end;
  };
  Device& device_;
  std::vector<Marks> marks_;
  std::vector<LaunchWork> launches_;  // the first of marks_ belong to them
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_EVENT_LAUNCH_TIMER_H_
