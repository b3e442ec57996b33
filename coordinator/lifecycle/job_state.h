#ifndef FSDPCTL_COORDINATOR_LIFECYCLE_JOB_STATE_H_
#define FSDPCTL_COORDINATOR_LIFECYCLE_JOB_STATE_H_

// The table of job states and the one function that changes a job's state.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace fsdp::coordinator {

bool IsTerminal(v1::JobState state);
bool IsLegalTransition(v1::JobState from, v1::JobState to);
// "RUNNING".
std::string StateName(v1::JobState state);
// "RANK_DIED".
std::string CauseName(v1::FailureCause cause);

google::protobuf::Timestamp ToTimestamp(absl::Time time);
absl::Time FromTimestamp(const google::protobuf::Timestamp& time);

// Sets state, reason and the times that go with them.
//   FAILED_PRECONDITION  the table does not allow it; the job is unchanged
absl::Status Transition(v1::Job& job, v1::JobState to, std::string_view reason, absl::Time now);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_LIFECYCLE_JOB_STATE_H_
