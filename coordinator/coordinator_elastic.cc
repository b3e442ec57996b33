// Coordinator: jobs whose number of ranks may change, and workers that are held as spares.

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/queue/job_queue.h"
#include "coordinator/store/resource_names.h"
#include "worker/plan/elastic_sizes.h"

namespace fsdp::coordinator {
namespace {

// Before that it takes no fewer ranks than it had.
int RanksToWaitFor(const JobRuntime& job, const Demand& demand) {
  const int had = job.record.members_size();
  return had == 0 ? demand.full_size : std::min(had, demand.full_size);
}

bool MayHold(const JobRuntime& job) {
  return job.job().spec().spec().resources().spares() > 0 || IsElastic(job.job().spec());
}

}  // namespace

Demand Coordinator::PlacementDemand(const JobRuntime& job, TimePoint now) const {
  Demand demand = DemandOf(job.job().spec());
  if (!demand.sizes.empty()) {
    const bool waits = now.wall < FromTimestamp(job.record.full_size_until());
    demand.Accept(waits ? RanksToWaitFor(job, demand) : demand.sizes.front());
  }
  for (const std::string& worker : job.record.excluded_workers()) {
    demand.excluded.emplace_back(worker);
  }
  for (const records::MemberRecord& member : job.record.members()) {
    demand.previous.emplace_back(member.worker());
  }
  for (const std::string& spare : job.record.spare_workers()) {
    demand.held_spares.emplace_back(spare);
  }
  return demand;
}

std::string Coordinator::FewerRanksText(const JobRuntime& job, TimePoint now) const {
  if (!IsElastic(job.job().spec())) return "";
  const Demand demand = PlacementDemand(job, now);
  if (demand.world_size() == demand.sizes.front()) return "";
  const absl::Duration left = FromTimestamp(job.record.full_size_until()) - now.wall;
  return absl::StrCat("; takes as few as ", demand.sizes.front(), " in ",
                      absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
                      ", should no more come free (resources.minRanks)");
}

int Coordinator::MostDevices(const JobRuntime& job, TimePoint now) const {
  const std::string& queue = job.job().spec().spec().queue();
  const v1::DeviceType device = DeviceOf(job.job().spec().spec().resources());
  const auto policy = queue_policies_.find(queue);
  const DeviceLimits limits =
      policy == queue_policies_.end() ? DeviceLimits() : policy->second.LimitsOf(device);
  if (!limits.max) return std::numeric_limits<int>::max();
  int others = 0;
  for (const ActiveJob& active : ActiveJobs({}, now)) {
    const bool counts = active.entry.queue == queue && active.device == device;
    if (counts && active.entry.job != JobIdOf(job.job())) others += active.devices;
  }
  return *limits.max - others;
}

void Coordinator::ReviseHoldings(TimePoint now, const std::set<v1::DeviceType>& wanted) {
  std::vector<QueueEntry> running;
  for (const JobId& id : unfinished_) {
    const JobRuntime& job = *jobs_.at(id);
    const bool stays = job.record.phase() == records::EPOCH_PHASE_LIVE ||
                       job.record.phase() == records::EPOCH_PHASE_FORMING;
    if (!stays || !MayHold(job)) continue;
    const v1::JobSpec& spec = job.job().spec().spec();
    running.push_back({id, spec.queue(), spec.priority(), job.record.position()});
  }
  if (running.empty()) return;
  std::sort(running.begin(), running.end(), GoesBefore);
  ClusterView view = workers_.View(now.mono, options_.timing);
  for (const QueueEntry& entry : running) {
    JobRuntime& job = *jobs_.at(entry.job);
    const v1::DeviceType device = DeviceOf(job.job().spec().spec().resources());
    ReviseJob(job, !InMaintenance() && !wanted.contains(device), now, &view);
  }
}

void Coordinator::ReviseJob(JobRuntime& job, bool may_take, TimePoint now, ClusterView* view) {
  QueuedDemand item;
  item.entry.job = JobIdOf(job.job());
  item.recovering = true;
  item.demand = PlacementDemand(job, now);
  std::erase_if(item.demand.held_spares, [&](const WorkerId& id) {
    const WorkerEntry* worker = workers_.Find(id);
    return worker == nullptr || worker->liveness == Liveness::kLost || worker->record.cordoned();
  });
  std::vector<WorkerId> spares = item.demand.held_spares;
  int ranks = 0;
  if (may_take) {
    item.demand.Accept(job.record.members_size());
    item.demand.at_most = MostDevices(job, now);
    const PlacementDecision whole = PlaceItem(item, *view);
    if (whole.placement) {
      ranks = static_cast<int>(whole.placement->size());
      // Of what its ranks do not run on.
      ClusterView beside = *view;
      for (WorkerView& worker : beside.workers) {
        const WorkerEntry* entry = workers_.Find(worker.id);
        if (entry != nullptr && entry->spare_of == item.entry.job) worker.held_by.clear();
      }
      spares = PickSpares(item.demand, beside, static_cast<int>(whole.spares.size()));
      // The next job is not promised the same workers.
      Hold(*view, *whole.placement, job.job().name());
      Hold(*view, spares, job.job().name());
    }
  }
  Apply(job, [&](JobController& controller) {
    controller.HoldSpares(spares);
    controller.PlanGrowth(ranks);
  });
}

void Coordinator::SyncSpares(const JobRuntime& job) {
  const JobId id = JobIdOf(job.job());
  for (auto& [worker, entry] : workers_.entries()) {
    if (entry.spare_of == id) entry.spare_of.reset();
  }
  for (const std::string& spare : job.record.spare_workers()) {
    if (WorkerEntry* worker = workers_.Find(WorkerId(spare))) worker->spare_of = id;
  }
}

}  // namespace fsdp::coordinator
