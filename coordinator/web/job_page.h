#ifndef FSDPCTL_COORDINATOR_WEB_JOB_PAGE_H_
#define FSDPCTL_COORDINATOR_WEB_JOB_PAGE_H_

// One job: how far it is, its loss, where its steps go and what bounds them, its ranks, attempts,
// failure and events. Thread-safe (no state).

#include "absl/time/time.h"
#include "coordinator/web/html.h"
#include "coordinator/web/job_history.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp::coordinator {

Html JobMain(const v1::Job& job, const HistoryView& history, absl::Time now);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_JOB_PAGE_H_
