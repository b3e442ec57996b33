#ifndef FSDPCTL_COORDINATOR_WEB_OVERVIEW_H_
#define FSDPCTL_COORDINATOR_WEB_OVERVIEW_H_

// The page's first view: jobs, the queue with reasons, workers. Thread-safe (no state).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/events/job_directory.h"
#include "coordinator/web/html.h"
#include "coordinator/web/status_page.h"

namespace fsdp::coordinator {

// What the form asked for. Fields that make no sense ask for nothing.
struct JobFilter {
  // Part of a job's id, queue or owner, in any case.
  std::string text;
  // "RUNNING", or "live": all that are not finished; empty: all.
  std::string state;
  // Jobs before this position; 0: the newest.
  std::int64_t before = 0;
};

JobFilter FilterOf(const std::map<std::string, std::string>& fields);
bool Matches(const JobFilter& filter, const v1::Job& job);

// As many jobs as one page lists.
inline constexpr std::int64_t kListedJobs = 100;

struct OverviewView {
  JobFilter filter;
  // At most kListedJobs and one more, which stands for those that follow.
  std::vector<ListedJob> jobs;
  // By queue and position.
  std::vector<JobSnapshot> queued;
  std::shared_ptr<const ClusterSnapshot> cluster;
  absl::Time now;
  // May the worker's job be named?
  std::function<bool(const std::string& job_name)> sees_job;
};

Html OverviewMain(const OverviewView& view);

// The state in words and as a colour.
Html StateBadge(v1::JobState state);
// A link to the job's page.
Html JobLink(const std::string& job_name);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_OVERVIEW_H_
