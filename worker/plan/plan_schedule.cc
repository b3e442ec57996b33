// The operations of one micro-batch in words, and the hash that ranks compare before step 1.

#include <bit>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/plan/plan_internal.h"

namespace fsdp::internal {
namespace {

class Hasher {
 public:
  void Add(std::string_view text) {
    for (const char c : text) Byte(static_cast<unsigned char>(c));
    Byte(0);
  }
  void Add(std::int64_t value) {
    for (int i = 0; i < 8; ++i) Byte(static_cast<unsigned char>(value >> (8 * i)));
  }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  void Byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

const char* NameOfKeep(KeepPolicy keep) {
  switch (keep) {
    case KeepPolicy::kOutputs:
      return " (outputs kept)";
    case KeepPolicy::kAll:
      return "";
    case KeepPolicy::kNoMlp:
      return " (redo mlp)";
    case KeepPolicy::kInputOnly:
      return " (redo block)";
  }
  return "";
}

// What names and shapes do not tell: every rank may have read it from a file of its own.
void AddMath(const ModelConfig& model, Hasher& hasher) {
  const RopeScalingConfig& rope = model.rope_scaling;
  for (const double value :
       {model.norm_eps, model.rope_theta, rope.factor, rope.low_freq_factor, rope.high_freq_factor,
        rope.beta_fast, rope.beta_slow, rope.attention_factor, model.init_std}) {
    hasher.Add(std::bit_cast<std::int64_t>(value));
  }
  for (const std::int64_t value :
       {static_cast<std::int64_t>(rope.type), rope.original_max_positions,
        std::int64_t{model.num_heads}, std::int64_t{model.num_kv_heads}, std::int64_t{model.causal},
        static_cast<std::int64_t>(model.mlp)}) {
    hasher.Add(value);
  }
}

class ScheduleWriter {
 public:
  explicit ScheduleWriter(Plan& plan) : plan_(plan), sharded_(plan.input.world_size > 1) {}

  void Write() {
    const int head = static_cast<int>(plan_.stages.size()) - 1;
    if (plan_.input.reset_attention) Line("upload document_begins");
    if (plan_.position_ids != kNoBuffer) Line("upload position_ids");
    Gather(0);
    for (int stage = 0; stage < head; ++stage) {
      Ahead(stage + 1);
      Line(absl::StrCat("forward ", Name(stage)));
    }
    Line(
        absl::StrFormat("forward and backward head, %d tokens at a time", plan_.head.chunk_tokens));
    Scatter(head);
    for (int stage = head - 1; stage > 0; --stage) {
      const bool gathers = stage - 1 > 0 && plan_.input.reshard_after_forward;
      if (gathers) Ahead(stage - 1);
      Line(absl::StrCat("backward ", Name(stage),
                        NameOfKeep(plan_.blocks[static_cast<std::size_t>(stage - 1)].keep)));
      Scatter(stage);
    }
    Line("backward embed");
    Scatter(0);
    Line(sharded_ ? "all_reduce step_stats, after the last micro-batch" : "step_stats");
    Line("optimizer on the shard");
  }

 private:
  [[nodiscard]] const std::string& Name(int stage) const {
    return plan_.stages[static_cast<std::size_t>(stage)].name;
  }
  void Line(std::string text) { plan_.schedule.push_back(std::move(text)); }
  void Gather(int stage) {
    if (sharded_) Line(absl::StrCat("gather ", Name(stage)));
  }
  void Ahead(int stage) { Gather(stage); }
  void Scatter(int stage) {
    if (sharded_) Line(absl::StrCat("scatter ", Name(stage)));
  }

  Plan& plan_;
  bool sharded_;
};

}  // namespace

void AddSchedule(Plan& plan) {
  plan.schedule.clear();
  ScheduleWriter(plan).Write();
  Hasher hasher;
  for (const std::string& line : plan.schedule) hasher.Add(line);
  const PlanInput& input = plan.input;
  for (const std::int64_t value :
       {std::int64_t{input.world_size}, input.sequence_length, input.global_batch,
        plan.split.num_micro_batches(), std::int64_t{input.prefetch},
        std::int64_t{input.num_communicators}, std::int64_t{input.reshard_after_forward},
        static_cast<std::int64_t>(input.parameter_dtype),
        static_cast<std::int64_t>(input.reduce_dtype), plan.head.chunk_tokens}) {
    hasher.Add(value);
  }
  AddMath(input.model, hasher);
  for (const UnitPlan& unit : plan.units) {
    hasher.Add(unit.spec.name);
    hasher.Add(unit.layout.shard_elements);
    for (std::size_t i = 0; i < unit.spec.parameters.size(); ++i) {
      hasher.Add(unit.spec.parameters[i].name);
      hasher.Add(unit.layout.offsets[i]);
      for (const std::int64_t extent : unit.spec.parameters[i].shape) hasher.Add(extent);
    }
  }
  plan.schedule_hash = hasher.value();
}

}  // namespace fsdp::internal
