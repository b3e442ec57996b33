#include "worker/sharding/unit_exchange.h"

#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {

UnitExchange::UnitExchange(const ArenaView& arena, Device& device, FamilyRecorder& recorder,
                           Communicator* gather, Communicator* scatter, int rank)
    : arena_(arena),
      plan_(arena.plan()),
      device_(device),
      recorder_(recorder),
      gather_(gather),
      scatter_(scatter),
      gather_stream_(device.gather()),
      scatter_stream_(gather == scatter ? device.gather() : device.scatter()),
      stages_(plan_.stages.size()) {
  for (const UnitPlan& unit : plan_.units) runs_.push_back(ParameterRuns(unit, rank));
}

void UnitExchange::BeginStep(StepTimeline* timeline) {
  timeline_ = timeline;
  // Marks of the last step are gone; nothing of it is pending.
  for (StageState& stage : stages_) {
    FSDP_CHECK(stage.weights != State::kGathering, "a gather was never used");
    stage.scattered = nullptr;
  }
}

void UnitExchange::InvalidateWeights() {
  for (StageState& stage : stages_) stage.weights = State::kSharded;
}

const UnitPlan& UnitExchange::UnitOf(int stage) const {
  const int unit = plan_.stages[static_cast<std::size_t>(stage)].unit;
  return plan_.units[static_cast<std::size_t>(unit)];
}

BufferId UnitExchange::WeightsBuffer(int stage, Pass pass) const {
  const StagePlan& entry = plan_.stages[static_cast<std::size_t>(stage)];
  return pass == Pass::kForward ? entry.forward_weights : entry.backward_weights;
}

Vector UnitExchange::GatherSource(int unit) const {
  const UnitPlan& entry = plan_.units[static_cast<std::size_t>(unit)];
  return arena_.Elements(plan_.split_master() ? plan_.compute_weights : plan_.master,
                         plan_.input.parameter_dtype, entry.shard_offset,
                         entry.layout.shard_elements);
}

Vector UnitExchange::GradientShard(int unit) const {
  const UnitPlan& entry = plan_.units[static_cast<std::size_t>(unit)];
  return arena_.Elements(entry.gradient, plan_.master_dtype(), 0, entry.layout.shard_elements);
}

absl::Status UnitExchange::IssueGather(int stage, BufferId buffer) {
  StageState& state = stages_[static_cast<std::size_t>(stage)];
  const StagePlan& entry = plan_.stages[static_cast<std::size_t>(stage)];
  const Vector unit =
      arena_.Elements(buffer, plan_.input.parameter_dtype, 0, UnitOf(stage).layout.unit_elements());
  ASSIGN_OR_RETURN(Event * asked, timeline_->Mark(device_.compute()));
  RETURN_IF_ERROR(device_.Wait(gather_stream_, *asked));
  ASSIGN_OR_RETURN(Event * begin, timeline_->Mark(gather_stream_));
  gather_->SetLabel(entry.name);
  RETURN_IF_ERROR(gather_->AllGather(GatherSource(entry.unit), unit, gather_stream_));
  ASSIGN_OR_RETURN(state.gathered, timeline_->Mark(gather_stream_));
  timeline_->AddSpan(SpanKind::kGather, begin, state.gathered);
  recorder_.Add(KernelFamily::kGather, 0, 0, static_cast<double>(unit.size_bytes()));
  state.weights = State::kGathering;
  state.held = buffer;
  return absl::OkStatus();
}

absl::Status UnitExchange::Prefetch(int stage, Pass pass) {
  if (!sharded()) return absl::OkStatus();
  const BufferId buffer = WeightsBuffer(stage, pass);
  StageState& state = stages_[static_cast<std::size_t>(stage)];
  if (state.weights != State::kSharded && state.held == buffer) return absl::OkStatus();
  return IssueGather(stage, buffer);
}

absl::StatusOr<UnitView> UnitExchange::Acquire(int stage, Pass pass) {
  const UnitPlan& unit = UnitOf(stage);
  const DType dtype = plan_.input.parameter_dtype;
  if (!sharded()) {
    const int index = plan_.stages[static_cast<std::size_t>(stage)].unit;
    return UnitView(unit, GatherSource(index).data, dtype);
  }
  RETURN_IF_ERROR(Prefetch(stage, pass));
  StageState& state = stages_[static_cast<std::size_t>(stage)];
  if (state.weights == State::kGathering) {
    RETURN_IF_ERROR(
        timeline_->TimedWait(SpanKind::kGatherWait, device_.compute(), *state.gathered));
    state.weights = State::kUnsharded;
  }
  return UnitView(unit, arena_.Address(state.held), dtype);
}

void UnitExchange::Release(int stage, bool keep) {
  if (!keep) stages_[static_cast<std::size_t>(stage)].weights = State::kSharded;
}

Vector UnitExchange::GradientBuffer(int stage) const {
  const StagePlan& entry = plan_.stages[static_cast<std::size_t>(stage)];
  if (!sharded()) return GradientShard(entry.unit);
  return arena_.Elements(entry.gradients, plan_.gradient_dtype(), 0,
                         UnitOf(stage).layout.unit_elements());
}

UnitView UnitExchange::Gradients(int stage) const {
  return {UnitOf(stage), GradientBuffer(stage).data, plan_.gradient_dtype()};
}

absl::Status UnitExchange::AddGradStats(int unit, Stream& stream, StepStats* stats) {
  const Vector shard = GradientShard(unit);
  const auto element = static_cast<std::int64_t>(SizeOf(shard.dtype));
  for (const ElementRun& run : runs_[static_cast<std::size_t>(unit)]) {
    const Vector part{static_cast<std::byte*>(shard.data) + run.begin * element, shard.dtype,
                      run.end - run.begin};
    const auto bytes = static_cast<double>(part.size_bytes());
    const auto launch = [&] {
      return device_.ops().GradStats(stream, part, stats, arena_.Bytes(plan_.grad_stats_scratch));
    };
    if (sharded()) {
      // In the scatter stream, behind compute: its time is the scatter's.
      recorder_.Add(KernelFamily::kReduce, 0, 2.0 * static_cast<double>(part.size), bytes);
      RETURN_IF_ERROR(launch());
    } else {
      const LaunchWork work{
          KernelFamily::kReduce, "grad_norm", 2.0 * static_cast<double>(part.size), bytes,
          {part.size, 0, 0},     part.dtype};
      RETURN_IF_ERROR(Launch(recorder_, work, launch));
    }
  }
  return absl::OkStatus();
}

absl::Status UnitExchange::ReduceInto(int stage, bool first) {
  const StagePlan& entry = plan_.stages[static_cast<std::size_t>(stage)];
  const Vector unit = GradientBuffer(stage);
  const Vector shard = GradientShard(entry.unit);
  scatter_->SetLabel(entry.name);
  recorder_.Add(KernelFamily::kScatter, 0, 0, static_cast<double>(unit.size_bytes()));
  if (first && plan_.gradient_dtype() == plan_.master_dtype()) {
    return scatter_->ReduceScatter(unit, shard, scatter_stream_);
  }
  const Vector landing = arena_.Elements(plan_.reduced, plan_.gradient_dtype(), 0, shard.size);
  RETURN_IF_ERROR(scatter_->ReduceScatter(unit, landing, scatter_stream_));
  return first ? device_.ops().Cast(scatter_stream_, landing, shard)
               : device_.ops().Accumulate(scatter_stream_, landing, shard);
}

absl::Status UnitExchange::Scatter(int stage, bool first, bool last, StepStats* stats) {
  const int unit = plan_.stages[static_cast<std::size_t>(stage)].unit;
  if (!sharded()) {
    return last ? AddGradStats(unit, device_.compute(), stats) : absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Event * ready, timeline_->Mark(device_.compute()));
  RETURN_IF_ERROR(device_.Wait(scatter_stream_, *ready));
  ASSIGN_OR_RETURN(Event * begin, timeline_->Mark(scatter_stream_));
  RETURN_IF_ERROR(ReduceInto(stage, first));
  if (last) RETURN_IF_ERROR(AddGradStats(unit, scatter_stream_, stats));
  ASSIGN_OR_RETURN(Event * end, timeline_->Mark(scatter_stream_));
  timeline_->AddSpan(SpanKind::kScatter, begin, end);
  stages_[static_cast<std::size_t>(stage)].scattered = end;
  return absl::OkStatus();
}

absl::Status UnitExchange::WaitScatter(int stage, SpanKind kind) {
  if (stage < 0 || stage >= static_cast<int>(stages_.size())) return absl::OkStatus();
  Event*& pending = stages_[static_cast<std::size_t>(stage)].scattered;
  if (pending == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(timeline_->TimedWait(kind, device_.compute(), *pending));
  pending = nullptr;
  return absl::OkStatus();
}

absl::Status UnitExchange::WaitScatters() {
  for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) {
    RETURN_IF_ERROR(WaitScatter(stage, SpanKind::kReduceWait));
  }
  return absl::OkStatus();
}

absl::Status UnitExchange::ReduceStats(StepStats* stats) {
  if (!sharded()) return absl::OkStatus();
  RETURN_IF_ERROR(WaitScatters());
  ASSIGN_OR_RETURN(Event * ready, timeline_->Mark(device_.compute()));
  RETURN_IF_ERROR(device_.Wait(scatter_stream_, *ready));
  ASSIGN_OR_RETURN(Event * begin, timeline_->Mark(scatter_stream_));
  scatter_->SetLabel("step_stats");
  recorder_.Add(KernelFamily::kScatter, 0, 0, static_cast<double>(sizeof(StepStats)));
  RETURN_IF_ERROR(scatter_->AllReduce({stats, DType::kF64, sizeof(StepStats) / sizeof(double)},
                                      scatter_stream_));
  ASSIGN_OR_RETURN(Event * done, timeline_->Mark(scatter_stream_));
  timeline_->AddSpan(SpanKind::kScatter, begin, done);
  return timeline_->TimedWait(SpanKind::kReduceWait, device_.compute(), *done);
}

}  // namespace fsdp
