// Between the job's spec, the plan and the plan's message.

#include <algorithm>
#include <cmath>

#include "proto/support/status.h"
#include "worker/plan/plan.h"
#include "worker/plan/plan_cost.h"
#include "worker/plan/plan_internal.h"

namespace fsdp {
namespace {

v1::PrecisionDType ToProto(DType dtype) {
  return dtype == DType::kBf16 ? v1::PRECISION_D_TYPE_BF16 : v1::PRECISION_D_TYPE_FP32;
}

v1::MemoryRow ToProto(const MemoryRow& row) {
  v1::MemoryRow out;
  out.set_kind(row.kind);
  out.set_bytes(row.bytes);
  out.set_detail(row.detail);
  return out;
}

// Rates are known for bf16 on one GPU (StepRates); 0: no prediction.
double PredictedSeconds(const Plan& plan) {
  const bool known =
      plan.input.device == DeviceKind::kCuda && plan.input.parameter_dtype == DType::kBf16;
  return known ? StepSeconds(plan, H200StepRates(plan.input.model.head_dim)) : 0;
}

// The plan that a job with this policy would get; what does not fit, as it would be with more
// memory.
absl::StatusOr<Plan> PlanUnder(v1::RecomputePolicy policy, const Plan& plan) {
  if (policy == plan.input.recompute) return plan;
  PlanInput input = plan.input;
  input.recompute = policy;
  absl::StatusOr<Plan> other = internal::TryPlan(input);
  if (!absl::IsResourceExhausted(other.status())) return other;
  input.device_memory_bytes = 0;
  return BuildPlan(input);
}

void AddPolicies(const Plan& plan, v1::Plan& out) {
  const std::int64_t memory_bytes = plan.input.device_memory_bytes;
  for (const v1::RecomputePolicy policy :
       {v1::RECOMPUTE_POLICY_KEEP, v1::RECOMPUTE_POLICY_NONE, v1::RECOMPUTE_POLICY_SELECTIVE,
        v1::RECOMPUTE_POLICY_FULL}) {
    const absl::StatusOr<Plan> other = PlanUnder(policy, plan);
    if (!other.ok()) continue;
    v1::PolicyEstimate* estimate = out.add_policies();
    estimate->set_recompute(policy);
    estimate->set_total_bytes(other->total_bytes);
    estimate->set_predicted_step_seconds(PredictedSeconds(*other));
    estimate->set_fits(memory_bytes <= 0 || other->total_bytes <= memory_bytes);
    estimate->set_recomputed_blocks(other->num_recomputed_blocks);
    estimate->set_kept_blocks(other->num_kept_blocks);
  }
}

DType DTypeOf(v1::PrecisionDType dtype, DType fallback) {
  switch (dtype) {
    case v1::PRECISION_D_TYPE_FP32:
      return DType::kF32;
    case v1::PRECISION_D_TYPE_BF16:
      return DType::kBf16;
    default:
      return fallback;
  }
}

}  // namespace

int WorldSizeOf(const v1::TrainingJob& job) {
  const v1::ResourceSpec& resources = job.spec().resources();
  const int nodes = resources.has_nodes() ? resources.nodes() : 1;
  const int devices = resources.has_devices_per_node() ? resources.devices_per_node() : 1;
  return nodes * devices;
}

std::int64_t GlobalBatchOf(const v1::TrainingJob& job) {
  const v1::TrainSpec& train = job.spec().train();
  if (train.global_batch() > 0 || train.global_batch_tokens() <= 0) return train.global_batch();
  const std::int64_t length = std::max<std::int64_t>(1, job.spec().data().sequence_length());
  return (train.global_batch_tokens() + length - 1) / length;
}

absl::StatusOr<PlanInput> PlanInputFromJob(const v1::TrainingJob& job, int world_size,
                                           std::int64_t device_memory_bytes) {
  const v1::JobSpec& spec = job.spec();
  PlanInput input;
  ASSIGN_OR_RETURN(input.model, ResolveModel(spec.model()));
  input.world_size = world_size;
  input.sequence_length = spec.data().sequence_length();
  input.global_batch = GlobalBatchOf(job);
  input.micro_batch = spec.train().micro_batch();
  input.parameter_dtype = DTypeOf(spec.precision().parameters(), DType::kBf16);
  input.reduce_dtype = DTypeOf(spec.precision().reduce(), DType::kF32);
  input.recompute = spec.train().recompute();
  input.reset_attention = spec.data().reset_attention();
  input.reset_positions = spec.data().reset_positions();
  const v1::ShardingSpec& sharding = spec.sharding();
  if (sharding.has_reshard_after_forward()) {
    input.reshard_after_forward = sharding.reshard_after_forward();
  }
  if (sharding.has_prefetch()) input.prefetch = sharding.prefetch();
  if (sharding.has_communicators()) input.num_communicators = sharding.communicators();
  input.async_checkpoint = !spec.checkpoint().dir().empty() && spec.checkpoint().async();
  input.device =
      spec.resources().device() == v1::DEVICE_TYPE_CUDA ? DeviceKind::kCuda : DeviceKind::kCpu;
  input.device_memory_bytes = device_memory_bytes;
  return input;
}

absl::StatusOr<Plan> PlanFromJob(const v1::TrainingJob& job, int world_size,
                                 std::int64_t device_memory_bytes) {
  ASSIGN_OR_RETURN(const PlanInput input, PlanInputFromJob(job, world_size, device_memory_bytes));
  return BuildPlan(input);
}

v1::Plan ToProto(const Plan& plan) {
  v1::Plan out;
  out.set_world_size(plan.input.world_size);
  out.set_parameters(plan.parameters);
  out.set_total_bytes(plan.total_bytes);
  for (const MemoryRow& row : plan.memory) *out.add_memory() = ToProto(row);
  for (const MemoryRow& row : plan.host_memory) *out.add_host_memory() = ToProto(row);
  for (const UnitPlan& unit : plan.units) {
    v1::PlanUnit* to = out.add_units();
    to->set_name(unit.spec.name);
    to->set_parameters(unit.layout.used_elements);
    to->set_shard_elements(unit.layout.shard_elements);
    to->set_padding_elements(unit.layout.padding_elements());
  }
  out.set_recompute(plan.input.recompute);
  out.set_recomputed_blocks(plan.num_recomputed_blocks);
  out.set_kept_blocks(plan.num_kept_blocks);
  out.set_blocks(plan.input.model.num_layers);
  out.set_schedule_hash(plan.schedule_hash);
  out.set_model_flops_per_step(plan.model_flops_per_step);
  out.set_predicted_step_seconds(PredictedSeconds(plan));
  out.set_tokens_per_step(plan.tokens_per_step);
  out.set_micro_batches_per_step(plan.split.num_micro_batches());
  for (const std::string& line : plan.schedule) out.add_schedule(line);
  for (const std::string& warning : plan.warnings) out.add_warnings(warning);
  out.set_parameter_dtype(ToProto(plan.input.parameter_dtype));
  out.set_reduce_dtype(ToProto(plan.input.reduce_dtype));
  AddPolicies(plan, out);
  for (int rank = 0; rank < plan.input.world_size; ++rank) {
    out.add_total_bytes_by_rank(plan.total_bytes);
  }
  return out;
}

}  // namespace fsdp
