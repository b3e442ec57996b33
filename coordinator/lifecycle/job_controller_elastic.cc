// JobController: more or fewer ranks than before, spares, and ranks that are too slow.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/lifecycle/job_controller.h"
#include "worker/plan/elastic_sizes.h"

namespace fsdp::coordinator {
namespace {

std::string RanksText(int ranks) { return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks"); }

}  // namespace

std::string JobController::RunsOn() const {
  const v1::TrainingJob& spec = job_.job().spec();
  const int ranks = job_.record.members_size();
  std::string text = absl::StrCat("epoch ", job_.job().epoch(), " runs on ", ranks, " ranks");
  if (IsElastic(spec)) {
    const std::vector<int> sizes = ElasticSizes(spec);
    absl::StrAppend(&text, "; elastic from ", ElasticSizesText(spec));
    if (job_.growth > ranks) {
      absl::StrAppend(&text, "; grows to ", job_.growth, " at its next checkpoint");
    } else if (ranks < sizes.back()) {
      const int next = *std::upper_bound(sizes.begin(), sizes.end(), ranks);
      absl::StrAppend(&text, "; grows at a checkpoint once ", next - ranks,
                      next - ranks == 1 ? " more worker is free" : " more workers are free");
    }
  }
  const int spares = spec.spec().resources().spares();
  if (spares > 0) {
    absl::StrAppend(&text, "; holds ", job_.record.spare_workers_size(), " of ", spares,
                    spares == 1 ? " spare" : " spares");
    if (job_.record.spare_workers_size() > 0) {
      absl::StrAppend(&text, " (", absl::StrJoin(job_.record.spare_workers(), ", "), ")");
    }
  }
  return text;
}

void JobController::TellRunsOn() {
  const bool trains = job().state() == v1::JOB_STATE_RUNNING &&
                      job_.record.phase() == records::EPOCH_PHASE_LIVE && !job_.hang_reported;
  if (!trains || job().reason() == RunsOn()) return;
  job().set_reason(RunsOn());
  effects_.job_changed = true;
}

void JobController::HoldSpares(const std::vector<WorkerId>& spares) {
  auto& held = *job_.record.mutable_spare_workers();
  const auto same = [](const WorkerId& a, const std::string& b) { return a.value() == b; };
  if (std::equal(spares.begin(), spares.end(), held.begin(), held.end(), same)) return;
  held.Clear();
  for (const WorkerId& spare : spares) *held.Add() = spare.value();
  effects_.spares_changed = true;
  effects_.job_changed = true;
  TellRunsOn();
}

void JobController::PlanGrowth(int ranks) {
  job_.growth = ranks > job_.record.members_size() ? ranks : 0;
  TellRunsOn();
}

void JobController::TellRankChange(int before) {
  const int ranks = job_.record.members_size();
  if (ranks == before || !IsElastic(job().spec())) return;
  effects_.rank_change = ranks - before;
  Event("RANKS_CHANGED", ranks < before ? v1::EVENT_SEVERITY_WARNING : v1::EVENT_SEVERITY_INFO,
        absl::StrCat(RanksText(ranks), " in place of ", before, "; elastic from ",
                     ElasticSizesText(job().spec()),
                     "; the global batch, and with it the losses, stay as they are"));
}

void JobController::GrowAfter(std::int64_t step) {
  const std::int64_t last = job().progress().total_steps();
  const bool ends = last > 0 && step >= last;
  if (job_.growth <= job_.record.members_size() || ends ||
      job_.record.phase() != records::EPOCH_PHASE_LIVE) {
    return;
  }
  const std::string why = absl::StrCat("grows from ", RanksText(job_.record.members_size()), " to ",
                                       job_.growth, ": that many workers are free for it");
  job().set_reason(why);
  Event("GROWING", v1::EVENT_SEVERITY_INFO, why).set_step(step);
  StopFor(records::STOP_INTENT_GROW, GentleStop(), why);
}

void JobController::ReplaceStraggler() {
  const StragglerOptions& limits = options_.straggler;
  const bool may = job_.record.phase() == records::EPOCH_PHASE_LIVE && !job_.first_finish &&
                   job_.record.spare_workers_size() > 0 &&
                   !job().spec().spec().checkpoint().dir().empty();
  if (!may) return;
  const std::optional<Straggler> slowest = job_.stragglers.Slowest();
  if (!slowest || slowest->score >= limits.exclude_below || slowest->loss < limits.least_loss) {
    return;
  }
  const std::string& worker = member(slowest->rank).worker();
  const std::string why = absl::StrFormat(
      "rank %d on %s has a straggler score of %.2f (below %.2f; a step takes it %s longer than the "
      "fastest rank): a spare takes its place, and the job does not use the worker again",
      slowest->rank, worker, slowest->score, limits.exclude_below,
      absl::FormatDuration(absl::Trunc(slowest->loss, absl::Milliseconds(1))));
  job_.record.add_excluded_workers(worker);
  effects_.straggler_excluded = true;
  v1::JobEvent& event = Event("STRAGGLER_EXCLUDED", v1::EVENT_SEVERITY_WARNING, why);
  event.set_rank(slowest->rank);
  event.set_worker("workers/" + worker);
  StopFor(records::STOP_INTENT_DRAIN, GentleStop(), why);
}

}  // namespace fsdp::coordinator
