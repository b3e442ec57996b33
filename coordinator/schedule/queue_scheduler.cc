#include "coordinator/schedule/queue_scheduler.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp::coordinator {
namespace {

// Jobs named in a reason.
constexpr std::size_t kHoldersTold = 3;

std::string NameOf(const JobId& job) { return absl::StrCat("jobs/", job.value()); }

// The jobs of one queue that want one type of device, in their order.
struct Line {
  std::string queue;
  v1::DeviceType device = v1::DEVICE_TYPE_CPU;
  std::vector<const QueuedDemand*> jobs;
  std::size_t next = 0;

  [[nodiscard]] const QueuedDemand& Head() const { return *jobs[next]; }
};

// Where a job stands among the heads of all lines; smaller goes first.
struct Rank {
  bool borrows = false;
  // Negative: has waited for longer than the limit, by so much.
  absl::Duration aged = absl::ZeroDuration();
  double per_weight = 0;
  std::int32_t priority = 0;
  std::int64_t position = 0;

  [[nodiscard]] auto Key() const {
    return std::tuple(borrows, aged, per_weight, -static_cast<std::int64_t>(priority), position);
  }
};

class Pass {
 public:
  Pass(const QueuePolicies& policies, const ScheduleState& state, const ScheduleOptions& options)
      : policies_(policies),
        options_(options),
        running_(state.running),
        view_(state.view),
        ledger_(policies, state.view, state.running, state.waiting) {
    ByQueue(state.waiting);
    for (std::size_t i = 0; i < view_.workers.size(); ++i) {
      if (!view_.workers[i].held_by.empty()) holdings_[view_.workers[i].held_by].push_back(i);
    }
  }

  ScheduleResult Run() {
    while (Line* line = NextLine()) {
      const QueuedDemand& item = line->Head();
      ++line->next;
      Decide(item, line);
    }
    return std::move(schedule_);
  }

 private:
  void ByQueue(const std::vector<QueuedDemand>& waiting) {
    std::map<std::pair<std::string, v1::DeviceType>, Line> lines;
    for (const QueuedDemand& item : waiting) {
      if (!policies_.contains(item.entry.queue)) {
        Wait(item, WaitKind::kUnknownQueue,
             absl::StrCat("queue '", item.entry.queue, "' is not configured (any more): there are ",
                          QueueNames(policies_),
                          "; cancel the job and submit it to one of them, or configure its queue"));
        continue;
      }
      lines[{item.entry.queue, item.demand.device}].jobs.push_back(&item);
    }
    for (auto& [key, line] : lines) {
      std::tie(line.queue, line.device) = key;
      std::sort(line.jobs.begin(), line.jobs.end(),
                [](const QueuedDemand* a, const QueuedDemand* b) {
                  return GoesBefore(a->entry, b->entry);
                });
      lines_.push_back(std::move(line));
    }
  }

  [[nodiscard]] Rank RankOf(const QueuedDemand& item) const {
    const std::string& queue = item.entry.queue;
    Rank rank;
    rank.borrows = !ledger_.IsWithinQuota(queue, item.demand.device, item.demand.world_size());
    rank.aged = std::min(options_.aging - item.waited, absl::ZeroDuration());
    rank.per_weight = ledger_.PerWeight(queue, item.demand.device);
    rank.priority = item.entry.priority;
    rank.position = item.entry.position;
    return rank;
  }

  Line* NextLine() {
    Line* best = nullptr;
    Rank best_rank;
    for (Line& line : lines_) {
      if (line.next == line.jobs.size()) continue;
      const Rank rank = RankOf(line.Head());
      if (best != nullptr && best_rank.Key() <= rank.Key()) continue;
      best = &line;
      best_rank = rank;
    }
    return best;
  }

  void Decide(const QueuedDemand& item, Line* line) {
    const std::string& queue = item.entry.queue;
    const v1::DeviceType device = item.demand.device;
    const int devices = item.demand.world_size();
    const DeviceLimits limits = ledger_.LimitsOf(queue, device);
    if (limits.max && devices > *limits.max) {
      return Wait(item, WaitKind::kBeyondCapacity,
                  absl::StrCat(NeedsText(item.demand), ", more than its queue may ever hold (max ",
                               *limits.max, "); ", ledger_.Describe(queue, device)));
    }
    if (const auto blocker = blocked_by_.find(device); blocker != blocked_by_.end()) {
      return Wait(item, WaitKind::kBehindOthers, BehindText(item, *blocker->second));
    }
    obstacle_.clear();
    const QueueBalance balance = ledger_.Balance(queue, device);
    const bool over_now = limits.max && balance.used + balance.yielding + devices > *limits.max;
    QueuedDemand within = item;
    if (limits.max) within.demand.at_most = *limits.max - balance.used - balance.yielding;
    PlacementDecision now = PlaceItem(within, view_);
    if (now.placement && !over_now) return Place(item, std::move(now));
    if (now.beyond_capacity) {
      absl::StrAppend(&now.reason, "; ", ledger_.Describe(queue, device));
      schedule_.decisions.push_back({item.entry.job, std::move(now)});
      return;
    }
    // For as few ranks as it takes: what comes free besides is seen once it is.
    QueuedDemand least = item;
    least.demand.sizes.clear();
    least.demand.spares = 0;
    if (AwaitsYielding(least) || Preempts(least)) return;
    Block(item, limits, now, line);
  }

  void Place(const QueuedDemand& item, PlacementDecision decision) {
    Hold(view_, *decision.placement, NameOf(item.entry.job));
    Hold(view_, decision.spares, NameOf(item.entry.job));
    ledger_.Grant(item.entry.queue, item.demand.device,
                  static_cast<int>(decision.placement->size() + decision.spares.size()));
    if (item.recovering) decision.placement.reset();
    schedule_.decisions.push_back({item.entry.job, std::move(decision)});
  }

  // The cluster as it will be when all that is being stopped is gone; what was promised meanwhile
  // stays promised.
  [[nodiscard]] ClusterView WithoutStopping() const {
    ClusterView view = view_;
    for (const ActiveJob& job : running_) {
      if (!job.stopping) continue;
      const auto held = holdings_.find(NameOf(job.entry.job));
      if (held == holdings_.end()) continue;
      for (const std::size_t i : held->second) {
        if (view.workers[i].held_by == held->first) view.workers[i].held_by.clear();
      }
    }
    return view;
  }

  // Enough comes free by itself: it keeps its place there.
  bool AwaitsYielding(const QueuedDemand& item) {
    const std::string& queue = item.entry.queue;
    const v1::DeviceType device = item.demand.device;
    const DeviceLimits limits = ledger_.LimitsOf(queue, device);
    const int devices = item.demand.world_size();
    if (limits.max && ledger_.Balance(queue, device).used + devices > *limits.max) return false;
    if (std::none_of(running_.begin(), running_.end(),
                     [](const ActiveJob& job) { return job.stopping; })) {
      return false;
    }
    const PlacementDecision later = PlaceItem(item, WithoutStopping());
    if (!later.placement) return false;
    Promise(item, *later.placement, "which is being stopped");
    return true;
  }

  bool Preempts(const QueuedDemand& item) {
    if (item.recovering) return false;
    PreemptionPlan plan = PlanPreemption(item, policies_, ledger_, running_,
                                         WithoutHoldings(WithoutStopping(), item.entry.job));
    obstacle_ = std::move(plan.obstacle);
    if (plan.victims.empty()) return false;
    for (const Victim& victim : plan.victims) {
      schedule_.preemptions.push_back({.victim = victim.job.entry.job,
                                       .by = item.entry.job,
                                       .reason = victim.reason,
                                       .why = VictimText(item, victim)});
      ledger_.Yield(victim.job.entry.queue, victim.job.device, victim.job.devices);
      for (ActiveJob& job : running_) {
        if (job.entry.job == victim.job.entry.job) job.stopping = true;
      }
    }
    Promise(item, plan.placement, "which has been told to save and yield");
    return true;
  }

  // The workers are its own as soon as their holders are gone.
  void Promise(const QueuedDemand& item, const Placement& placement, const std::string& how) {
    const std::set<WorkerId> promised(placement.begin(), placement.end());
    std::map<std::string, int> holders;
    for (const WorkerView& worker : view_.workers) {
      if (promised.contains(worker.id) && !worker.held_by.empty()) ++holders[worker.held_by];
    }
    std::string who;
    std::size_t named = 0;
    for (const auto& [job, count] : holders) {
      if (named++ == kHoldersTold) break;
      absl::StrAppend(&who, who.empty() ? "" : ", ", job, " (", count, ")");
    }
    if (holders.size() > kHoldersTold) {
      absl::StrAppend(&who, " and ", holders.size() - kHoldersTold, " more jobs");
    }
    const std::string books = ledger_.Describe(item.entry.queue, item.demand.device);
    Hold(view_, placement, NameOf(item.entry.job));
    ledger_.Grant(item.entry.queue, item.demand.device, item.demand.world_size());
    Wait(item, WaitKind::kYielding,
         absl::StrCat(NeedsText(item.demand), ": next, once ", who.empty() ? "others" : who, ", ",
                      how, ", ", holders.size() > 1 ? "are" : "is", " gone; ", books));
  }

  void Block(const QueuedDemand& item, const DeviceLimits& limits, const PlacementDecision& now,
             Line* line) {
    const std::string& queue = item.entry.queue;
    const v1::DeviceType device = item.demand.device;
    const std::string books = ledger_.Describe(queue, device);
    const QueueBalance balance = ledger_.Balance(queue, device);
    if (limits.max && balance.used + item.demand.world_size() > *limits.max) {
      Wait(item, WaitKind::kQuota,
           absl::StrCat(NeedsText(item.demand), ", but its queue may hold at most ", *limits.max,
                        " and holds ", balance.used + balance.yielding, Obstacle(), "; ", books));
      for (; line->next < line->jobs.size(); ++line->next) {
        const QueuedDemand& behind = line->Head();
        Wait(behind, WaitKind::kQuota,
             absl::StrCat(NeedsText(behind.demand), ": behind ", NameOf(item.entry.job),
                          " of its queue, which waits for quota; ", books));
      }
      return;
    }
    // A recovering job has a reason of its own.
    Wait(item, WaitKind::kDevices, absl::StrCat(now.reason, Obstacle(), "; ", books));
    blocked_by_[device] = &item;
  }

  [[nodiscard]] std::string Obstacle() const {
    return obstacle_.empty() ? "" : absl::StrCat("; ", obstacle_);
  }

  [[nodiscard]] std::string BehindText(const QueuedDemand& item, const QueuedDemand& first) const {
    const std::string& queue = item.entry.queue;
    std::string why;
    if (first.entry.queue == queue) {
      why = first.entry.priority > item.entry.priority
                ? absl::StrCat("of its queue, with priority ", first.entry.priority, " over ",
                               item.entry.priority)
                : "of its queue, which came first";
    } else {
      why = absl::StrCat("of queue '", first.entry.queue, "', ", WhyFirst(item, first));
    }
    return absl::StrCat(NeedsText(item.demand), ": behind ", NameOf(first.entry.job), " ", why,
                        first.recovering ? " (it is recovering)" : "", "; ",
                        ledger_.Describe(queue, item.demand.device));
  }

  [[nodiscard]] std::string WhyFirst(const QueuedDemand& item, const QueuedDemand& first) const {
    const Rank mine = RankOf(item);
    const Rank other = RankOf(first);
    if (other.borrows != mine.borrows) return "which is within its quota";
    if (other.aged != mine.aged) {
      return absl::StrCat("which has waited for ",
                          absl::FormatDuration(absl::Trunc(first.waited, absl::Seconds(1))));
    }
    if (other.per_weight != mine.per_weight) {
      return absl::StrFormat("which uses %.2f of its fair share",
                             ledger_.Share(first.entry.queue, first.demand.device));
    }
    return other.priority != mine.priority ? absl::StrCat("with priority ", first.entry.priority)
                                           : "which came first";
  }

  [[nodiscard]] std::string VictimText(const QueuedDemand& item, const Victim& victim) const {
    const std::string by = absl::StrCat(NameOf(item.entry.job), " of queue '", item.entry.queue,
                                        "' (", item.demand.world_size(), " devices)");
    const std::string& queue = victim.job.entry.queue;
    if (victim.reason == PreemptionReason::kPriority) {
      return absl::StrCat("makes room for ", by, ", with priority ", item.entry.priority, " over ",
                          victim.job.entry.priority);
    }
    const int quota = ledger_.LimitsOf(queue, victim.job.device).quota;
    return absl::StrCat("gives back borrowed devices to ", by,
                        ", which is within its quota; queue '", queue, "' used ",
                        ledger_.Balance(queue, victim.job.device).used, " of quota ", quota);
  }

  void Wait(const QueuedDemand& item, WaitKind kind, std::string reason) {
    PlacementDecision decision;
    decision.kind = kind;
    decision.reason = std::move(reason);
    decision.behind = kind == WaitKind::kBehindOthers;
    decision.beyond_capacity = kind == WaitKind::kBeyondCapacity;
    schedule_.decisions.push_back({item.entry.job, std::move(decision)});
  }

  const QueuePolicies& policies_;
  const ScheduleOptions& options_;
  std::vector<ActiveJob> running_;
  ClusterView view_;
  QueueLedger ledger_;
  std::vector<Line> lines_;
  // Job's name to the workers that it held at first, by index.
  std::map<std::string, std::vector<std::size_t>> holdings_;
  std::map<v1::DeviceType, const QueuedDemand*> blocked_by_;
  // Why the job at hand could not preempt.
  std::string obstacle_;
  ScheduleResult schedule_;
};

}  // namespace

ScheduleResult ScheduleQueues(const QueuePolicies& policies, const ScheduleState& state,
                              const ScheduleOptions& options) {
  return Pass(policies, state, options).Run();
}

}  // namespace fsdp::coordinator
