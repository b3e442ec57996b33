// The figures of a step that is over: loss and norm, phases, seconds by family, spans.

#include <algorithm>
#include <cmath>

#include "proto/support/status.h"
#include "worker/train/engine_impl.h"

namespace fsdp {
namespace {

// The label of a span of the phase track; null: it is no phase. Waits lie within compute.
const char* PhaseOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kData:
      return "data";
    case SpanKind::kForwardBackward:
      return "compute";
    case SpanKind::kGatherWait:
      return "exposed_gather";
    case SpanKind::kScatterWait:
    case SpanKind::kReduceWait:
      return "exposed_scatter";
    case SpanKind::kOptimizer:
      return "optimizer";
    case SpanKind::kOther:
      return "other";
    // The collectives have spans of their own, with names.
    case SpanKind::kGather:
    case SpanKind::kScatter:
    case SpanKind::kStep:
      break;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<double> EngineImpl::CollectLaunches(const Pending& pending, std::size_t slot,
                                                   double busy_seconds) {
  if (recorder_.time_launches()) {
    return std::max(0.0, busy_seconds - (LaunchSeconds() - pending.launch_seconds));
  }
  const FamilyTable before = recorder_.totals();
  ASSIGN_OR_RETURN(const double gaps, launch_timers_[slot].Drain(recorder_, pending.begin));
  if (!options_.sample_families) return gaps;
  if (pending.timed) {
    sampler_.OnTimed(Difference(recorder_.totals(), before), recorder_);
    return gaps;
  }
  const double launches = sampler_.OnUntimed(recorder_);
  return launches > 0 ? std::max(0.0, busy_seconds - launches) : 0.0;
}

absl::StatusOr<StepResult> EngineImpl::Collect(const Pending& pending, std::size_t slot) {
  ASSIGN_OR_RETURN(const auto seconds, timelines_[slot].Sum());
  const auto of = [&](SpanKind kind) { return seconds[static_cast<std::size_t>(kind)]; };
  const HostResult& host = *host_result(slot);
  StepResult result;
  result.step = pending.step;
  result.valid_tokens = static_cast<std::int64_t>(host.stats.valid_tokens);
  if (host.stats.valid_tokens > 0) {
    result.loss = host.stats.loss_sum / host.stats.valid_tokens;
    result.grad_norm = std::sqrt(host.stats.grad_norm_sq) / host.stats.valid_tokens;
  }
  result.skipped = host.update.skip != 0;
  result.non_finite = host.stats.nonfinite > 0 || !std::isfinite(host.stats.loss_sum) ||
                      !std::isfinite(host.stats.grad_norm_sq);
  result.spike = result.skipped && !result.non_finite && host.stats.valid_tokens > 0;
  result.step_seconds = pending.wall_seconds > 0 ? pending.wall_seconds : of(SpanKind::kStep);

  v1::StepPhases& phases = result.phases;
  const double scatter_wait = of(SpanKind::kScatterWait) + of(SpanKind::kReduceWait);
  phases.set_data_seconds(of(SpanKind::kData));
  phases.set_compute_seconds(of(SpanKind::kForwardBackward) - of(SpanKind::kGatherWait) -
                             of(SpanKind::kScatterWait));
  phases.set_exposed_gather_seconds(of(SpanKind::kGatherWait));
  phases.set_exposed_scatter_seconds(scatter_wait);
  phases.set_optimizer_seconds(of(SpanKind::kOptimizer));
  phases.set_other_seconds(of(SpanKind::kOther));
  phases.set_unattributed_seconds(result.step_seconds - of(SpanKind::kData) -
                                  of(SpanKind::kForwardBackward) - of(SpanKind::kReduceWait) -
                                  of(SpanKind::kOptimizer) - of(SpanKind::kOther));
  phases.set_overlapped_gather_seconds(
      std::max(0.0, of(SpanKind::kGather) - of(SpanKind::kGatherWait)));
  phases.set_overlapped_scatter_seconds(std::max(0.0, of(SpanKind::kScatter) - scatter_wait));
  ASSIGN_OR_RETURN(
      result.launch_gap_seconds,
      CollectLaunches(pending, slot, phases.compute_seconds() + phases.optimizer_seconds()));
  phases.set_launch_gap_seconds(result.launch_gap_seconds);
  phases.set_host_idle_seconds(pending.host_idle_seconds);
  recorder_.AddSeconds(KernelFamily::kGather, of(SpanKind::kGather));
  recorder_.AddSeconds(KernelFamily::kScatter, of(SpanKind::kScatter));
  recorder_.AddExposed(KernelFamily::kGather, of(SpanKind::kGatherWait));
  recorder_.AddExposed(KernelFamily::kScatter, scatter_wait);
  if (spans_ != nullptr) RETURN_IF_ERROR(AddPhaseSpans(timelines_[slot], pending.begin));
  return result;
}

double EngineImpl::LaunchSeconds() const {
  double seconds = 0;
  for (int i = 0; i < kNumKernelFamilies; ++i) {
    if (IsCommunication(static_cast<KernelFamily>(i))) continue;
    seconds += recorder_.totals()[static_cast<std::size_t>(i)].seconds;
  }
  return seconds;
}

void EngineImpl::RecordSpans(SpanRecorder* spans) {
  spans_ = spans;
  recorder_.set_observer(spans);
}

absl::Status EngineImpl::AddPhaseSpans(StepTimeline& timeline, const TimeBase& base) {
  return timeline.ForEach(*base.event, [&](SpanKind kind, double since, double seconds) {
    const char* const name = PhaseOf(kind);
    if (name == nullptr) return;
    const std::int64_t begin = base.ns + static_cast<std::int64_t>(since * 1e9);
    spans_->Add({.track = v1::PROFILE_TRACK_PHASE,
                 .begin_ns = begin,
                 .end_ns = begin + static_cast<std::int64_t>(seconds * 1e9),
                 .name = name});
  });
}

}  // namespace fsdp
