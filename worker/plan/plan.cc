#include "worker/plan/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/plan/plan_advice.h"
#include "worker/plan/plan_internal.h"

namespace fsdp {
namespace internal {

namespace {

// cuDNN's backward accumulates the query gradient in f32 beside the row sums; our own, which
// documents need, has the row sums alone.
ScratchSizes EstimateCuda(const PlanInput& input, std::int64_t tokens, std::int64_t chunk_tokens,
                          std::int64_t largest_shard) {
  constexpr std::int64_t kMultiprocessors = 132;
  const ModelConfig& model = input.model;
  const std::int64_t gradient = input.reset_attention ? 0 : model.q_dim();
  ScratchSizes sizes;
  sizes.attention_backward_bytes = tokens * (model.num_heads + gradient) * 4;
  sizes.norm_backward_bytes = 2 * kMultiprocessors * model.dim * 4;
  // Partial sums of two weights' gradients, of four blocks a multiprocessor.
  if (model.qk_norm) sizes.qk_norm_backward_bytes = 2 * 4 * kMultiprocessors * model.head_dim * 4;
  sizes.column_sum_bytes =
      (4 * kMultiprocessors * 128 + std::max(model.qkv_dim(), model.mlp_in_dim())) * 4;
  sizes.cross_entropy_bytes = chunk_tokens * 8;
  sizes.grad_stats_bytes =
      std::clamp<std::int64_t>((largest_shard + 4095) / 4096, 1, 8 * kMultiprocessors) * 16;
  return sizes;
}

// Two threads with a block of queries' scores each; bf16 widens the operands of a head.
ScratchSizes EstimateCpu(const PlanInput& input, std::int64_t chunk_tokens,
                         std::int64_t largest_shard) {
  constexpr std::int64_t kThreads = 2;
  const std::int64_t rows =
      std::clamp<std::int64_t>((64 * 2048) / input.sequence_length / 16 * 16, 16, 64);
  const std::int64_t block = rows * input.model.head_dim;
  const std::int64_t head = input.sequence_length * input.model.head_dim;
  const std::int64_t scores = rows * input.sequence_length;
  const bool widen = input.parameter_dtype == DType::kBf16;
  ScratchSizes sizes;
  sizes.attention_forward_bytes =
      kThreads * 4 * (scores + rows + block + (widen ? 2 * head + block : 0));
  sizes.attention_backward_bytes =
      sizes.attention_forward_bytes + kThreads * 4 * (scores + (widen ? 2 * (head + block) : 0));
  if (input.model.qk_norm) sizes.qk_norm_backward_bytes = input.model.head_dim * 8;
  sizes.cross_entropy_bytes = chunk_tokens * 8;
  sizes.grad_stats_bytes = (largest_shard + 65535) / 65536 * 16;
  return sizes;
}

}  // namespace

ScratchSizes EstimateScratch(const Plan& plan) {
  std::int64_t largest_shard = 0;
  for (const UnitPlan& unit : plan.units) {
    largest_shard = std::max(largest_shard, unit.layout.shard_elements);
  }
  if (plan.input.device == DeviceKind::kCpu) {
    return EstimateCpu(plan.input, plan.head.chunk_tokens, largest_shard);
  }
  return EstimateCuda(plan.input, plan.micro_batch_tokens, plan.head.chunk_tokens, largest_shard);
}

}  // namespace internal

namespace {

using internal::AddBuffers;
using internal::AddMemoryRows;
using internal::AddSchedule;
using internal::PlaceBuffers;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Of CUDA's context and libraries, measured on an H200 with CUDA 13.0.
constexpr std::int64_t kCudaContextBytes = 640 * kMiB;

// NCCL 2.28 on GPUs with NVLink: channels of a ring, and what a rank's two connections of a channel
// take (src/transport/p2p.cc): 512 KiB for LL, 4.6875 MiB for LL128, 4 MiB for Simple and the
// flags, in pages of 2 MiB, to receive; one page to send.
constexpr std::int64_t kNcclChannels = 24;
constexpr std::int64_t kNcclChannelBytes = (10 + 2) * kMiB;
// Code and local memory of its kernels, and what else does not grow with the channels: measured.
constexpr std::int64_t kNcclFixedBytes = 760 * kMiB;

std::string Bytes(std::int64_t bytes) {
  if (bytes >= 1024 * kMiB) return absl::StrFormat("%.2f GiB", bytes / (1024.0 * kMiB));
  return absl::StrFormat("%.1f MiB", bytes / static_cast<double>(kMiB));
}

absl::Status Invalid(const char* field, std::int64_t value, const char* remedy) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " ", remedy));
}

absl::Status CheckDTypes(const PlanInput& input) {
  const DType p = input.parameter_dtype;
  if (p != DType::kF32 && p != DType::kBf16 && p != DType::kF64) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.precision.parameters: ", NameOf(p), " is none of fp32, bf16"));
  }
  if (input.reduce_dtype != DType::kF32 && input.reduce_dtype != DType::kBf16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.precision.reduce: ", NameOf(input.reduce_dtype), " is none of fp32, bf16"));
  }
  if (p == DType::kF32 && input.reduce_dtype == DType::kBf16) {
    return absl::InvalidArgumentError(
        "spec.precision.reduce: bf16 needs bf16 parameters: use fp32, or parameters: bf16");
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const PlanInput& input) {
  RETURN_IF_ERROR(ValidateModel(input.model));
  RETURN_IF_ERROR(CheckDTypes(input));
  if (input.world_size < 1 || input.world_size > kMaxWorldSize) {
    return Invalid("world size", input.world_size,
                   absl::StrCat("is outside 1..", kMaxWorldSize).c_str());
  }
  if (input.sequence_length < 1 || input.sequence_length > 1048576) {
    return Invalid("spec.data.sequenceLength", input.sequence_length, "is outside 1..1048576");
  }
  const std::int64_t positions = input.model.max_positions;
  if (positions > 0 && input.sequence_length > positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.data.sequenceLength: ", input.sequence_length, " is longer than the model's ",
        positions, " positions: shorten it or raise spec.model.maxPositions"));
  }
  const std::int64_t window = input.model.sliding_window;
  if (window > 0 && input.sequence_length > window) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.data.sequenceLength: ", input.sequence_length, " is longer than the model's sliding ",
        "window of ", window, ", which attention does not have: shorten it to ", window));
  }
  if (input.reset_attention && !input.model.causal) {
    return absl::InvalidArgumentError(
        "spec.data.resetAttention: true needs a causal model: remove it, or set "
        "spec.model.mask: causal");
  }
  if (input.reset_positions && !input.reset_attention) {
    return absl::InvalidArgumentError(
        "spec.data.resetPositions: true needs spec.data.resetAttention: true: give both");
  }
  if (input.global_batch < 1 || input.global_batch > (std::int64_t{1} << 32)) {
    return Invalid("spec.train.globalBatch", input.global_batch, "is outside 1..4294967296");
  }
  if (input.micro_batch < 0) {
    return Invalid("spec.train.microBatch", input.micro_batch, "is negative: use 0 or more");
  }
  if (input.prefetch < 0 || input.prefetch > 1) {
    return Invalid("spec.sharding.prefetch", input.prefetch, "is neither 0 nor 1");
  }
  if (input.num_communicators < 1 || input.num_communicators > 2) {
    return Invalid("spec.sharding.communicators", input.num_communicators, "is neither 1 nor 2");
  }
  return absl::OkStatus();
}

void AddUnits(Plan& plan) {
  std::vector<UnitSpec> specs = UnitsOf(plan.input.model);
  for (UnitSpec& spec : specs) {
    UnitPlan unit;
    // Blocks are alike: one layout serves them all.
    const bool as_before = plan.units.size() > 1 && spec.name != "head";
    unit.layout =
        as_before ? plan.units.back().layout : MakeShardLayout(spec, plan.input.world_size);
    unit.spec = std::move(spec);
    unit.shard_offset = plan.shard_elements;
    plan.shard_elements += unit.layout.shard_elements;
    plan.parameters += unit.layout.used_elements;
    plan.units.push_back(std::move(unit));
  }
}

std::int64_t LogitsRowBytes(const PlanInput& input) {
  return input.model.vocab_size * static_cast<std::int64_t>(SizeOf(input.parameter_dtype));
}

// The head's weight gradient is added up once a chunk, so few chunks are fast; one of half of all
// logits is no more than the activations beside it. Measured: docs/benchmarks.md, "Logits at a
// time".
std::int64_t DefaultLogitsChunkBytes(const Plan& plan) {
  if (plan.input.device != DeviceKind::kCuda) return 32 * kMiB;
  const std::int64_t half = plan.micro_batch_tokens * LogitsRowBytes(plan.input) / 2;
  return std::clamp<std::int64_t>(half, 1024 * kMiB, 4096 * kMiB);
}

std::int64_t ChunkTokens(const Plan& plan) {
  const PlanInput& input = plan.input;
  const std::int64_t row = LogitsRowBytes(input);
  const std::int64_t tokens = plan.micro_batch_tokens;
  std::int64_t limit = std::max<std::int64_t>(1, input.logits_chunk_bytes / row);
  if (limit >= tokens) return tokens;
  // Whole tiles of rows where there are any, in chunks of nearly equal size.
  const std::int64_t tile = limit >= 16 ? 16 : 1;
  limit = limit / tile * tile;
  const std::int64_t chunks = (tokens + limit - 1) / limit;
  const std::int64_t chunk = (tokens + chunks - 1) / chunks;
  return (chunk + tile - 1) / tile * tile;
}

void AddWarnings(Plan& plan) {
  const PlanInput& input = plan.input;
  plan.warnings = input.model.warnings;
  if (input.global_batch < input.world_size) {
    plan.warnings.push_back(absl::StrFormat(
        "%d of %d ranks get no sequence of a global batch of %d: they only hold shards",
        input.world_size - input.global_batch, input.world_size, input.global_batch));
  }
  std::int64_t padding = 0;
  for (const UnitPlan& unit : plan.units) padding += unit.layout.padding_elements();
  if (padding * 20 > plan.parameters) {
    plan.warnings.push_back(absl::StrFormat(
        "shards carry %.0f %% of padding: the model's sizes share few factors with %d ranks",
        100.0 * static_cast<double>(padding) / static_cast<double>(plan.parameters),
        input.world_size));
  }
}

// Everything that does not depend on the recompute policy.
absl::StatusOr<Plan> StartPlan(const PlanInput& input) {
  RETURN_IF_ERROR(CheckInput(input));
  Plan plan;
  plan.input = input;
  const bool cuda = input.device == DeviceKind::kCuda;
  if (!input.context_bytes) plan.input.context_bytes = cuda ? kCudaContextBytes : 0;
  if (!input.nccl_bytes) {
    plan.input.nccl_bytes = cuda ? NcclBytes(input.world_size, input.num_communicators) : 0;
  }
  plan.split = BatchSplit(input.global_batch, input.world_size, input.micro_batch);
  plan.micro_batch_tokens = plan.split.max_micro_batch() * input.sequence_length;
  if (input.logits_chunk_bytes <= 0) plan.input.logits_chunk_bytes = DefaultLogitsChunkBytes(plan);
  AddUnits(plan);
  plan.head.chunk_tokens = ChunkTokens(plan);
  if (!input.scratch) {
    plan.input.scratch = internal::EstimateScratch(plan);
  }
  AddWarnings(plan);
  plan.tokens_per_step = input.global_batch * input.sequence_length;
  plan.model_flops_per_step = static_cast<double>(plan.tokens_per_step) *
                              ModelFlopsPerToken(input.model, input.sequence_length);
  return plan;
}

// What the policy does to the blocks that it is for.
KeepPolicy KeepOf(v1::RecomputePolicy policy) {
  switch (policy) {
    case v1::RECOMPUTE_POLICY_KEEP:
      return KeepPolicy::kOutputs;
    case v1::RECOMPUTE_POLICY_SELECTIVE:
      return KeepPolicy::kNoMlp;
    case v1::RECOMPUTE_POLICY_FULL:
      return KeepPolicy::kInputOnly;
    default:
      return KeepPolicy::kAll;
  }
}

// The policy in the first `num_blocks` blocks; the others keep all but outputs.
Plan FinishWith(const Plan& start, v1::RecomputePolicy policy, int num_blocks) {
  Plan plan = start;
  plan.input.recompute = policy;
  (policy == v1::RECOMPUTE_POLICY_KEEP ? plan.num_kept_blocks : plan.num_recomputed_blocks) =
      num_blocks;
  std::vector<KeepPolicy> keep(static_cast<std::size_t>(plan.input.model.num_layers),
                               KeepPolicy::kAll);
  std::fill_n(keep.begin(), num_blocks, KeepOf(policy));
  AddBuffers(plan, keep);
  PlaceBuffers(plan);
  AddMemoryRows(plan);
  AddSchedule(plan);
  return plan;
}

bool Fits(const Plan& plan) {
  return plan.input.device_memory_bytes <= 0 || plan.total_bytes <= plan.input.device_memory_bytes;
}

// The fewest blocks whose MLP is redone so that it fits; all of them when none does or the memory
// is unknown.
Plan Selective(const Plan& start) {
  const int layers = start.input.model.num_layers;
  Plan all = FinishWith(start, v1::RECOMPUTE_POLICY_SELECTIVE, layers);
  if (start.input.device_memory_bytes <= 0 || !Fits(all)) return all;
  int fits = layers;
  for (int low = 1; low < fits;) {
    const int middle = (low + fits) / 2;
    Plan candidate = FinishWith(start, v1::RECOMPUTE_POLICY_SELECTIVE, middle);
    if (Fits(candidate)) {
      fits = middle;
      all = std::move(candidate);
    } else {
      low = middle + 1;
    }
  }
  return all;
}

// Outputs kept in as many blocks as fit; all of them when the memory is unknown.
Plan Keep(const Plan& start) {
  Plan best = FinishWith(start, v1::RECOMPUTE_POLICY_KEEP, start.input.model.num_layers);
  if (Fits(best)) return best;
  int fits = 0;
  int above = start.input.model.num_layers;
  best = FinishWith(start, v1::RECOMPUTE_POLICY_KEEP, 0);
  while (above - fits > 1) {
    const int middle = (fits + above) / 2;
    Plan candidate = FinishWith(start, v1::RECOMPUTE_POLICY_KEEP, middle);
    if (Fits(candidate)) {
      fits = middle;
      best = std::move(candidate);
    } else {
      above = middle;
    }
  }
  return best;
}

// The fastest that fits. On the CPU the outputs' memory is worth more than the passes saved; with
// unknown memory as well.
bool AutoKeeps(const PlanInput& input) {
  return input.device == DeviceKind::kCuda && input.device_memory_bytes > 0;
}

absl::Status DoesNotFit(const Plan& plan) {
  std::vector<MemoryRow> rows = plan.memory;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const MemoryRow& a, const MemoryRow& b) { return a.bytes > b.bytes; });
  std::string largest;
  for (std::size_t i = 0; i < rows.size() && i < 3; ++i) {
    absl::StrAppend(&largest, i == 0 ? "" : ", ", rows[i].kind, " ", Bytes(rows[i].bytes));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the model needs ", Bytes(plan.total_bytes), " per rank, the device has ",
                   Bytes(plan.input.device_memory_bytes), " (largest: ", largest, ")"));
}

}  // namespace

std::int64_t NcclBytes(int world_size, int num_communicators) {
  if (world_size == 1) return 0;
  return kNcclFixedBytes + num_communicators * kNcclChannels * kNcclChannelBytes;
}

const char* NameOf(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kMaster:
      return "master weights";
    case MemoryKind::kMoments:
      return "moments";
    case MemoryKind::kGradients:
      return "gradients";
    case MemoryKind::kComputeWeights:
      return "compute weights";
    case MemoryKind::kUnitBuffers:
      return "unit buffers";
    case MemoryKind::kActivations:
      return "activations";
    case MemoryKind::kLogits:
      return "logits";
    case MemoryKind::kWorkspace:
      return "workspace";
    case MemoryKind::kInputs:
      return "inputs";
  }
  return "unknown";
}

absl::StatusOr<Plan> internal::TryPlan(const PlanInput& input) {
  ASSIGN_OR_RETURN(const Plan start, StartPlan(input));
  const int layers = input.model.num_layers;
  switch (input.recompute) {
    case v1::RECOMPUTE_POLICY_NONE: {
      Plan plan = FinishWith(start, v1::RECOMPUTE_POLICY_NONE, 0);
      if (!Fits(plan)) return DoesNotFit(plan);
      return plan;
    }
    case v1::RECOMPUTE_POLICY_SELECTIVE: {
      Plan plan = Selective(start);
      if (!Fits(plan)) return DoesNotFit(plan);
      return plan;
    }
    case v1::RECOMPUTE_POLICY_KEEP: {
      Plan plan = Keep(start);
      if (!Fits(plan)) return DoesNotFit(plan);
      return plan;
    }
    case v1::RECOMPUTE_POLICY_FULL:
      break;
    default: {
      if (AutoKeeps(input)) {
        Plan keep = Keep(start);
        if (keep.num_kept_blocks > 0) return keep;
      }
      Plan none = FinishWith(start, v1::RECOMPUTE_POLICY_NONE, 0);
      if (Fits(none)) return none;
      Plan selective = Selective(start);
      if (Fits(selective)) return selective;
    }
  }
  Plan full = FinishWith(start, v1::RECOMPUTE_POLICY_FULL, layers);
  if (!Fits(full)) return DoesNotFit(full);
  return full;
}

absl::StatusOr<Plan> BuildPlan(const PlanInput& input) {
  absl::StatusOr<Plan> plan = internal::TryPlan(input);
  if (!absl::IsResourceExhausted(plan.status())) return plan;
  return absl::ResourceExhaustedError(
      absl::StrCat(plan.status().message(), "; remedies: ", MemoryRemedies(input)));
}

}  // namespace fsdp
