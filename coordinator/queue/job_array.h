#ifndef FSDPCTL_COORDINATOR_QUEUE_JOB_ARRAY_H_
#define FSDPCTL_COORDINATOR_QUEUE_JOB_ARRAY_H_

// Arrays: what their tasks make of them, and whose turn it is among the tasks. Pure.

#include <map>
#include <string>
#include <vector>

#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

// The task's id: the array's, a dash and the index.
JobId TaskId(const JobId& array, int index);

struct ArraySummary {
  v1::ArrayStatus status;
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  // "2 of 6 tasks run (at most 2 at a time), 3 wait, 1 succeeded".
  std::string reason;
};

// FAILED when all tasks have ended and one has failed, CANCELLED when none has but one was
// cancelled, SUCCEEDED when all have succeeded. Before that RUNNING once a task has been started,
// SUSPENDED when those that have not ended are, CANCELLING when they are being cancelled.
ArraySummary SummarizeArray(const v1::ArraySpec& array, const std::vector<v1::JobState>& tasks,
                            v1::JobState before);

// The states from one to another, the last included, by legal transitions. Empty: they are the
// same. Every state that SummarizeArray gives can be reached from every one that it gave before.
std::vector<v1::JobState> StatesBetween(v1::JobState from, v1::JobState to);

// Lets through as many tasks of each array as may hold devices, in the order in which it is asked.
class ArrayGate {
 public:
  // A task that holds devices, or has a claim on them.
  void AddActive(const std::string& array) { ++taken_[array]; }
  // Empty: it may be placed. Otherwise why not.
  std::string Ask(const std::string& array, int max_parallel);

 private:
  std::map<std::string, int> taken_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_QUEUE_JOB_ARRAY_H_
