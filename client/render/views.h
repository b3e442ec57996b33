#ifndef FSDPCTL_CLIENT_RENDER_VIEWS_H_
#define FSDPCTL_CLIENT_RENDER_VIEWS_H_

// Records as the tables and pages that verbs print. Thread-safe (no state).

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/render/style.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "fsdp/v1/plan.pb.h"

namespace fsdp {

std::string JobTable(const std::vector<v1::Job>& jobs, bool wide, absl::Time now,
                     const Style& style);
std::string WorkerTable(const std::vector<v1::Worker>& workers, bool wide, absl::Time now,
                        const Style& style);
std::string RankTable(const v1::Job& job, const std::string& indent);

// What each source of a mixture gave; empty without one.
std::string DataSourcesTable(const v1::JobResult& result);

// One line without a newline.
std::string EventLine(const v1::JobEvent& event, const Style& style);

// What a job's page tells of the cluster around it; empty: nothing.
struct JobSurroundings {
  // QueueFacts of its queue.
  std::string queue;
  // MaintenanceFacts.
  std::string maintenance;
};

// States, reason, progress, ranks, attempts, root cause, checkpoint, result and the events given.
std::string JobDescription(const v1::Job& job, const std::vector<v1::JobEvent>& events,
                           absl::Time now, const Style& style, const JobSurroundings& around = {});

struct PlanView {
  bool policies = false;
  bool schedule = true;
  bool units = false;
};
// Memory table, units and schedule.
std::string PlanText(const v1::Plan& plan, const PlanView& view, const Style& style);

// One snapshot of the cluster, its live jobs and their ranks.
std::string TopText(const v1::GetClusterResponse& cluster, const std::vector<v1::Job>& jobs,
                    const std::vector<v1::Worker>& workers, absl::Time now, const Style& style);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_VIEWS_H_
