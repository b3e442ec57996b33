#include "coordinator/lifecycle/job_state.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

struct Row {
  v1::JobState from;
  std::initializer_list<v1::JobState> to;
};

// FAILED and CANCELLED lead back to QUEUED by RestartJob alone.
const Row kTable[] = {
    {v1::JOB_STATE_UNSPECIFIED, {v1::JOB_STATE_QUEUED}},
    {v1::JOB_STATE_QUEUED,
     {v1::JOB_STATE_STARTING, v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_CANCELLED,
      v1::JOB_STATE_FAILED}},
    {v1::JOB_STATE_STARTING,
     {v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING, v1::JOB_STATE_SUSPENDED,
      v1::JOB_STATE_CANCELLING, v1::JOB_STATE_FAILED, v1::JOB_STATE_SUCCEEDED}},
    {v1::JOB_STATE_RUNNING,
     {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_CANCELLING,
      v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED}},
    {v1::JOB_STATE_RECOVERING,
     {v1::JOB_STATE_STARTING, v1::JOB_STATE_SUSPENDED, v1::JOB_STATE_CANCELLING,
      v1::JOB_STATE_CANCELLED, v1::JOB_STATE_FAILED, v1::JOB_STATE_SUCCEEDED}},
    {v1::JOB_STATE_SUSPENDED,
     {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, v1::JOB_STATE_FAILED}},
    {v1::JOB_STATE_CANCELLING, {v1::JOB_STATE_CANCELLED}},
    {v1::JOB_STATE_SUCCEEDED, {}},
    {v1::JOB_STATE_FAILED, {v1::JOB_STATE_QUEUED}},
    {v1::JOB_STATE_CANCELLED, {v1::JOB_STATE_QUEUED}},
};

std::string WithoutPrefix(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool IsLegalTransition(v1::JobState from, v1::JobState to) {
  for (const Row& row : kTable) {
    if (row.from != from) continue;
    for (const v1::JobState allowed : row.to) {
      if (allowed == to) return true;
    }
  }
  return false;
}

std::string StateName(v1::JobState state) {
  return WithoutPrefix(v1::JobState_Name(state), "JOB_STATE_");
}

std::string CauseName(v1::FailureCause cause) {
  return WithoutPrefix(v1::FailureCause_Name(cause), "FAILURE_CAUSE_");
}

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  google::protobuf::Timestamp result;
  const std::int64_t nanos = absl::ToUnixNanos(time);
  result.set_seconds(nanos / 1'000'000'000);
  result.set_nanos(static_cast<std::int32_t>(nanos % 1'000'000'000));
  return result;
}

absl::Time FromTimestamp(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

absl::Status Transition(v1::Job& job, v1::JobState to, std::string_view reason, absl::Time now) {
  if (!IsLegalTransition(job.state(), to)) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(job.name(), " is ", StateName(job.state()),
                                                   ": it cannot become ", StateName(to))),
        "JOB_STATE_CONFLICT",
        {{"job", job.name()}, {"state", StateName(job.state())}, {"wanted", StateName(to)}});
  }
  job.set_state(to);
  job.set_reason(std::string(reason));
  // A cause is of the failure that is being recovered from, or that ended the job.
  if (to != v1::JOB_STATE_RECOVERING && to != v1::JOB_STATE_FAILED) job.clear_cause();
  if (IsTerminal(to)) *job.mutable_end_time() = ToTimestamp(now);
  if (to == v1::JOB_STATE_QUEUED) job.clear_end_time();
  if (to == v1::JOB_STATE_STARTING && !job.has_start_time()) {
    *job.mutable_start_time() = ToTimestamp(now);
  }
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator
