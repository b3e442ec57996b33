// Coordinator: who waits, who is placed, who makes room.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/queue/job_array.h"
#include "coordinator/queue/job_queue.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/log.h"

namespace fsdp::coordinator {
namespace {

// The head of the queue, with queues configured of each of them, is placed in full; what is behind
// it gets its position as reason.
constexpr size_t kMaxPlacedPerPass = 256;

// Devices that it holds, spares among them.
int HeldDevices(const JobRuntime& job) {
  return job.record.spare_workers_size() +
         static_cast<int>(
             std::count_if(job.record.members().begin(), job.record.members().end(),
                           [](const records::MemberRecord& member) { return !member.released(); }));
}

absl::Duration WaitedFor(const JobRuntime& job, TimePoint now) {
  const auto& since =
      job.record.has_queued_time() ? job.record.queued_time() : job.job().create_time();
  return now.wall - FromTimestamp(since);
}

// It would be placed on workers that come free, and so nobody else may take them out of turn.
bool TakesWhatIsFree(WaitKind kind) {
  return kind == WaitKind::kDevices || kind == WaitKind::kBehindOthers ||
         kind == WaitKind::kYielding;
}

bool HasClaim(v1::JobState state) {
  return state == v1::JOB_STATE_STARTING || state == v1::JOB_STATE_RUNNING ||
         state == v1::JOB_STATE_RECOVERING || state == v1::JOB_STATE_CANCELLING;
}

}  // namespace

std::vector<QueuedDemand> Coordinator::CollectQueue(TimePoint now) const {
  std::vector<QueuedDemand> queue;
  for (const JobId& id : unfinished_) {
    JobRuntime& job = *jobs_.at(id);
    if (IsArray(job)) continue;
    Effects unused;
    const JobController controller(job, options_, now, unused);
    const v1::JobSpec& spec = job.job().spec().spec();
    const bool recovering = controller.ComesBack();
    if (!recovering && !controller.WantsPlacement()) continue;
    QueuedDemand& item = queue.emplace_back();
    item.entry = {id, spec.queue(), spec.priority(), job.record.position()};
    item.recovering = recovering;
    item.waited = WaitedFor(job, now);
    item.demand = DemandOf(job.job().spec());
  }
  std::sort(queue.begin(), queue.end(), [](const QueuedDemand& a, const QueuedDemand& b) {
    return GoesBefore(a.entry, b.entry);
  });
  return queue;
}

std::vector<ActiveJob> Coordinator::ActiveJobs(const std::vector<QueuedDemand>& waiting,
                                               TimePoint now) const {
  std::set<JobId> excluded;
  for (const QueuedDemand& item : waiting) excluded.insert(item.entry.job);
  std::vector<ActiveJob> running;
  for (const JobId& id : unfinished_) {
    const JobRuntime& job = *jobs_.at(id);
    if (job.record.phase() == records::EPOCH_PHASE_UNSPECIFIED || excluded.contains(id)) continue;
    const int devices = HeldDevices(job);
    if (devices == 0) continue;
    const v1::JobSpec& spec = job.job().spec().spec();
    ActiveJob& entry = running.emplace_back();
    entry.entry = {id, spec.queue(), spec.priority(), job.record.position()};
    entry.device = DeviceOf(spec.resources());
    entry.devices = devices;
    entry.stopping = job.record.phase() == records::EPOCH_PHASE_ENDING;
    entry.saves = !spec.checkpoint().dir().empty();
    entry.ran = now.wall - FromTimestamp(job.record.placed_time());
  }
  return running;
}

std::map<JobId, std::string> Coordinator::HeldBackTasks(
    const std::vector<QueuedDemand>& queue) const {
  std::map<JobId, std::string> held;
  if (arrays_.empty()) return held;
  ArrayGate gate;
  for (const JobId& id : unfinished_) {
    const v1::Job& job = jobs_.at(id)->job();
    if (!job.array_job().empty() && HasClaim(job.state())) gate.AddActive(job.array_job());
  }
  for (const QueuedDemand& item : queue) {
    const v1::Job& job = jobs_.at(item.entry.job)->job();
    if (job.array_job().empty() || HasClaim(job.state())) continue;
    const JobRuntime& array = *jobs_.at(JobIdFromName(job.array_job()));
    const int limit = array.job().spec().spec().array().max_parallel();
    if (std::string why = gate.Ask(job.array_job(), limit); !why.empty()) {
      held.emplace(item.entry.job, std::move(why));
    }
  }
  return held;
}

std::vector<QueueDecision> Coordinator::DecideQueue(std::vector<QueuedDemand> queue,
                                                    std::vector<Preemption>* preemptions,
                                                    TimePoint now) {
  const ClusterView view = workers_.View(now.mono, options_.timing);
  // Of all of them, whatever is looked at.
  std::vector<ActiveJob> running;
  if (!queue_policies_.empty()) running = ActiveJobs(queue, now);
  std::map<std::string, size_t> taken;
  std::vector<QueuedDemand> heads;
  for (QueuedDemand& item : queue) {
    const std::string line = queue_policies_.empty() ? "" : item.entry.queue;
    if (taken[line]++ >= kMaxPlacedPerPass) continue;
    item.demand = PlacementDemand(*jobs_.at(item.entry.job), now);
    heads.push_back(std::move(item));
  }
  if (queue_policies_.empty()) return ScheduleQueue(std::move(heads), view);
  ScheduleResult schedule =
      ScheduleQueues(queue_policies_, {std::move(heads), std::move(running), view},
                     {.aging = options_.queue.aging});
  *preemptions = std::move(schedule.preemptions);
  return std::move(schedule.decisions);
}

void Coordinator::Schedule(TimePoint now) {
  schedule_wanted_ = false;
  last_wait_reasons_ = now.mono;
  wait_kinds_.clear();
  // Of the types of devices that a job waits for.
  std::set<v1::DeviceType> wanted;
  PlaceQueue(now, &wanted);
  ReviseHoldings(now, wanted);
}

void Coordinator::PlaceQueue(TimePoint now, std::set<v1::DeviceType>* wanted) {
  std::vector<QueuedDemand> queue = CollectQueue(now);
  std::vector<QueueEntry> entries;
  std::set<JobId> recovering;
  for (const QueuedDemand& item : queue) {
    entries.push_back(item.entry);
    if (!item.recovering) continue;
    recovering.insert(item.entry.job);
    wanted->insert(item.demand.device);
    if (jobs_.at(item.entry.job)->record.has_earliest_start()) {
      ++wait_kinds_[{item.entry.queue, "backoff"}];
    }
  }
  if (recovering.size() == queue.size()) return;
  const std::vector<std::int32_t> positions = QueuePositions(entries);
  const std::map<JobId, std::string> held = HeldBackTasks(queue);
  std::erase_if(queue, [&](const QueuedDemand& item) { return held.contains(item.entry.job); });

  std::vector<Preemption> preemptions;
  std::map<JobId, PlacementDecision> decisions;
  if (!InMaintenance()) {
    for (QueueDecision& one : DecideQueue(std::move(queue), &preemptions, now)) {
      decisions[one.job] = std::move(one.decision);
    }
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (recovering.contains(entries[i].job)) continue;
    JobRuntime& job = *jobs_.at(entries[i].job);
    const auto decision = decisions.find(entries[i].job);
    if (decision != decisions.end() && decision->second.placement) {
      PlaceJob(job, decision->second);
      continue;
    }
    std::string reason;
    const char* kind = LabelOf(WaitKind::kBehindOthers);
    if (InMaintenance()) {
      reason = MaintenanceText();
      kind = "maintenance";
    } else if (const auto gate = held.find(entries[i].job); gate != held.end()) {
      reason = gate->second;
      kind = "array_limit";
    } else if (decision != decisions.end()) {
      reason = absl::StrCat(decision->second.reason, FewerRanksText(job, now));
      kind = LabelOf(decision->second.kind);
      if (TakesWhatIsFree(decision->second.kind)) {
        wanted->insert(DeviceOf(job.job().spec().spec().resources()));
      }
    } else {
      reason = queue_policies_.empty()
                   ? absl::StrCat("waits behind ", i, " jobs of its cluster")
                   : absl::StrCat("waits behind ", positions[i] - 1, " jobs of its queue");
    }
    ++wait_kinds_[{entries[i].queue, kind}];
    TellWait(job, reason, positions[i], now);
  }
  for (const Preemption& preemption : preemptions) PreemptJob(preemption);
}

// Why it waits is told, not stored: it changes with every other job.
void Coordinator::TellWait(JobRuntime& job, const std::string& reason, std::int32_t position,
                           TimePoint now) {
  Effects effects;
  JobController controller(job, options_, now, effects);
  controller.Wait(reason, position);
  if (!effects.job_changed) return;
  job.mutable_job().set_revision(job.job().revision() + 1);
  Persist({}, [this, snapshot = Snapshot(job), place = job.record.position()](absl::Status status) {
    if (status.ok()) directory_.Publish(snapshot, place);
  });
}

void Coordinator::PreemptJob(const Preemption& preemption) {
  JobRuntime* job = Find(preemption.victim);
  if (job == nullptr) return;
  const std::string& queue = job->job().spec().spec().queue();
  const auto policy = queue_policies_.find(queue);
  const std::optional<absl::Duration> grace =
      policy == queue_policies_.end() ? std::nullopt : policy->second.grace;
  counters_.Add("fsdp_preemptions_total", queue, LabelOf(preemption.reason));
  Apply(*job, [&](JobController& controller) { controller.Preempt(preemption.why, grace); });
}

void Coordinator::PlaceJob(JobRuntime& job, const PlacementDecision& decision) {
  const Placement& placement = *decision.placement;
  std::vector<records::MemberRecord> members;
  std::map<std::string, int> on_host;
  for (size_t rank = 0; rank < placement.size(); ++rank) {
    const WorkerEntry& worker = *workers_.Find(placement[rank]);
    records::MemberRecord& member = members.emplace_back();
    member.set_rank(static_cast<std::int32_t>(rank));
    member.set_worker(worker.record.id());
    member.set_incarnation(worker.record.incarnation());
    member.set_host(worker.record.host());
    member.set_address(worker.rank_address);
    const v1::DeviceInfo& device = worker.record.device();
    member.set_device(
        absl::StrCat(device.type() == v1::DEVICE_TYPE_CUDA ? "cuda:" : "cpu:", device.index()));
    member.set_device_memory_bytes(device.memory_bytes());
    member.set_local_rank(on_host[worker.record.host()]++);
  }
  for (records::MemberRecord& member : members) {
    member.set_local_world_size(on_host[member.host()]);
  }
  if (job.job().attempt() == 0) {
    counters_.Observe("fsdp_queue_wait_seconds",
                      clock_.WallNow() - FromTimestamp(job.job().create_time()));
  }
  Apply(job, [&](JobController& controller) {
    controller.Place(members);
    controller.HoldSpares(decision.spares);
  });
}

}  // namespace fsdp::coordinator
