#include "worker/train/trainer_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "worker/profile/device_peaks.h"

namespace fsdp {
namespace {

constexpr std::int64_t kMaxRows = 200;

std::string Bytes(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 0x1p30) return absl::StrFormat("%.2f GiB", value / 0x1p30);
  return absl::StrFormat("%.1f MiB", value / 0x1p20);
}

// The engine's phases with the trainer's own; what is left over is `unattributed`.
v1::StepPhases Phases(const StepFacts& facts) {
  v1::StepPhases phases = facts.result.phases;
  const TrainerSeconds& seconds = facts.seconds;
  phases.set_data_seconds(phases.data_seconds() + seconds.data);
  phases.set_exposed_gather_seconds(phases.exposed_gather_seconds() + seconds.agree);
  phases.set_evaluate_seconds(seconds.evaluate);
  phases.set_checkpoint_seconds(seconds.checkpoint);
  // Between the engine's calls: reports, and what the loop itself costs.
  const double outside = seconds.total - facts.result.step_seconds - seconds.data - seconds.agree -
                         seconds.evaluate - seconds.checkpoint;
  phases.set_other_seconds(phases.other_seconds() + std::max(0.0, outside));
  const double sum = phases.data_seconds() + phases.compute_seconds() +
                     phases.exposed_gather_seconds() + phases.exposed_scatter_seconds() +
                     phases.optimizer_seconds() + phases.checkpoint_seconds() +
                     phases.evaluate_seconds() + phases.other_seconds();
  phases.set_unattributed_seconds(std::max(0.0, seconds.total - sum));
  return phases;
}

}  // namespace

void AddFamilies(const RankSetup& setup, const FamilyTable& table,
                 const v1::DeviceCeilings& ceilings, const MeasuredTable& measured,
                 google::protobuf::RepeatedPtrField<v1::FamilyVerdict>* out) {
  Ceilings judged;
  judged.flops_per_second = setup.plan.input.parameter_dtype == DType::kBf16
                                ? ceilings.bf16_flops_per_second()
                                : ceilings.fp32_flops_per_second();
  judged.bytes_per_second = ceilings.copy_bytes_per_second();
  const PlanInput& input = setup.plan.input;
  JobSettings settings;
  settings.bf16_parameters = input.parameter_dtype == DType::kBf16;
  settings.bf16_reduce = input.reduce_dtype == DType::kBf16;
  settings.reshards_after_forward = input.reshard_after_forward;
  settings.prefetches = input.prefetch > 0;
  settings.two_communicators = input.num_communicators > 1;
  settings.accumulates = setup.plan.split.num_micro_batches() > 1;
  AppendVerdicts(table, judged, settings, measured, out);
}

v1::StepReport MakeStepReport(const RankSetup& setup, const Engine& engine, const StepFacts& facts,
                              const v1::DeviceCeilings& ceilings, const RankCounters& counters,
                              const std::string& device) {
  v1::StepReport report;
  v1::StepMetrics& metrics = *report.mutable_metrics();
  const absl::Time now = absl::Now();
  metrics.set_step(facts.result.step);
  metrics.mutable_time()->set_seconds(absl::ToUnixSeconds(now));
  metrics.mutable_time()->set_nanos(
      static_cast<std::int32_t>(absl::ToUnixNanos(now) % 1'000'000'000));
  metrics.set_attempt(setup.assignment.key().attempt());
  metrics.set_epoch(setup.assignment.key().epoch());
  metrics.set_loss(facts.result.loss);
  metrics.set_grad_norm(facts.result.grad_norm);
  metrics.set_lr(facts.lr);
  metrics.set_tokens(facts.result.valid_tokens);
  metrics.set_step_seconds(facts.seconds.total);
  const double training = facts.seconds.total - facts.seconds.evaluate - facts.seconds.checkpoint;
  if (training > 0) {
    metrics.set_tokens_per_second(static_cast<double>(facts.result.valid_tokens) / training);
  }
  metrics.set_flops(setup.plan.model_flops_per_step);
  const bool bf16 = setup.plan.input.parameter_dtype == DType::kBf16;
  const double peak = PeakFlops(
      device, bf16, bf16 ? ceilings.bf16_flops_per_second() : ceilings.fp32_flops_per_second());
  if (training > 0 && peak > 0) {
    metrics.set_mfu(setup.plan.model_flops_per_step / training / peak / setup.world_size());
    metrics.set_hfu(facts.flops / training / peak);
  }
  if (facts.validation_loss.has_value()) metrics.set_validation_loss(*facts.validation_loss);
  metrics.mutable_evaluations()->Add(facts.evaluations.begin(), facts.evaluations.end());
  for (const std::int64_t peak : facts.memory_peak_bytes) {
    metrics.add_memory_peak_bytes_by_rank(peak);
    metrics.set_memory_peak_bytes(std::max(metrics.memory_peak_bytes(), peak));
  }
  *metrics.mutable_phases() = Phases(facts);
  metrics.set_skipped(facts.result.skipped);
  metrics.set_spike(facts.result.spike);
  metrics.set_rolled_back(facts.rolled_back);
  AddFamilies(setup, engine.families(), ceilings, counters.Table(), report.mutable_families());
  for (const auto& [operation, total] : facts.collectives) {
    v1::CollectiveTotals& totals = *report.add_collectives();
    totals.set_operation(operation);
    totals.set_count(total.count);
    totals.set_bytes(total.bytes);
    totals.set_seconds(total.seconds);
  }
  for (const MemoryUsage& usage : engine.memory()) {
    v1::MemoryKind& kind = *report.add_memory();
    kind.set_kind(usage.kind);
    kind.set_now_bytes(usage.now_bytes);
    kind.set_peak_bytes(usage.peak_bytes);
    report.set_memory_now_bytes(report.memory_now_bytes() + usage.now_bytes);
  }
  *report.mutable_profiler() = counters.Health();
  const auto rank = static_cast<std::size_t>(setup.rank());
  if (rank < facts.memory_peak_bytes.size()) {
    report.set_memory_peak_bytes(facts.memory_peak_bytes[rank]);
  }
  report.set_final(facts.final);
  return report;
}

void AddDataSources(const DataSet& data, std::int64_t position,
                    google::protobuf::RepeatedPtrField<v1::DataSourceUse>* out) {
  const std::vector<PartUse> uses = UseBefore(data, position);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    v1::DataSourceUse& use = *out->Add();
    use.set_name(data.parts[i].name);
    use.set_sequences(uses[i].sequences);
    use.set_tokens(uses[i].tokens);
    use.set_passes(uses[i].passes);
  }
}

std::string DataSourcesText(const DataSet& data, std::int64_t position) {
  const std::vector<PartUse> uses = UseBefore(data, position);
  std::string text;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%s %d tokens (%.2f passes)", i == 0 ? "" : ", ",
                          data.parts[i].name, uses[i].tokens, uses[i].passes);
  }
  return text;
}

v1::CollectiveDump MakeCollectiveDump(const FlightRecorder& recorder) {
  v1::CollectiveDump dump;
  for (const CollectiveEntry& entry : recorder.Snapshot()) {
    v1::CollectiveRecord& record = *dump.add_records();
    record.set_sequence(entry.sequence);
    record.set_operation(entry.operation);
    record.set_unit(entry.unit);
    record.set_bytes(entry.bytes);
    record.set_dtype(entry.dtype);
    record.set_state(entry.phase == CollectivePhase::kEnqueued   ? v1::COLLECTIVE_STATE_ENQUEUED
                     : entry.phase == CollectivePhase::kStarted  ? v1::COLLECTIVE_STATE_STARTED
                     : entry.phase == CollectivePhase::kFinished ? v1::COLLECTIVE_STATE_FINISHED
                                                                 : v1::COLLECTIVE_STATE_FAILED);
    record.set_enqueued_seconds(absl::ToDoubleSeconds(entry.enqueued.since_start()));
    record.set_started_seconds(absl::ToDoubleSeconds(entry.started.since_start()));
    record.set_finished_seconds(absl::ToDoubleSeconds(entry.finished.since_start()));
    record.set_communicator(entry.communicator);
  }
  return dump;
}

std::string FormatLoss(double loss) {
  return std::isnan(loss) ? "nan" : absl::StrFormat("%.4f", loss);
}

std::string TableHeader() { return "Step | Loss | Peak memory per rank"; }

std::string TableRow(std::int64_t step, double loss, std::int64_t memory_peak_bytes) {
  return absl::StrFormat("%d | %s | %s", step, FormatLoss(loss), Bytes(memory_peak_bytes));
}

bool IsPrinted(std::int64_t step, std::int64_t total_steps) {
  const std::int64_t every = std::max<std::int64_t>(1, total_steps / kMaxRows);
  return step == 1 || step == total_steps || step % every == 0;
}

}  // namespace fsdp
