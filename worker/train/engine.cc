#include "worker/train/engine.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/model/rope_table.h"
#include "worker/optim/initializer.h"
#include "worker/train/engine_impl.h"

namespace fsdp {
namespace {

absl::Status CheckFit(const Plan& plan, const Device& device, const Communicator* gather,
                      const Communicator* scatter) {
  const int world = plan.input.world_size;
  if (plan.input.device != device.kind()) {
    return absl::InvalidArgumentError("the plan is for another kind of device");
  }
  if (world == 1) {
    if (gather == nullptr && scatter == nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError("world size 1 takes no communicators");
  }
  if (gather == nullptr || scatter == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("world size ", world, " needs a gather and a scatter communicator"));
  }
  if (gather->world_size() != world || scatter->world_size() != world) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan is for ", world, " ranks, the communicators have ", gather->world_size()));
  }
  if (gather->rank() != scatter->rank()) {
    return absl::InvalidArgumentError("gather and scatter communicators differ in rank");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> Engine::PlanFor(PlanInput input, Device& device) {
  input.device = device.kind();
  // A first plan gives the shapes that scratch depends on.
  PlanInput shapes = input;
  shapes.recompute = v1::RECOMPUTE_POLICY_NONE;
  shapes.device_memory_bytes = 0;
  ASSIGN_OR_RETURN(const Plan first, BuildPlan(shapes));
  const ModelConfig& model = input.model;
  const AttentionShape shape = AttentionShapeOf(input, first.split.max_micro_batch());
  const Ops& ops = device.ops();
  const DType dtype = input.parameter_dtype;
  const std::int64_t tokens = first.micro_batch_tokens;
  const auto size = [](std::size_t bytes) { return static_cast<std::int64_t>(bytes); };
  ScratchSizes scratch;
  scratch.attention_forward_bytes = size(ops.AttentionScratchBytes(shape, dtype, false));
  scratch.attention_backward_bytes = size(ops.AttentionScratchBytes(shape, dtype, true));
  scratch.norm_backward_bytes = size(ops.NormBackwardScratchBytes(tokens, model.dim));
  if (model.qk_norm) {
    scratch.qk_norm_backward_bytes = size(ops.QkNormBackwardScratchBytes(tokens, model.head_dim));
  }
  for (const std::int64_t columns : {model.dim, model.qkv_dim(), model.mlp_in_dim()}) {
    scratch.column_sum_bytes =
        std::max(scratch.column_sum_bytes, size(ops.ColumnSumScratchBytes(tokens, columns)));
  }
  scratch.cross_entropy_bytes =
      size(ops.CrossEntropyScratchBytes(first.head.chunk_tokens, model.vocab_size));
  for (const UnitPlan& unit : first.units) {
    scratch.grad_stats_bytes = std::max(
        scratch.grad_stats_bytes, size(ops.GradStatsScratchBytes(unit.layout.shard_elements)));
  }
  input.scratch = scratch;
  return BuildPlan(input);
}

absl::StatusOr<AttentionKernels> Engine::AttentionFor(const Plan& plan, Device& device) {
  const AttentionShape shape = AttentionShapeOf(plan.input, plan.split.max_micro_batch());
  return device.ops().ChosenAttention(shape, plan.input.parameter_dtype);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const Plan& plan,
                                                       const EngineOptions& options, Device& device,
                                                       Communicator* gather,
                                                       Communicator* scatter) {
  RETURN_IF_ERROR(CheckFit(plan, device, gather, scatter));
  const auto arena_bytes = static_cast<std::size_t>(plan.arena_bytes);
  const bool shareable =
      gather != nullptr && (gather->wants_registration() || scatter->wants_registration());
  ASSIGN_OR_RETURN(
      auto arena, shareable ? device.AllocateShareable(arena_bytes) : device.Allocate(arena_bytes));
  ASSIGN_OR_RETURN(auto host,
                   device.AllocateHost(static_cast<std::size_t>(EngineImpl::HostBytes(plan))));
  std::unique_ptr<DeviceBuffer> snapshot;
  if (plan.snapshot_bytes > 0) {
    ASSIGN_OR_RETURN(snapshot, device.AllocateHost(static_cast<std::size_t>(plan.snapshot_bytes)));
  }
  auto engine =
      std::make_unique<EngineImpl>(plan, options, device, gather, scatter, std::move(arena),
                                   std::move(host), std::move(snapshot));
  RETURN_IF_ERROR(engine->Start());
  return engine;
}

EngineImpl::EngineImpl(const Plan& plan, const EngineOptions& options, Device& device,
                       Communicator* gather, Communicator* scatter,
                       std::unique_ptr<DeviceBuffer> arena, std::unique_ptr<DeviceBuffer> host,
                       std::unique_ptr<DeviceBuffer> snapshot)
    : plan_(plan),
      options_(options),
      device_(device),
      gather_(gather),
      scatter_(scatter),
      rank_(gather == nullptr ? 0 : gather->rank()),
      arena_memory_(std::move(arena)),
      host_memory_(std::move(host)),
      snapshot_memory_(std::move(snapshot)),
      arena_(plan_, arena_memory_->data()),
      recorder_(/*time_launches=*/device.kind() == DeviceKind::kCpu),
      model_(arena_, device, recorder_),
      exchange_(arena_, device, recorder_, gather, scatter, rank_),
      graphs_(device, recorder_, options.graphs && !options.time_families),
      timelines_{StepTimeline(device), StepTimeline(device)},
      launch_timers_{EventLaunchTimer(device), EventLaunchTimer(device)},
      evaluation_timeline_(device) {
  for (const UnitPlan& unit : plan_.units) {
    segments_.push_back(DecaySegments(unit, rank_, options.optimizer));
  }
}

EngineImpl::~EngineImpl() {
  // After a failure a collective may still wait for peers that will never come.
  for (Communicator* communicator : {gather_, scatter_}) {
    if (communicator != nullptr && !dead_.ok()) {
      communicator->Abort("the engine failed: " + std::string(dead_.message()));
    }
  }
  // Nothing may run on the arena after it is gone; errors have been reported by the calls.
  for (Stream* stream :
       {&device_.gather(), &device_.scatter(), &device_.copy(), &device_.compute()}) {
    device_.Synchronize(*stream).IgnoreError();
  }
  for (Communicator* communicator : communicators()) communicator->Deregister(*arena_memory_);
}

std::vector<Communicator*> EngineImpl::communicators() const {
  if (gather_ == nullptr) return {};
  if (gather_ == scatter_) return {gather_};
  return {gather_, scatter_};
}

// A communicator that died has let its stream go on: what the device then computed is worthless.
absl::Status EngineImpl::CheckPeers() const {
  for (const Communicator* communicator : {gather_, scatter_}) {
    if (communicator != nullptr) RETURN_IF_ERROR(communicator->Health());
  }
  return absl::OkStatus();
}

std::int64_t EngineImpl::HostBytes(const Plan& plan) {
  const std::int64_t parts =
      2 + (plan.document_begins != kNoBuffer ? 1 : 0) + (plan.position_ids != kNoBuffer ? 1 : 0);
  return 2 * ShareTokens(plan) * parts * static_cast<std::int64_t>(sizeof(std::int32_t)) +
         2 * static_cast<std::int64_t>(sizeof(HostResult));
}

EngineImpl::HostResult* EngineImpl::host_result(std::size_t slot) const {
  return static_cast<HostResult*>(host_memory_->data()) + slot;
}

absl::Status EngineImpl::Start() {
  if (plan_.input.model.position == PositionKind::kRope) RETURN_IF_ERROR(UploadRopeTables());
  RETURN_IF_ERROR(device_.Synchronize(device_.compute()));
  // The arena is one buffer, laid out alike on every rank: one registration serves all gathers and
  // scatters.
  for (Communicator* communicator : communicators()) {
    RETURN_IF_ERROR(communicator->Register(*arena_memory_));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::Upload(const Vector& to, const std::vector<double>& values) {
  if (to.dtype == DType::kF64) {
    RETURN_IF_ERROR(device_.Copy(to.data, values.data(), static_cast<std::size_t>(to.size_bytes()),
                                 device_.compute()));
    return device_.Synchronize(device_.compute());
  }
  const std::vector<float> narrow(values.begin(), values.end());
  RETURN_IF_ERROR(device_.Copy(to.data, narrow.data(), static_cast<std::size_t>(to.size_bytes()),
                               device_.compute()));
  return device_.Synchronize(device_.compute());
}

absl::Status EngineImpl::UploadRopeTables() {
  const RopeTable table = MakeRopeTable(plan_.input.model, plan_.input.sequence_length);
  const auto size = static_cast<std::int64_t>(table.cos.size());
  RETURN_IF_ERROR(Upload(arena_.Stats(plan_.rope_cos, size), table.cos));
  return Upload(arena_.Stats(plan_.rope_sin, size), table.sin);
}

std::vector<ShardTensor> EngineImpl::Tensors(bool gradients) const {
  std::vector<ShardTensor> tensors;
  const DType dtype = plan_.master_dtype();
  for (const UnitPlan& unit : plan_.units) {
    for (std::size_t i = 0; i < unit.spec.parameters.size(); ++i) {
      const ParameterSpec& parameter = unit.spec.parameters[i];
      const RowRange rows = unit.layout.RowsOf(rank_, static_cast<int>(i), parameter);
      const std::int64_t begin = unit.shard_offset + rows.shard_offset;
      const std::int64_t size = (rows.end - rows.begin) * parameter.row_elements();
      ShardTensor tensor{parameter.name, parameter.shape, rows.begin, rows.end, {}, {}, {}};
      tensor.master = gradients || plan_.split_master()
                          ? arena_.Elements(unit.gradient, dtype, rows.shard_offset, size)
                          : arena_.Elements(plan_.master, dtype, begin, size);
      if (!gradients) {
        tensor.m = arena_.Elements(plan_.moment1, dtype, begin, size);
        tensor.v = arena_.Elements(plan_.moment2, dtype, begin, size);
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

Vector EngineImpl::Slice(BufferId id, DType dtype, const UnitPlan& unit) const {
  return arena_.Elements(id, dtype, unit.shard_offset, unit.layout.shard_elements);
}

absl::StatusOr<std::vector<ShardTensor>> EngineImpl::OpenWeights() {
  // Its tensors may be written to.
  RETURN_IF_ERROR(FinishSnapshot());
  if (plan_.split_master()) {
    for (std::size_t i = 0; i < plan_.units.size(); ++i) {
      const UnitPlan& unit = plan_.units[i];
      RETURN_IF_ERROR(device_.ops().JoinMaster(
          device_.compute(), Slice(plan_.compute_weights, DType::kBf16, unit),
          Slice(plan_.remainder, DType::kU16, unit), exchange_.GradientShard(static_cast<int>(i))));
    }
    RETURN_IF_ERROR(device_.Synchronize(device_.compute()));
  }
  return Tensors(/*gradients=*/false);
}

std::vector<ShardTensor> EngineImpl::gradient_tensors() { return Tensors(/*gradients=*/true); }

absl::Status EngineImpl::InitializeWeights(std::uint64_t seed) {
  RETURN_IF_ERROR(FinishSnapshot());
  std::size_t index = 0;
  const std::vector<ShardTensor> tensors = Tensors(/*gradients=*/false);
  for (const UnitPlan& unit : plan_.units) {
    for (const ParameterSpec& parameter : unit.spec.parameters) {
      const ShardTensor& tensor = tensors[index++];
      RETURN_IF_ERROR(device_.ops().FillInitial(
          device_.compute(), InitialDrawOf(parameter.init, seed, parameter.name),
          tensor.row_begin * parameter.row_elements(), tensor.master));
    }
  }
  for (const BufferId moment : {plan_.moment1, plan_.moment2}) {
    const std::span<std::byte> bytes = arena_.Bytes(moment);
    RETURN_IF_ERROR(device_.Zero(bytes.data(), bytes.size(), device_.compute()));
  }
  return WeightsChanged();
}

absl::Status EngineImpl::WeightsChanged() {
  exchange_.InvalidateWeights();
  if (plan_.split_master()) {
    for (std::size_t i = 0; i < plan_.units.size(); ++i) {
      const UnitPlan& unit = plan_.units[i];
      RETURN_IF_ERROR(device_.ops().SplitMaster(device_.compute(),
                                                exchange_.GradientShard(static_cast<int>(i)),
                                                Slice(plan_.compute_weights, DType::kBf16, unit),
                                                Slice(plan_.remainder, DType::kU16, unit)));
    }
  }
  return device_.Synchronize(device_.compute());
}

std::vector<MemoryUsage> EngineImpl::memory() const {
  std::array<std::int64_t, kNumMemoryKinds> always{};
  for (const PlannedBuffer& buffer : plan_.buffers) {
    if (buffer.first_tick == kAlways) {
      always[static_cast<std::size_t>(buffer.kind)] += buffer.size_bytes;
    }
  }
  std::vector<MemoryUsage> usage;
  for (int i = 0; i < kNumMemoryKinds; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t peak = plan_.peak_bytes_by_kind[at];
    if (peak > 0) usage.push_back({NameOf(static_cast<MemoryKind>(i)), always[at], peak});
  }
  return usage;
}

}  // namespace fsdp
