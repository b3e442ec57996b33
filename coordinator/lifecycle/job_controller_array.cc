// JobController: a job that is an array does what its tasks do.

#include "absl/strings/str_cat.h"
#include "coordinator/lifecycle/job_controller.h"
#include "coordinator/lifecycle/job_state.h"
#include "google/protobuf/util/message_differencer.h"

namespace fsdp::coordinator {

void JobController::OnTasks(const ArraySummary& summary) {
  using google::protobuf::util::MessageDifferencer;
  const std::vector<v1::JobState> states = StatesBetween(job().state(), summary.state);
  const bool same = states.empty() && job().reason() == summary.reason &&
                    MessageDifferencer::Equals(job().array(), summary.status);
  if (same) return;
  *job().mutable_array() = summary.status;
  for (const v1::JobState state : states) SetState(state, summary.reason);
  job().set_reason(summary.reason);
  effects_.job_changed = true;
  if (states.empty()) return;
  const bool failed = summary.state == v1::JOB_STATE_FAILED;
  Event(StateName(summary.state), failed ? v1::EVENT_SEVERITY_ERROR : v1::EVENT_SEVERITY_INFO,
        summary.reason)
      .set_state(summary.state);
}

void JobController::OnTaskEnded(const v1::Job& task) {
  const bool failed = task.state() == v1::JOB_STATE_FAILED;
  Event(absl::StrCat("TASK_", StateName(task.state())),
        failed ? v1::EVENT_SEVERITY_ERROR : v1::EVENT_SEVERITY_INFO,
        absl::StrCat(task.name(), ": ", task.reason()));
}

}  // namespace fsdp::coordinator
