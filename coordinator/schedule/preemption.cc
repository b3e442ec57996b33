#include "coordinator/schedule/preemption.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace fsdp::coordinator {
namespace {

// Jobs named in an obstacle.
constexpr std::size_t kProtectedNamed = 3;

std::string NameOf(const ActiveJob& job) { return absl::StrCat("jobs/", job.entry.job.value()); }

// Gives way first: the lowest priority, then what has run for the shortest time, then the youngest.
bool YieldsBefore(const ActiveJob* a, const ActiveJob* b) {
  return std::tuple(a->entry.priority, a->ran, -a->entry.position) <
         std::tuple(b->entry.priority, b->ran, -b->entry.position);
}

// One attempt to make room: a copy of the books in which victims are taken away one by one.
class Attempt {
 public:
  Attempt(const QueuedDemand& item, const QueueLedger& ledger, const ClusterView& view)
      : item_(&item), ledger_(ledger), view_(view) {
    for (const WorkerView& worker : view.workers) {
      if (worker.device == item.demand.device && worker.placeable && worker.held_by.empty()) {
        ++free_;
      }
    }
  }

  // The victims so far are enough.
  bool Fits() {
    const int devices = item_->demand.world_size();
    if (free_ < devices || !MayUse(devices)) return false;
    PlacementDecision decision = PlaceGang(item_->demand, view_);
    if (!decision.placement) return false;
    placement_ = std::move(*decision.placement);
    return true;
  }

  void Take(const ActiveJob& job, PreemptionReason reason) {
    victims_.push_back({job, reason});
    ledger_.Yield(job.entry.queue, job.device, job.devices);
    const std::string name = NameOf(job);
    for (WorkerView& worker : view_.workers) {
      if (worker.held_by != name) continue;
      worker.held_by.clear();
      if (worker.placeable) ++free_;
    }
  }

  // From queues that use more than their quota, as long as they do; those furthest beyond what
  // their weight gives them first.
  void Reclaim(std::vector<const ActiveJob*> borrowers) {
    std::sort(borrowers.begin(), borrowers.end(), YieldsBefore);
    while (!Fits()) {
      const v1::DeviceType device = item_->demand.device;
      if (!ledger_.IsWithinQuota(item_->entry.queue, device, item_->demand.world_size())) return;
      const ActiveJob* next = nullptr;
      double most = 0;
      for (const ActiveJob* job : borrowers) {
        const std::string& queue = job->entry.queue;
        if (Has(*job) || ledger_.Borrowed(queue, device) == 0) continue;
        const double excess = ledger_.PerWeight(queue, device);
        if (next == nullptr || excess > most) {
          next = job;
          most = excess;
        }
      }
      if (next == nullptr) return;
      Take(*next, PreemptionReason::kReclaim);
    }
  }

  void TakePlaces(std::vector<const ActiveJob*> lower) {
    std::sort(lower.begin(), lower.end(), YieldsBefore);
    for (const ActiveJob* job : lower) {
      if (Fits()) return;
      Take(*job, PreemptionReason::kPriority);
    }
  }

  [[nodiscard]] const std::vector<Victim>& victims() const { return victims_; }
  [[nodiscard]] Placement placement() const { return placement_; }

 private:
  [[nodiscard]] bool MayUse(int devices) const {
    const v1::DeviceType device = item_->demand.device;
    const DeviceLimits limits = ledger_.LimitsOf(item_->entry.queue, device);
    const bool reclaims = std::any_of(victims_.begin(), victims_.end(), [](const Victim& victim) {
      return victim.reason == PreemptionReason::kReclaim;
    });
    if (reclaims && !ledger_.IsWithinQuota(item_->entry.queue, device, devices)) return false;
    return !limits.max || ledger_.Balance(item_->entry.queue, device).used + devices <= *limits.max;
  }
  [[nodiscard]] bool Has(const ActiveJob& job) const {
    return std::any_of(victims_.begin(), victims_.end(),
                       [&](const Victim& victim) { return victim.job.entry.job == job.entry.job; });
  }

  const QueuedDemand* item_;
  QueueLedger ledger_;
  ClusterView view_;
  int free_ = 0;
  std::vector<Victim> victims_;
  Placement placement_;
};

// Why a job that may be taken from cannot be told to yield now; empty: it can.
std::string WhyNotNow(const ActiveJob& job, const QueuePolicies& policies) {
  const auto found = policies.find(job.entry.queue);
  const QueuePolicy policy = found == policies.end() ? QueuePolicy() : found->second;
  if (!job.saves && !policy.without_checkpoint) {
    return absl::StrCat(NameOf(job), " has no checkpoint.dir");
  }
  if (job.ran < policy.min_run) {
    return absl::StrCat(NameOf(job), " has run for ",
                        absl::FormatDuration(absl::Trunc(job.ran, absl::Seconds(1))), " of the ",
                        absl::FormatDuration(policy.min_run), " that its queue protects");
  }
  return "";
}

struct Candidates {
  std::vector<const ActiveJob*> borrowers;
  std::vector<const ActiveJob*> lower;
  std::vector<std::string> protected_jobs;
};

Candidates FindCandidates(const QueuedDemand& item, const QueuePolicy& policy,
                          const QueuePolicies& policies, const QueueLedger& ledger,
                          const std::vector<ActiveJob>& running) {
  Candidates found;
  for (const ActiveJob& job : running) {
    if (job.stopping || job.device != item.demand.device) continue;
    const bool own = job.entry.queue == item.entry.queue;
    const bool is_lower = job.entry.priority < item.entry.priority;
    const bool wanted = own ? policy.preempts_within && is_lower
                            : policy.reclaim != v1::RECLAIM_POLICY_NEVER &&
                                  (policy.reclaim == v1::RECLAIM_POLICY_ANY || is_lower) &&
                                  ledger.Borrowed(job.entry.queue, job.device) > 0;
    if (!wanted) continue;
    if (std::string why = WhyNotNow(job, policies); !why.empty()) {
      found.protected_jobs.push_back(std::move(why));
    } else {
      (own ? found.lower : found.borrowers).push_back(&job);
    }
  }
  return found;
}

// Leaves out victims that are not needed, the most expensive first.
Attempt Pruned(const Attempt& attempt, const Attempt& nobody) {
  std::vector<Victim> kept = attempt.victims();
  std::vector<const Victim*> order;
  for (const Victim& victim : attempt.victims()) order.push_back(&victim);
  std::sort(order.begin(), order.end(),
            [](const Victim* a, const Victim* b) { return YieldsBefore(&b->job, &a->job); });
  Attempt best = attempt;
  for (const Victim* candidate : order) {
    Attempt without = nobody;
    std::vector<Victim> rest;
    for (const Victim& victim : kept) {
      if (victim.job.entry.job == candidate->job.entry.job) continue;
      rest.push_back(victim);
      without.Take(victim.job, victim.reason);
    }
    if (!without.Fits()) continue;
    kept = std::move(rest);
    best = without;
  }
  return best;
}

std::string Obstacle(const Candidates& candidates, bool within_quota) {
  std::string text;
  for (std::size_t i = 0; i < candidates.protected_jobs.size() && i < kProtectedNamed; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", candidates.protected_jobs[i]);
  }
  if (candidates.protected_jobs.size() > kProtectedNamed) {
    absl::StrAppend(&text, " and ", candidates.protected_jobs.size() - kProtectedNamed, " more");
  }
  if (!text.empty()) return absl::StrCat("cannot make room yet: ", text);
  if (!candidates.borrowers.empty() || !candidates.lower.empty()) {
    return "preempting all that it may would not make room for it";
  }
  return within_quota ? "no queue uses devices beyond its quota that it could take back" : "";
}

}  // namespace

const char* LabelOf(PreemptionReason reason) {
  return reason == PreemptionReason::kReclaim ? "reclaim" : "priority";
}

PreemptionPlan PlanPreemption(const QueuedDemand& item, const QueuePolicies& policies,
                              const QueueLedger& ledger, const std::vector<ActiveJob>& running,
                              const ClusterView& view) {
  PreemptionPlan plan;
  const auto policy = policies.find(item.entry.queue);
  if (policy == policies.end()) return plan;
  const Candidates candidates = FindCandidates(item, policy->second, policies, ledger, running);
  const bool within =
      ledger.IsWithinQuota(item.entry.queue, item.demand.device, item.demand.world_size());
  const Attempt nobody(item, ledger, view);
  // Back what was lent; else from its own queue; else both.
  for (const auto& [own, others] :
       {std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
    if ((own && candidates.lower.empty()) || (others && candidates.borrowers.empty())) continue;
    Attempt attempt = nobody;
    if (own) attempt.TakePlaces(candidates.lower);
    if (others) attempt.Reclaim(candidates.borrowers);
    if (!attempt.Fits()) continue;
    attempt = Pruned(attempt, nobody);
    plan.victims = attempt.victims();
    plan.placement = attempt.placement();
    return plan;
  }
  plan.obstacle = Obstacle(candidates, within);
  return plan;
}

}  // namespace fsdp::coordinator
