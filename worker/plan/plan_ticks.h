#ifndef FSDPCTL_WORKER_PLAN_PLAN_TICKS_H_
#define FSDPCTL_WORKER_PLAN_PLAN_TICKS_H_

// The clock of one micro-batch: forward of every stage (embed, blocks, head, where the head's
// backward is part of it), backward of the blocks from the last to the first, backward of the
// embedding. The model code runs its operations in the order of these numbers.

namespace fsdp {

// Sub-steps of a stage's forward.
inline constexpr int kForwardTicks = 8;
enum ForwardTick : int {
  kFwdNorm1 = 0,
  kFwdQkv,
  kFwdAttention,
  kFwdAttnOut,
  kFwdNorm2,
  kFwdMlpIn,
  kFwdActivation,
  kFwdMlpOut,
};

// Sub-steps of a block's backward; the first six redo what was not kept. Where a normalisation or
// an activation is undone, the same pass over memory also gives its output again, which the weight
// gradient of the matmul behind it reads: so input gradients come before weight gradients.
inline constexpr int kBackwardTicks = 17;
enum BackwardTick : int {
  kBwdNorm1Redo = 0,
  kBwdQkvRedo,
  kBwdAttentionRedo,
  kBwdAttnOutRedo,
  kBwdNorm2Redo,
  kBwdMlpInRedo,
  kBwdMlpOut,  // input gradient
  kBwdActivation,
  kBwdMlpOutWeight,
  kBwdMlpIn,
  kBwdNorm2,
  kBwdMlpInWeight,
  kBwdAttnOut,
  kBwdAttention,
  kBwdQkv,
  kBwdNorm1,
  kBwdQkvWeight,
};

// Sub-steps of the head.
enum HeadTick : int { kHeadNorm = 0, kHeadChunks, kHeadNormBackward };

class TickClock {
 public:
  explicit TickClock(int num_layers) : num_layers_(num_layers) {}

  // Stages: 0 embed, 1..L blocks, L + 1 head.
  [[nodiscard]] int forward_begin(int stage) const { return stage * kForwardTicks; }
  [[nodiscard]] int forward_end(int stage) const { return forward_begin(stage + 1) - 1; }
  // The head's backward is its forward.
  [[nodiscard]] int backward_begin(int stage) const {
    if (stage > num_layers_) return forward_begin(stage);
    return forward_begin(num_layers_ + 2) + (num_layers_ - stage) * kBackwardTicks;
  }
  [[nodiscard]] int backward_end(int stage) const {
    if (stage > num_layers_) return forward_end(stage);
    return backward_begin(stage) + (stage == 0 ? kForwardTicks : kBackwardTicks) - 1;
  }
  [[nodiscard]] int total() const { return backward_end(0) + 1; }

 private:
  int num_layers_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_PLAN_TICKS_H_
