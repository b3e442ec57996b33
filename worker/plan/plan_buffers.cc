// Which buffers a step needs, how large they are and from which tick to which they live.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/plan/plan_internal.h"
#include "worker/plan/plan_ticks.h"

namespace fsdp::internal {
namespace {

class BufferBuilder {
 public:
  explicit BufferBuilder(Plan& plan)
      : plan_(plan),
        model_(plan.input.model),
        clock_(model_.num_layers),
        tokens_(plan.micro_batch_tokens),
        element_(static_cast<std::int64_t>(SizeOf(plan.input.parameter_dtype))),
        stat_(static_cast<std::int64_t>(SizeOf(plan.stats_dtype()))),
        scratch_(*plan.input.scratch) {}

  void Build(const std::vector<KeepPolicy>& keep) {
    AddShard();
    AddInputs();
    AddStages();
    plan_.blocks.resize(static_cast<std::size_t>(model_.num_layers));
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      AddBlock(layer, keep[static_cast<std::size_t>(layer)]);
    }
    AddHead();
  }

 private:
  BufferId Add(std::string name, MemoryKind kind, std::int64_t bytes, int first, int last) {
    if (bytes == 0) return kNoBuffer;
    plan_.buffers.push_back({std::move(name), kind, bytes, 0, first, last});
    return static_cast<BufferId>(plan_.buffers.size()) - 1;
  }
  BufferId Always(std::string name, MemoryKind kind, std::int64_t bytes) {
    return Add(std::move(name), kind, bytes, kAlways, kAlways);
  }

  void AddShard() {
    const std::int64_t n = plan_.shard_elements;
    const auto wide = static_cast<std::int64_t>(SizeOf(plan_.master_dtype()));
    if (plan_.input.parameter_dtype == DType::kBf16) {
      plan_.compute_weights = Always("compute_weights", MemoryKind::kComputeWeights, n * element_);
      plan_.remainder = Always("remainder", MemoryKind::kMaster, n * element_);
    } else {
      plan_.master = Always("master", MemoryKind::kMaster, n * wide);
    }
    plan_.moment1 = Always("moment1", MemoryKind::kMoments, n * wide);
    plan_.moment2 = Always("moment2", MemoryKind::kMoments, n * wide);
    AddShardGradients(wide);
    const bool adds = plan_.split.num_micro_batches() > 1 || model_.tie_embeddings ||
                      plan_.gradient_dtype() != plan_.master_dtype();
    if (plan_.input.world_size > 1 && adds) {
      std::int64_t largest = 0;
      for (const UnitPlan& unit : plan_.units) {
        largest = std::max(largest, unit.layout.shard_elements);
      }
      plan_.reduced = Always("reduced", MemoryKind::kGradients,
                             largest * static_cast<std::int64_t>(SizeOf(plan_.gradient_dtype())));
    }
  }

  // Activations die while these grow, unless they must last over several micro-batches.
  void AddShardGradients(std::int64_t element) {
    const bool always = plan_.split.num_micro_batches() > 1;
    for (std::size_t i = 0; i < plan_.units.size(); ++i) {
      UnitPlan& unit = plan_.units[i];
      // A tied head's stage is the first to write the embedding's unit.
      const bool tied = i == 0 && model_.tie_embeddings;
      const int stage = tied ? model_.num_layers + 1 : static_cast<int>(i);
      // Sharded, the stage's scatter writes it; alone, its weight gradients.
      const int first =
          plan_.input.world_size > 1 ? clock_.backward_end(stage) : clock_.backward_begin(stage);
      unit.gradient = Add(absl::StrCat(unit.spec.name, ".gradient"), MemoryKind::kGradients,
                          unit.layout.shard_elements * element, always ? kAlways : first,
                          always ? kAlways : clock_.total() - 1);
    }
  }

  void AddInputs() {
    const std::int64_t share_tokens = plan_.split.Share(0).count * plan_.input.sequence_length;
    plan_.tokens = Always("tokens", MemoryKind::kInputs, share_tokens * 4);
    plan_.targets = Always("targets", MemoryKind::kInputs, share_tokens * 4);
    if (plan_.input.reset_attention) {
      plan_.document_begins = Always("document_begins", MemoryKind::kInputs, tokens_ * 4);
    }
    if (plan_.input.reset_positions && model_.position == PositionKind::kLearned) {
      plan_.position_ids = Always("position_ids", MemoryKind::kInputs, tokens_ * 4);
    }
    if (model_.position == PositionKind::kRope) {
      const std::int64_t table = plan_.input.sequence_length * (model_.head_dim / 2) * stat_;
      plan_.rope_cos = Always("rope_cos", MemoryKind::kInputs, table);
      plan_.rope_sin = Always("rope_sin", MemoryKind::kInputs, table);
    }
    plan_.stats = Always("stats", MemoryKind::kInputs, kStatsBytes);
    if (plan_.input.world_size > 1) {
      plan_.rank_exchange = Always("rank_exchange", MemoryKind::kInputs,
                                   (1 + plan_.input.world_size) * kMaxExchangeValues * 8);
    }
    plan_.grad_stats_scratch =
        Always("grad_stats_scratch", MemoryKind::kWorkspace, scratch_.grad_stats_bytes);
  }

  [[nodiscard]] std::int64_t UnitElements(int unit) const {
    return plan_.units[static_cast<std::size_t>(unit)].layout.unit_elements();
  }

  BufferId AddWeights(int stage, int unit, const char* pass, int first, int last) {
    return Add(absl::StrCat(plan_.stages[static_cast<std::size_t>(stage)].name, ".weights.", pass),
               MemoryKind::kUnitBuffers, UnitElements(unit) * element_, first, last);
  }

  void AddStages() {
    const int last_stage = model_.num_layers + 1;
    for (int stage = 0; stage <= last_stage; ++stage) {
      StagePlan entry;
      entry.name = stage == 0            ? "embed"
                   : stage == last_stage ? "head"
                                         : absl::StrCat("layers.", stage - 1);
      entry.unit = stage == last_stage && model_.tie_embeddings ? 0 : stage;
      plan_.stages.push_back(entry);
    }
    if (plan_.input.world_size == 1) return;
    for (int stage = 0; stage <= last_stage; ++stage) {
      AddStageWeights(stage);
      AddStageGradients(stage);
    }
  }

  void AddStageWeights(int stage) {
    StagePlan& entry = plan_.stages[static_cast<std::size_t>(stage)];
    const int ahead = plan_.input.prefetch;
    if (!plan_.input.reshard_after_forward) {
      // Gathered once a step, kept through all micro-batches.
      if (entry.unit != stage) {
        entry.forward_weights = plan_.stages[static_cast<std::size_t>(entry.unit)].forward_weights;
      } else {
        entry.forward_weights = AddWeights(stage, entry.unit, "resident", kAlways, kAlways);
      }
      entry.backward_weights = entry.forward_weights;
      return;
    }
    const int last_block = model_.num_layers;
    int first = clock_.forward_begin(std::max(0, stage - ahead));
    int last = clock_.forward_end(stage);
    if (stage == 0 && ahead > 0 && plan_.split.num_micro_batches() > 1) {
      // The next micro-batch's first gather runs behind the embedding's backward.
      first = clock_.backward_begin(0);
      last += clock_.total();
    }
    if (stage == last_block) last = clock_.backward_end(stage);
    entry.forward_weights = AddWeights(stage, entry.unit, "forward", first, last);
    if (stage >= last_block) {
      entry.backward_weights = entry.forward_weights;
    } else if (stage > 0) {
      entry.backward_weights = AddWeights(
          stage, entry.unit, "backward", clock_.backward_begin(std::min(last_block, stage + ahead)),
          clock_.backward_end(stage));
    }
  }

  void AddStageGradients(int stage) {
    StagePlan& entry = plan_.stages[static_cast<std::size_t>(stage)];
    // Until the stage after the next begins: by then its scatter has been waited for.
    const int last =
        stage > 0 ? clock_.backward_end(stage - 1) : clock_.total() + clock_.forward_end(0);
    entry.gradients =
        Add(entry.name + ".gradients", MemoryKind::kUnitBuffers,
            UnitElements(entry.unit) * static_cast<std::int64_t>(SizeOf(plan_.gradient_dtype())),
            clock_.backward_begin(stage), last);
  }

  // A buffer of the current block.
  BufferId Block(const char* name, std::int64_t bytes, int first, int last) {
    return Add(absl::StrCat("layers.", layer_, ".", name), MemoryKind::kActivations, bytes, first,
               last);
  }

  BufferId Scratch(const char* name, std::int64_t bytes, int first, int last) {
    return Add(absl::StrCat("layers.", layer_, ".", name), MemoryKind::kWorkspace, bytes, first,
               last);
  }

  [[nodiscard]] std::int64_t Rows(std::int64_t columns) const {
    return tokens_ * columns * element_;
  }
  [[nodiscard]] std::int64_t NormStats() const {
    return tokens_ * stat_ * (model_.norm == NormKind::kLayer ? 2 : 1);
  }
  [[nodiscard]] std::int64_t LseBytes() const { return tokens_ * model_.num_heads * stat_; }
  // Of q and k before their norm, and of its statistics; 0 in models without it.
  [[nodiscard]] std::int64_t QkHeads() const {
    return model_.qk_norm ? model_.num_heads + model_.num_kv_heads : 0;
  }

  // The tape of forward, each entry living until `last` unless it is dropped, then until its last
  // reader in forward.
  void AddForwardTape(BlockBuffers& block, int f, int b) {
    const bool keep_attention = block.keep != KeepPolicy::kInputOnly;
    const bool keep_mlp = block.keep <= KeepPolicy::kAll;
    const auto until = [&](bool keep, int kept, int dropped) {
      return keep ? b + kept : f + dropped;
    };
    const bool swiglu = model_.mlp == MlpKind::kSwiGlu;
    BlockTape& tape = block.forward;
    tape.norm1_stats = Block("norm1_stats", NormStats(), f + kFwdNorm1,
                             until(keep_attention, kBwdNorm1, kFwdNorm1));
    tape.qkv = Block("qkv", Rows(model_.qkv_dim()), f + kFwdQkv,
                     until(keep_attention, kBwdAttention, kFwdAttention));
    tape.qk_raw = Block("qk_raw", Rows(QkHeads() * model_.head_dim), f + kFwdQkv,
                        until(keep_attention, kBwdAttention, kFwdQkv));
    tape.qk_rstd = Block("qk_rstd", tokens_ * QkHeads() * stat_, f + kFwdQkv,
                         until(keep_attention, kBwdAttention, kFwdQkv));
    tape.attn = Block("attn", Rows(model_.q_dim()), f + kFwdAttention,
                      until(keep_attention, kBwdAttention, kFwdAttnOut));
    tape.lse = Block("lse", LseBytes(), f + kFwdAttention,
                     until(keep_attention, kBwdAttention, kFwdAttention));
    // The next stage adds x2 and delta in its first tick.
    tape.x2 = Block("x2", Rows(model_.dim), f + kFwdNorm2,
                    until(keep_attention, kBwdNorm2, kForwardTicks));
    tape.norm2_stats = Block("norm2_stats", NormStats(), f + kFwdNorm2,
                             until(keep_attention, kBwdNorm2, kFwdNorm2));
    tape.mlp_in =
        Block("mlp_in", Rows(model_.mlp_in_dim()), f + kFwdMlpIn,
              until(keep_mlp, swiglu ? kBwdMlpInWeight : kBwdMlpOutWeight, kFwdActivation));
  }

  void AddBackwardTape(BlockBuffers& block, int b) {
    block.backward = block.forward;
    BlockTape& tape = block.backward;
    if (block.keep <= KeepPolicy::kAll) return;
    const bool swiglu = model_.mlp == MlpKind::kSwiGlu;
    tape.mlp_in = Block("mlp_in.redo", Rows(model_.mlp_in_dim()), b + kBwdMlpInRedo,
                        b + (swiglu ? kBwdMlpInWeight : kBwdMlpOutWeight));
    if (block.keep == KeepPolicy::kNoMlp) return;
    tape.norm1_stats = Block("norm1_stats.redo", NormStats(), b + kBwdNorm1Redo, b + kBwdNorm1);
    tape.qkv = Block("qkv.redo", Rows(model_.qkv_dim()), b + kBwdQkvRedo, b + kBwdAttention);
    tape.qk_raw =
        Block("qk_raw.redo", Rows(QkHeads() * model_.head_dim), b + kBwdQkvRedo, b + kBwdAttention);
    tape.qk_rstd =
        Block("qk_rstd.redo", tokens_ * QkHeads() * stat_, b + kBwdQkvRedo, b + kBwdAttention);
    tape.attn = Block("attn.redo", Rows(model_.q_dim()), b + kBwdAttentionRedo, b + kBwdAttention);
    tape.lse = Block("lse.redo", LseBytes(), b + kBwdAttentionRedo, b + kBwdAttention);
    tape.x2 = Block("x2.redo", Rows(model_.dim), b + kBwdNorm2Redo, b + kBwdNorm2);
    tape.norm2_stats = Block("norm2_stats.redo", NormStats(), b + kBwdNorm2Redo, b + kBwdNorm2);
  }

  void AddForwardWork(BlockBuffers& block, int f, int b) {
    BlockBuffers::Work& work = block.forward_work;
    const auto until = [&](int kept, int dropped) {
      return block.keep == KeepPolicy::kOutputs ? b + kept : f + dropped;
    };
    work.normed1 =
        Block("normed1.fwd", Rows(model_.dim), f + kFwdNorm1, until(kBwdQkvWeight, kFwdQkv));
    work.attn_out = Block("attn_out.fwd", Rows(model_.dim), f + kFwdAttnOut, f + kFwdNorm2);
    work.normed2 =
        Block("normed2.fwd", Rows(model_.dim), f + kFwdNorm2, until(kBwdMlpInWeight, kFwdMlpIn));
    work.act = Block("act.fwd", Rows(model_.mlp_dim), f + kFwdActivation,
                     until(kBwdMlpOutWeight, kFwdMlpOut));
    work.scratch = Scratch("attention_scratch.fwd", scratch_.attention_forward_bytes,
                           f + kFwdAttention, f + kFwdAttention);
    block.delta = Block("delta", Rows(model_.dim), f + kFwdMlpOut, f + kForwardTicks);
  }

  void AddBackwardWork(BlockBuffers& block, int b) {
    BlockBuffers::Work& work = block.backward_work;
    if (block.keep == KeepPolicy::kInputOnly) {
      work.normed1 = Block("normed1.redo", Rows(model_.dim), b + kBwdNorm1Redo, b + kBwdQkvRedo);
      work.attn_out =
          Block("attn_out.redo", Rows(model_.dim), b + kBwdAttnOutRedo, b + kBwdNorm2Redo);
    }
    if (block.keep > KeepPolicy::kAll) {
      work.normed2 = Block("normed2.redo", Rows(model_.dim), b + kBwdNorm2Redo, b + kBwdMlpInRedo);
    }
    if (block.keep == KeepPolicy::kInputOnly) {
      work.scratch = Scratch("attention_scratch.redo", scratch_.attention_forward_bytes,
                             b + kBwdAttentionRedo, b + kBwdAttentionRedo);
    }
    block.attention_scratch = Scratch("attention_scratch.bwd", scratch_.attention_backward_bytes,
                                      b + kBwdAttention, b + kBwdAttention);
    block.sum_scratch =
        Scratch("sum_scratch",
                std::max({scratch_.norm_backward_bytes, scratch_.qk_norm_backward_bytes,
                          scratch_.column_sum_bytes}),
                b + kBwdMlpOutWeight, b + kBwdQkvWeight);
    const bool swiglu = model_.mlp == MlpKind::kSwiGlu;
    block.d_act = Block("d_act", Rows(model_.mlp_dim), b + kBwdMlpOut,
                        b + (swiglu ? kBwdMlpOutWeight : kBwdMlpInWeight));
    block.d_mlp_in = swiglu ? block.backward.mlp_in : block.d_act;
    block.d_normed2 = Block("d_normed2", Rows(model_.dim), b + kBwdMlpIn, b + kBwdMlpInWeight);
    block.d_attn = Block("d_attn", Rows(model_.q_dim()), b + kBwdAttnOut, b + kBwdAttention);
    block.d_qkv = Block("d_qkv", Rows(model_.qkv_dim()), b + kBwdAttention, b + kBwdQkvWeight);
    block.d_normed1 = Block("d_normed1", Rows(model_.dim), b + kBwdQkv, b + kBwdQkvWeight);
    const bool kept = block.keep == KeepPolicy::kOutputs;
    block.normed1 = kept ? block.forward_work.normed1 : block.d_normed1;
    block.normed2 = kept ? block.forward_work.normed2 : block.d_normed2;
    block.act = kept ? block.forward_work.act : swiglu ? block.d_act : block.backward.mlp_in;
  }

  void AddBlock(int layer, KeepPolicy keep) {
    layer_ = layer;
    const int stage = layer + 1;
    const int f = clock_.forward_begin(stage);
    const int b = clock_.backward_begin(stage);
    BlockBuffers& block = plan_.blocks[static_cast<std::size_t>(layer)];
    block.keep = keep;
    // The first block's input is written by the embedding.
    block.x = Block("x", Rows(model_.dim), layer == 0 ? clock_.forward_begin(0) : f, b + kBwdNorm1);
    AddForwardTape(block, f, b);
    AddForwardWork(block, f, b);
    AddBackwardTape(block, b);
    AddBackwardWork(block, b);
  }

  void AddHead() {
    const int h = clock_.forward_begin(model_.num_layers + 1);
    HeadBuffers& head = plan_.head;
    const auto kind = MemoryKind::kActivations;
    head.x = Add("head.x", kind, Rows(model_.dim), h + kHeadNorm, h + kHeadNormBackward);
    if (model_.final_norm) {
      head.norm_stats =
          Add("head.norm_stats", kind, NormStats(), h + kHeadNorm, h + kHeadNormBackward);
      head.normed = Add("head.normed", kind, Rows(model_.dim), h + kHeadNorm, h + kHeadChunks);
      head.d_normed =
          Add("head.d_normed", kind, Rows(model_.dim), h + kHeadChunks, h + kHeadNormBackward);
    }
    head.logits =
        Add("head.logits", MemoryKind::kLogits, head.chunk_tokens * model_.vocab_size * element_,
            h + kHeadChunks, h + kHeadChunks);
    head.scratch = Add("head.scratch", MemoryKind::kWorkspace,
                       std::max(scratch_.cross_entropy_bytes, scratch_.norm_backward_bytes),
                       h + kHeadChunks, h + kHeadNormBackward);
    plan_.d_x = Add("d_x", kind, Rows(model_.dim), h + kHeadChunks, clock_.backward_end(0));
  }

  Plan& plan_;
  const ModelConfig& model_;
  TickClock clock_;
  std::int64_t tokens_;
  std::int64_t element_;  // bytes of an activation
  std::int64_t stat_;     // bytes of a statistic
  const ScratchSizes& scratch_;
  int layer_ = 0;
};

}  // namespace

void AddBuffers(Plan& plan, const std::vector<KeepPolicy>& keep) {
  BufferBuilder(plan).Build(keep);
}

}  // namespace fsdp::internal
