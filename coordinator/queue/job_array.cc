#include "coordinator/queue/job_array.h"

#include <algorithm>
#include <deque>
#include <set>

#include "absl/strings/str_cat.h"
#include "coordinator/lifecycle/job_state.h"

namespace fsdp::coordinator {
namespace {

v1::ArrayStatus Count(const v1::ArraySpec& array, const std::vector<v1::JobState>& tasks) {
  v1::ArrayStatus status;
  status.set_count(static_cast<std::int32_t>(tasks.size()));
  status.set_max_parallel(array.max_parallel());
  for (const v1::JobState state : tasks) {
    switch (state) {
      case v1::JOB_STATE_QUEUED:
        status.set_waiting(status.waiting() + 1);
        break;
      case v1::JOB_STATE_SUSPENDED:
        status.set_suspended(status.suspended() + 1);
        break;
      case v1::JOB_STATE_SUCCEEDED:
        status.set_succeeded(status.succeeded() + 1);
        break;
      case v1::JOB_STATE_FAILED:
        status.set_failed(status.failed() + 1);
        break;
      case v1::JOB_STATE_CANCELLED:
        status.set_cancelled(status.cancelled() + 1);
        break;
      default:
        status.set_active(status.active() + 1);
    }
  }
  return status;
}

v1::JobState StateOf(const v1::ArrayStatus& status, const std::vector<v1::JobState>& tasks,
                     v1::JobState before) {
  const int ended = status.succeeded() + status.failed() + status.cancelled();
  if (ended == status.count()) {
    if (before == v1::JOB_STATE_CANCELLING) return v1::JOB_STATE_CANCELLED;
    if (status.failed() > 0) return v1::JOB_STATE_FAILED;
    return status.cancelled() > 0 ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_SUCCEEDED;
  }
  const auto cancelling = std::count(tasks.begin(), tasks.end(), v1::JOB_STATE_CANCELLING);
  if (cancelling > 0 && ended + cancelling == status.count()) return v1::JOB_STATE_CANCELLING;
  if (before == v1::JOB_STATE_CANCELLING) return before;
  if (status.active() > 0) return v1::JOB_STATE_RUNNING;
  if (status.waiting() == 0) return v1::JOB_STATE_SUSPENDED;
  return before == v1::JOB_STATE_RUNNING ? before : v1::JOB_STATE_QUEUED;
}

std::string ReasonOf(const v1::ArrayStatus& status) {
  std::string text = absl::StrCat(status.active(), " of ", status.count(),
                                  status.count() == 1 ? " task" : " tasks",
                                  status.active() == 1 ? " runs" : " run");
  if (status.max_parallel() > 0) {
    absl::StrAppend(&text, " (at most ", status.max_parallel(), " at a time)");
  }
  const auto add = [&text](int count, const char* one, const char* many) {
    if (count > 0) absl::StrAppend(&text, ", ", count, " ", count == 1 ? one : many);
  };
  add(status.waiting(), "waits", "wait");
  add(status.suspended(), "is suspended", "are suspended");
  add(status.succeeded(), "succeeded", "succeeded");
  add(status.failed(), "failed", "failed");
  add(status.cancelled(), "was cancelled", "were cancelled");
  return text;
}

}  // namespace

JobId TaskId(const JobId& array, int index) {
  return JobId(absl::StrCat(array.value(), "-", index));
}

ArraySummary SummarizeArray(const v1::ArraySpec& array, const std::vector<v1::JobState>& tasks,
                            v1::JobState before) {
  ArraySummary summary;
  summary.status = Count(array, tasks);
  summary.state = StateOf(summary.status, tasks, before);
  summary.reason = ReasonOf(summary.status);
  return summary;
}

std::vector<v1::JobState> StatesBetween(v1::JobState from, v1::JobState to) {
  if (from == to) return {};
  std::map<v1::JobState, v1::JobState> came_from;
  std::deque<v1::JobState> open = {from};
  while (!open.empty() && !came_from.contains(to)) {
    const v1::JobState state = open.front();
    open.pop_front();
    // Nothing goes through an end that it has not come from.
    if (state != from && IsTerminal(state)) continue;
    for (const v1::JobState next :
         {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
          v1::JOB_STATE_CANCELLING, v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_SUCCEEDED,
          v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
      if (next == from || came_from.contains(next) || !IsLegalTransition(state, next)) continue;
      came_from[next] = state;
      open.push_back(next);
    }
  }
  std::vector<v1::JobState> path;
  for (v1::JobState state = to; state != from && came_from.contains(state);
       state = came_from[state]) {
    path.insert(path.begin(), state);
  }
  return path;
}

std::string ArrayGate::Ask(const std::string& array, int max_parallel) {
  int& taken = taken_[array];
  if (max_parallel <= 0 || taken < max_parallel) {
    ++taken;
    return "";
  }
  return absl::StrCat("its array ", array, " has ", taken, " tasks on devices or next, of at most ",
                      max_parallel, " (array.maxParallel)");
}

}  // namespace fsdp::coordinator
