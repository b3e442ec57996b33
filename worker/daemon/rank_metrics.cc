#include "worker/daemon/rank_metrics.h"

#include <algorithm>

#include "proto/support/metric_table.h"

namespace fsdp::daemon {
namespace {

KernelSeconds& FindKernelSeconds(RankSeries& series, const v1::FamilyVerdict& verdict) {
  for (KernelSeconds& seconds : *series.mutable_kernel_seconds()) {
    if (seconds.family() == verdict.family() && seconds.bound() == verdict.bound() &&
        seconds.source() == verdict.source()) {
      return seconds;
    }
  }
  KernelSeconds& seconds = *series.add_kernel_seconds();
  seconds.set_family(verdict.family());
  seconds.set_bound(verdict.bound());
  seconds.set_source(verdict.source());
  return seconds;
}

FamilyTotals& FindFamily(RankSeries& series, const std::string& family) {
  for (FamilyTotals& totals : *series.mutable_families()) {
    if (totals.family() == family) return totals;
  }
  FamilyTotals& totals = *series.add_families();
  totals.set_family(family);
  return totals;
}

}  // namespace

const std::vector<PhaseField>& PhaseFields() {
  using P = v1::StepPhases;
  static const auto& fields = *new std::vector<PhaseField>{
      {"data", &P::data_seconds, &P::set_data_seconds},
      {"compute", &P::compute_seconds, &P::set_compute_seconds},
      {"exposed_gather", &P::exposed_gather_seconds, &P::set_exposed_gather_seconds},
      {"exposed_scatter", &P::exposed_scatter_seconds, &P::set_exposed_scatter_seconds},
      {"optimizer", &P::optimizer_seconds, &P::set_optimizer_seconds},
      {"checkpoint", &P::checkpoint_seconds, &P::set_checkpoint_seconds},
      {"evaluate", &P::evaluate_seconds, &P::set_evaluate_seconds},
      {"other", &P::other_seconds, &P::set_other_seconds},
      {"unattributed", &P::unattributed_seconds, &P::set_unattributed_seconds},
      {"overlapped_gather", &P::overlapped_gather_seconds, &P::set_overlapped_gather_seconds},
      {"overlapped_scatter", &P::overlapped_scatter_seconds, &P::set_overlapped_scatter_seconds},
      {"launch_gap", &P::launch_gap_seconds, &P::set_launch_gap_seconds},
      {"host_idle", &P::host_idle_seconds, &P::set_host_idle_seconds},
  };
  return fields;
}

void RankMetrics::Begin(const v1::EpochKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DropExpired();
  const JobRank id(MetricJobId(key.job()), key.rank());
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.first.first == id.first && entry.first.second != id.second;
  });
  Entry& entry = entries_[id];
  *entry.series.mutable_key() = key;
  entry.series.set_state(v1::RANK_STATE_STARTING);
  // A new trainer counts from zero.
  entry.last_families.clear();
  entry.last_collectives.clear();
  entry.last_profiler.Clear();
  entry.end.reset();
}

RankMetrics::Entry* RankMetrics::Find(const v1::EpochKey& key) {
  const auto found = entries_.find({MetricJobId(key.job()), key.rank()});
  return found == entries_.end() ? nullptr : &found->second;
}

void RankMetrics::SetState(const v1::EpochKey& key, v1::RankState state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Entry* const entry = Find(key)) entry->series.set_state(state);
}

void RankMetrics::SetCeilings(const v1::EpochKey& key, const v1::DeviceCeilings& ceilings) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Entry* const entry = Find(key)) *entry->series.mutable_ceilings() = ceilings;
}

void RankMetrics::AddStep(const v1::EpochKey& key, const v1::StepReport& report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry* const entry = Find(key);
  if (entry == nullptr) return;
  RankSeries& series = entry->series;
  const v1::StepMetrics& metrics = report.metrics();
  // The final report repeats the last step with the closing figures; it is no step of its own.
  const bool repeated =
      report.final() && series.has_last() && series.last().metrics().step() == metrics.step();
  if (!repeated) {
    series.set_num_steps(series.num_steps() + 1);
    series.set_num_steps_skipped(series.num_steps_skipped() + (metrics.skipped() ? 1 : 0));
    series.set_num_rollbacks(series.num_rollbacks() + (metrics.rolled_back() ? 1 : 0));
    series.set_num_tokens(series.num_tokens() + static_cast<double>(metrics.tokens()));
    series.set_flops(series.flops() + metrics.flops());
    for (const PhaseField& field : PhaseFields()) {
      (series.mutable_phases()->*field.set)((series.phases().*field.get)() +
                                            (metrics.phases().*field.get)());
    }
  }
  if (metrics.has_validation_loss()) series.set_validation_loss(metrics.validation_loss());
  if (!metrics.evaluations().empty()) *series.mutable_evaluations() = metrics.evaluations();
  AddFamilies(report, entry);
  AddCollectives(report, entry);
  AddProfiler(report, entry);
  *series.mutable_last() = report;
  series.set_last_step_unix_seconds(absl::ToDoubleSeconds(clock_.WallNow() - absl::UnixEpoch()));
}

void RankMetrics::AddFamilies(const v1::StepReport& report, Entry* entry) {
  for (const v1::FamilyVerdict& now : report.families()) {
    v1::FamilyVerdict& before = entry->last_families[now.family()];
    const auto grown = [](double to, double from) { return std::max(0.0, to - from); };
    KernelSeconds& seconds = FindKernelSeconds(entry->series, now);
    seconds.set_seconds(seconds.seconds() + grown(now.seconds(), before.seconds()));
    FamilyTotals& totals = FindFamily(entry->series, now.family());
    totals.set_launches(totals.launches() + grown(static_cast<double>(now.launches()),
                                                  static_cast<double>(before.launches())));
    totals.set_flops(totals.flops() + grown(now.flops(), before.flops()));
    totals.set_bytes(totals.bytes() + grown(now.bytes(), before.bytes()));
    totals.set_savable_seconds(grown(now.savable_seconds(), before.savable_seconds()));
    before = now;
  }
}

void RankMetrics::AddCollectives(const v1::StepReport& report, Entry* entry) {
  for (const v1::CollectiveTotals& now : report.collectives()) {
    v1::CollectiveTotals& before = entry->last_collectives[now.operation()];
    auto& all = *entry->series.mutable_collectives();
    auto found = std::find_if(all.begin(), all.end(), [&](const v1::CollectiveTotals& totals) {
      return totals.operation() == now.operation();
    });
    v1::CollectiveTotals& totals = found == all.end() ? *all.Add() : *found;
    totals.set_operation(now.operation());
    totals.set_count(totals.count() + std::max<std::int64_t>(0, now.count() - before.count()));
    totals.set_bytes(totals.bytes() + std::max<std::int64_t>(0, now.bytes() - before.bytes()));
    totals.set_seconds(totals.seconds() + std::max(0.0, now.seconds() - before.seconds()));
    before = now;
  }
}

void RankMetrics::AddProfiler(const v1::StepReport& report, Entry* entry) {
  if (!report.has_profiler()) return;
  const v1::ProfilerHealth& now = report.profiler();
  const v1::ProfilerHealth& before = entry->last_profiler;
  v1::ProfilerHealth& totals = *entry->series.mutable_profiler();
  const auto grown = [](auto to, auto from) { return std::max(decltype(to){0}, to - from); };
  totals.set_state(now.state());
  totals.set_message(now.message());
  totals.set_windows(totals.windows() + grown(now.windows(), before.windows()));
  totals.set_samples(totals.samples() + grown(now.samples(), before.samples()));
  for (const auto& [reason, count] : now.dropped()) {
    const auto last = before.dropped().find(reason);
    (*totals.mutable_dropped())[reason] +=
        grown(count, last == before.dropped().end() ? 0 : last->second);
  }
  for (const auto& [kind, seconds] : now.overhead_seconds()) {
    const auto last = before.overhead_seconds().find(kind);
    (*totals.mutable_overhead_seconds())[kind] +=
        grown(seconds, last == before.overhead_seconds().end() ? 0.0 : last->second);
  }
  entry->last_profiler = now;
}

void RankMetrics::End(const v1::EpochKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry* const entry = Find(key);
  if (entry == nullptr) return;
  entry->series.set_state(v1::RANK_STATE_EXITED);
  entry->end = clock_.Now();
}

void RankMetrics::DropExpired() {
  const MonotonicTime now = clock_.Now();
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.second.end && now - *entry.second.end >= options_.linger;
  });
}

std::vector<RankSeries> RankMetrics::Snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const MonotonicTime now = clock_.Now();
  std::vector<RankSeries> shown;
  for (const auto& [id, entry] : entries_) {
    if (entry.end && now - *entry.end >= options_.linger) continue;
    shown.push_back(entry.series);
  }
  return shown;
}

}  // namespace fsdp::daemon
