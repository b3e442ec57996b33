#ifndef FSDPCTL_PROTO_SUPPORT_JOB_TEXT_H_
#define FSDPCTL_PROTO_SUPPORT_JOB_TEXT_H_

// What is said of a job in the same words wherever it is shown. Thread-safe (no state).

#include <string>
#include <utility>
#include <vector>

#include "fsdp/v1/job_record.pb.h"

namespace fsdp {

// "rank 2 on worker a-1 died from signal 9 at step 40: ..."
std::string RootCauseText(const v1::RootCause& cause);
// Is the job's root cause that of the state it is in, rather than of a failure that it got over?
bool RootCauseIsCurrent(const v1::Job& job);

// Seconds and names of the phases that add up to a step, in the order of a step.
std::vector<std::pair<double, const char*>> StepParts(const v1::StepPhases& phases);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_JOB_TEXT_H_
