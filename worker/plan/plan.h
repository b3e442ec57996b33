#ifndef FSDPCTL_WORKER_PLAN_PLAN_H_
#define FSDPCTL_WORKER_PLAN_PLAN_H_

// Everything that is decided before step 0: units and shards, every buffer's size, lifetime and
// offset in one arena, the operations of a step and their hash. Pure arithmetic without device
// code: the trainer runs it, the coordinator admits by it, the client prints it.
//
// Time in the plan is counted in ticks: the sub-steps of one micro-batch's forward and backward, in
// the order in which the compute stream runs them. Buffers whose ticks do not overlap share memory;
// so activations shrink while gradients grow. The synchronisation that makes this safe across
// streams is: a gather starts after the compute stream reached the tick of its issue, and backward
// of a stage starts after the scatter of the stage two before it has ended.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/plan.pb.h"
#include "worker/device/device.h"
#include "worker/device/dtype.h"
#include "worker/plan/batch_split.h"
#include "worker/plan/model_config.h"
#include "worker/plan/shard_layout.h"

namespace fsdp {

// Work space that the backend's operations ask for, in bytes.
struct ScratchSizes {
  std::int64_t attention_forward_bytes = 0;
  std::int64_t attention_backward_bytes = 0;
  std::int64_t norm_backward_bytes = 0;
  std::int64_t qk_norm_backward_bytes = 0;
  std::int64_t column_sum_bytes = 0;
  std::int64_t cross_entropy_bytes = 0;
  std::int64_t grad_stats_bytes = 0;  // of the scatter stream
};

inline constexpr int kMaxWorldSize = 65536;
// What a rank tells the others at once, beside the collectives of its step (RankExchange).
inline constexpr int kMaxExchangeValues = 8;
// Of Plan::stats: StepStats, UpdateScalars and StepScalars (DeviceScalars in
// worker/train/engine_impl.h).
inline constexpr std::int64_t kStatsBytes = 256;

struct PlanInput {
  ModelConfig model;
  int world_size = 1;
  std::int64_t sequence_length = 0;  // S
  std::int64_t global_batch = 0;     // sequences per step over all ranks
  std::int64_t micro_batch = 0;      // sequences at a time on one rank; 0: the rank's whole share
  // Of gathered weights and activations: kF32, kBf16, or kF64 (tests on the CPU: everything f64).
  DType parameter_dtype = DType::kBf16;
  // What gradients travel in: kF32 or kBf16. They are summed into an f32 shard either way.
  DType reduce_dtype = DType::kF32;
  v1::RecomputePolicy recompute = v1::RECOMPUTE_POLICY_AUTO;
  bool reshard_after_forward = true;
  int prefetch = 1;           // units gathered ahead: 0 or 1
  int num_communicators = 2;  // 1: gathers and scatters share one, in one stream
  DeviceKind device = DeviceKind::kCpu;
  // What one rank may use; 0: unknown, nothing is refused and `auto` recomputes nothing.
  std::int64_t device_memory_bytes = 0;
  // Upper bound of one chunk of logits; 0: 32 MiB on the CPU, on CUDA half of all logits, but 1 to
  // 4 GiB.
  std::int64_t logits_chunk_bytes = 0;
  // Tokens attend within their document only: each micro-batch brings where its documents begin.
  // Needs a causal model.
  bool reset_attention = false;
  // And learned positions count from its beginning; needs reset_attention. Of rotary positions only
  // distances matter, which a document keeps wherever it lies: nothing is done.
  bool reset_positions = false;
  // A copy of weights and moments in pinned host memory, from which checkpoints are written.
  bool async_checkpoint = false;
  // Absent: estimated from the shapes. The engine asks its device.
  std::optional<ScratchSizes> scratch;
  // What the device's runtime and libraries take besides; absent: 0 on the CPU, 640 MiB on CUDA.
  std::optional<std::int64_t> context_bytes;
  // What NCCL takes of the device besides; absent: NcclBytes on CUDA, else 0.
  std::optional<std::int64_t> nccl_bytes;
  // False gives every buffer memory of its own: the reference in tests of the overlay.
  bool overlay = true;
};

enum class MemoryKind : std::uint8_t {
  kMaster,  // f32; beside bf16 weights the 16 bits that they lack
  kMoments,
  kGradients,       // reduced, of the shard
  kComputeWeights,  // bf16 weights of the shard
  kUnitBuffers,     // gathered weights and unreduced gradients
  kActivations,
  kLogits,
  kWorkspace,
  kInputs,  // tokens, targets, tables, scalars
};
inline constexpr int kNumMemoryKinds = 9;
// "master weights", "moments", ...: the names in tables and metrics.
const char* NameOf(MemoryKind kind);

// A run of the arena; 256-byte aligned.
struct PlannedBuffer {
  std::string name;  // "layers.3.qkv"
  MemoryKind kind = MemoryKind::kActivations;
  std::int64_t size_bytes = 0;
  std::int64_t offset_bytes = 0;
  // First and last tick at which it holds something; kAlways: the trainer's whole life.
  int first_tick = 0;
  int last_tick = 0;
};

// Index into Plan::buffers; -1: there is no such buffer.
using BufferId = int;
inline constexpr BufferId kNoBuffer = -1;

// A buffer with a number for each of the shard's elements.
struct FlatArray {
  BufferId id = kNoBuffer;
  DType dtype = DType::kF32;
};

struct UnitPlan {
  UnitSpec spec;
  ShardLayout layout;
  // Where this unit's slice begins in the rank's flat weight, m and v arrays, elements.
  std::int64_t shard_offset = 0;
  // Reduced gradient of the slice in master_dtype(), from the stage's backward to the update; with
  // several micro-batches always. No activation lives then, so they take turns. Between steps it is
  // where the engine lays the masters out in f32 when they are kept split.
  BufferId gradient = kNoBuffer;
};

// What a block keeps from forward to backward.
enum class KeepPolicy : std::uint8_t {
  kOutputs,    // kAll, and what norms and the activation gave: nothing is redone
  kAll,        // nothing but elementwise work is redone
  kNoMlp,      // the MLP's first matmul is redone
  kInputOnly,  // the whole block is redone
};

// What backward reads of a block's forward. T tokens of a micro-batch.
struct BlockTape {
  BufferId norm1_stats = kNoBuffer;  // rstd[T], then mean[T] for LayerNorm
  BufferId qkv = kNoBuffer;          // [T, (Hq+2Hkv)Dh], rotated
  BufferId qk_raw = kNoBuffer;       // [T, (Hq+Hkv)Dh] before their norm
  BufferId qk_rstd = kNoBuffer;      // [Hq+Hkv, T]
  BufferId attn = kNoBuffer;         // [T, Hq Dh]
  BufferId lse = kNoBuffer;          // [B, Hq, S]
  BufferId x2 = kNoBuffer;           // [T, D] residual stream after attention
  BufferId norm2_stats = kNoBuffer;
  BufferId mlp_in = kNoBuffer;  // [T, 2F or F]
};

struct BlockBuffers {
  KeepPolicy keep = KeepPolicy::kAll;
  BufferId x = kNoBuffer;  // [T, D] input of the block, kept until its backward
  // `backward` names the same buffers as `forward` where they are kept, else buffers of its own
  // into which backward redoes the work.
  BlockTape forward, backward;
  BufferId delta = kNoBuffer;  // [T, D] the MLP's output, added by the next stage
  // Work of forward, and of backward where it redoes the block or its MLP.
  struct Work {
    BufferId normed1 = kNoBuffer;   // [T, D]; with normed2 and act kept into backward by kOutputs
    BufferId attn_out = kNoBuffer;  // [T, D]
    BufferId normed2 = kNoBuffer;   // [T, D]
    BufferId act = kNoBuffer;       // [T, F]
    BufferId scratch = kNoBuffer;   // of attention
  } forward_work, backward_work;
  BufferId attention_scratch = kNoBuffer;  // of its backward
  BufferId sum_scratch = kNoBuffer;        // of sums over rows: norm and bias gradients
  // Gradients.
  BufferId d_act = kNoBuffer;      // [T, F]
  BufferId d_mlp_in = kNoBuffer;   // [T, 2F or F]; aliases mlp_in (SwiGLU) or d_act
  BufferId d_normed2 = kNoBuffer;  // [T, D]
  BufferId d_attn = kNoBuffer;     // [T, Hq Dh]
  BufferId d_qkv = kNoBuffer;      // [T, (Hq+2Hkv)Dh]
  BufferId d_normed1 = kNoBuffer;  // [T, D]
  // Where the weight gradients find what forward gave: kept, or written again, by the pass that
  // needs it no more, over d_normed1 and d_normed2, and over d_act (SwiGLU) or mlp_in.
  BufferId normed1 = kNoBuffer;  // [T, D]
  BufferId normed2 = kNoBuffer;  // [T, D]
  BufferId act = kNoBuffer;      // [T, F]
};

struct HeadBuffers {
  BufferId x = kNoBuffer;           // [T, D] input of the head
  BufferId norm_stats = kNoBuffer;  // rstd[T] (and mean[T])
  BufferId normed = kNoBuffer;      // [T, D]; absent without a final norm
  BufferId d_normed = kNoBuffer;    // [T, D]
  BufferId logits = kNoBuffer;      // [chunk, V]
  BufferId scratch = kNoBuffer;
  std::int64_t chunk_tokens = 0;
};

// One position of the walk through the model: embed, the blocks, head.
struct StagePlan {
  std::string name;
  int unit = 0;  // index into Plan::units; with a tied head the first and last stage share one
  // Gathered weights in forward and in backward: the same buffer when they stay resident between;
  // kNoBuffer where the unit's weights are the shard itself (world size 1) or are not needed.
  BufferId forward_weights = kNoBuffer;
  BufferId backward_weights = kNoBuffer;
  // Unreduced gradients of the unit; kNoBuffer at world size 1: they go straight to the shard.
  BufferId gradients = kNoBuffer;
};

struct MemoryRow {
  std::string kind;
  std::int64_t bytes = 0;
  std::string detail;
};

struct Plan {
  PlanInput input;                // with `recompute` resolved and the defaults filled in
  int num_recomputed_blocks = 0;  // the first ones: their MLP (selective) or all of them (full)
  int num_kept_blocks = 0;        // the first ones: with outputs (keep)
  BatchSplit split{1, 1, 0};
  std::int64_t micro_batch_tokens = 0;  // T: the largest of any rank
  std::vector<UnitPlan> units;
  std::vector<StagePlan> stages;     // embed, blocks, head
  std::vector<BlockBuffers> blocks;  // by layer
  HeadBuffers head;
  std::vector<PlannedBuffer> buffers;

  // Of the rank's life: all units' slices one after the other.
  std::int64_t shard_elements = 0;
  BufferId master = kNoBuffer;  // absent in bf16: there it is compute_weights and remainder
  BufferId moment1 = kNoBuffer, moment2 = kNoBuffer;
  BufferId compute_weights = kNoBuffer;  // bf16; absent in f32 and f64
  BufferId remainder = kNoBuffer;        // u16, as Ops::SplitMaster
  // Where a scatter lands before it is added to the gradient, in gradient_dtype; absent when every
  // scatter can write the gradient itself.
  BufferId reduced = kNoBuffer;
  BufferId tokens = kNoBuffer, targets = kNoBuffer;  // int32 of the rank's share of a step
  // int32 of a micro-batch, uploaded for each, so that the same launches serve them all; absent
  // without reset_attention.
  BufferId document_begins = kNoBuffer;
  BufferId position_ids = kNoBuffer;  // likewise; absent without learned positions that are reset
  BufferId rope_cos = kNoBuffer, rope_sin = kNoBuffer;  // [S, Dh/2]
  BufferId d_x = kNoBuffer;                             // [T, D] gradient of the residual stream
  BufferId stats = kNoBuffer;                           // StepStats and UpdateScalars
  BufferId rank_exchange = kNoBuffer;                   // f64[1 + W, kMaxExchangeValues]; W > 1
  BufferId grad_stats_scratch = kNoBuffer;

  std::int64_t arena_bytes = 0;
  // arena + context + NCCL: what a rank takes.
  std::int64_t total_bytes = 0;
  std::vector<MemoryRow> memory;  // sums to total_bytes
  // Of the rank's host, pinned on CUDA; not in total_bytes.
  std::vector<MemoryRow> host_memory;
  std::int64_t snapshot_bytes = 0;  // weights and moments at the time of a save; 0: none
  // Largest number of bytes of each kind at any one tick, by MemoryKind.
  std::array<std::int64_t, kNumMemoryKinds> peak_bytes_by_kind{};
  std::vector<std::string> schedule;
  std::uint64_t schedule_hash = 0;
  std::int64_t parameters = 0;
  std::int64_t tokens_per_step = 0;
  double model_flops_per_step = 0;
  std::vector<std::string> warnings;

  // Master, moments and reduced gradients: f64 in f64 plans, else f32.
  [[nodiscard]] DType master_dtype() const {
    return input.parameter_dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  }
  // The f32 master is kept as bf16 weight and 16-bit remainder, exactly: 16 bytes a parameter with
  // moments and gradient.
  [[nodiscard]] bool split_master() const { return remainder != kNoBuffer; }
  // What a snapshot holds of the shard: weights as they are kept, and moments.
  [[nodiscard]] std::vector<FlatArray> snapshot_arrays() const {
    const FlatArray m{moment1, master_dtype()};
    const FlatArray v{moment2, master_dtype()};
    if (!split_master()) return {{master, master_dtype()}, m, v};
    return {{compute_weights, DType::kBf16}, {remainder, DType::kU16}, m, v};
  }
  // Norm statistics, log-sum-exp and rope tables.
  [[nodiscard]] DType stats_dtype() const { return master_dtype(); }
  // What weight gradients are written in.
  [[nodiscard]] DType gradient_dtype() const {
    if (input.world_size == 1 || input.parameter_dtype == DType::kF64) return master_dtype();
    return input.reduce_dtype;
  }
};

inline constexpr int kAlways = -1;

// What NCCL takes of a rank's device: its kernels once, and for each communicator the buffers of
// its channels (ADR 0011 says where the figures come from). 0 at world size 1.
std::int64_t NcclBytes(int world_size, int num_communicators);

//   INVALID_ARGUMENT    a size, dtype or combination is wrong; names the field
//   RESOURCE_EXHAUSTED  it does not fit: "needs X per rank, the device has Y", the largest rows and
//                       the remedies
absl::StatusOr<Plan> BuildPlan(const PlanInput& input);

// The job's fields with their defaults as a PlanInput; `world_size` is given for elastic jobs.
// device_memory_bytes of 0: unknown.
//   INVALID_ARGUMENT    as ResolveModel and BuildPlan
absl::StatusOr<PlanInput> PlanInputFromJob(const v1::TrainingJob& job, int world_size,
                                           std::int64_t device_memory_bytes);
// The world size that the spec's resources ask for: nodes x devices_per_node.
int WorldSizeOf(const v1::TrainingJob& job);
// Sequences per step: train.global_batch, or global_batch_tokens rounded up to whole sequences.
std::int64_t GlobalBatchOf(const v1::TrainingJob& job);

// BuildPlan(PlanInputFromJob(...)).
absl::StatusOr<Plan> PlanFromJob(const v1::TrainingJob& job, int world_size,
                                 std::int64_t device_memory_bytes);

// For replies and `fsdpctl plan`. `policies` holds an estimate for keep, none, selective and full.
v1::Plan ToProto(const Plan& plan);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_PLAN_H_
