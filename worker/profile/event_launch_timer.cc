#include "worker/profile/event_launch_timer.h"

#include "proto/support/status.h"

namespace fsdp {

absl::Status EventLaunchTimer::Begin() {
  if (launches_.size() == marks_.size()) {
    Marks marks;
    ASSIGN_OR_RETURN(marks.begin, device_.CreateEvent());
    ASSIGN_OR_RETURN(marks.end, device_.CreateEvent());
    marks_.push_back(std::move(marks));
  }
  return device_.Record(*marks_[launches_.size()].begin, device_.compute());
}

absl::Status EventLaunchTimer::End(const LaunchWork& work) {
  RETURN_IF_ERROR(device_.Record(*marks_[launches_.size()].end, device_.compute()));
  launches_.push_back(work);
  return absl::OkStatus();
}

absl::StatusOr<double> EventLaunchTimer::Drain(FamilyRecorder& recorder, const TimeBase& base) {
  double gaps = 0;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    ASSIGN_OR_RETURN(const double seconds,
                     device_.ElapsedSeconds(*marks_[i].begin, *marks_[i].end));
    recorder.AddSeconds(launches_[i].family, seconds);
    if (recorder.observer() != nullptr) {
      ASSIGN_OR_RETURN(const double since, device_.ElapsedSeconds(*base.event, *marks_[i].begin));
      const std::int64_t begin = base.ns + static_cast<std::int64_t>(since * 1e9);
      recorder.observer()->OnLaunch(launches_[i], begin,
                                    begin + static_cast<std::int64_t>(seconds * 1e9));
    }
    if (i == 0) continue;
    ASSIGN_OR_RETURN(const double gap,
                     device_.ElapsedSeconds(*marks_[i - 1].end, *marks_[i].begin));
    gaps += gap;
  }
  Clear();
  return gaps;
}

}  // namespace fsdp
