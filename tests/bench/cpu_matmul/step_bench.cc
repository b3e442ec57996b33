// One training step of a llama block stack from the device's operations, timed per operation.

#include <map>
#include <string>

#include "tests/bench/cpu_matmul/bench_support.h"

namespace fsdp {
namespace {

constexpr std::int64_t kSeq = 512;
constexpr std::int64_t kDim = 1024;
constexpr std::int64_t kHidden = 2816;
constexpr std::int64_t kVocab = 32000;
constexpr AttentionShape kHeads = {
    .batch = 1, .seq = kSeq, .num_heads = 16, .num_kv_heads = 16, .head_dim = 64};

struct Weights {
  Matrix qkv, out, gate_up, down;
  Vector norm1, norm2;
};

struct Activations {
  Matrix x, y1, qkv, attention, projected, sum, y2, gate_up, h, mlp;
  Vector rstd1, rstd2, lse;
};

// Times each operation under a name.
class StepBench {
 public:
  StepBench(Device& device, int layers) : device_(device), ops_(device.ops()), memory_(device) {
    for (int i = 0; i < layers; ++i) {
      weights_.push_back(NewWeights());
      gradients_.push_back(NewWeights());
      activations_.push_back(NewActivations());
    }
    scratch_ = memory_.Scratch(
        std::max(ops_.AttentionScratchBytes(kHeads, DType::kF32, true), std::size_t{1} << 24));
  }

  void Step();
  void Print(double step_seconds) const;

 private:
  Matrix New(std::int64_t rows, std::int64_t cols) {
    return memory_.NewMatrix(DType::kF32, rows, cols);
  }
  Weights NewWeights() {
    return {New(3 * kDim, kDim),
            New(kDim, kDim),
            New(2 * kHidden, kDim),
            New(kDim, kHidden),
            memory_.NewVector(DType::kF32, kDim),
            memory_.NewVector(DType::kF32, kDim)};
  }
  Activations NewActivations() {
    return {New(kSeq, kDim),
            New(kSeq, kDim),
            New(kSeq, 3 * kDim),
            New(kSeq, kDim),
            New(kSeq, kDim),
            New(kSeq, kDim),
            New(kSeq, kDim),
            New(kSeq, 2 * kHidden),
            New(kSeq, kHidden),
            New(kSeq, kDim),
            memory_.NewVector(DType::kF32, kSeq),
            memory_.NewVector(DType::kF32, kSeq),
            memory_.NewVector(DType::kF32, kSeq * kHeads.num_heads)};
  }

  template <typename F>
  void Time(const char* name, F run) {
    const double begin = Now();
    Require(run());
    seconds_[name] += Now() - begin;
  }
  // y = x w^T and its two gradients.
  void Linear(const Matrix& x, const Matrix& w, const Matrix& y) {
    MatMul(x, false, w, true, y, false);
  }
  void LinearBackward(const Matrix& dy, const Matrix& x, const Matrix& w, const Matrix& dx,
                      const Matrix& dw) {
    MatMul(dy, false, w, false, dx, false);
    MatMul(dy, true, x, false, dw, false);
  }
  void MatMul(const Matrix& a, bool ta, const Matrix& b, bool tb, const Matrix& c, bool add) {
    Time("matmul",
         [&] { return ops_.MatMul(device_.compute(), a, If(ta), b, If(tb), {}, c, add); });
    matmul_flops_ += 2.0 * static_cast<double>(c.rows * c.cols * (ta ? a.rows : a.cols));
  }
  void Forward(const Matrix& x, const Weights& w, const Activations& a);
  void Backward(const Matrix& dx, const Weights& w, const Activations& a, const Weights& g);
  void Head(const Matrix& x, const Matrix& dx);
  void Optimizer();
  void UpdateOne(void* weight, void* gradient, std::int64_t size);

  Device& device_;
  Ops& ops_;
  Memory memory_;
  std::vector<Weights> weights_, gradients_;
  std::vector<Activations> activations_;
  std::span<std::byte> scratch_;
  std::vector<std::int32_t> tokens_ = std::vector<std::int32_t>(kSeq, 7);
  Matrix cos_ = New(kSeq, 32), sin_ = New(kSeq, 32);
  Matrix table_ = New(kVocab, kDim), head_ = New(kVocab, kDim);
  Matrix d_table_ = New(kVocab, kDim), d_head_ = New(kVocab, kDim);
  Matrix logits_ = New(kSeq, kVocab);
  Matrix d1_ = New(kSeq, kDim), d2_ = New(kSeq, kDim), d_wide_ = New(kSeq, 2 * kHidden),
         d_hidden_ = New(kSeq, kHidden), d_qkv_ = New(kSeq, 3 * kDim), x_ = New(kSeq, kDim);
  // Moments of the largest parameter serve all: the traffic of each is the same as with their own,
  // because every parameter is far larger than the caches.
  Vector m_ = memory_.NewVector(DType::kF32, kVocab* kDim);
  Vector v_ = memory_.NewVector(DType::kF32, kVocab* kDim);
  StepStats stats_ = {};
  UpdateScalars scalars_ = {1e-3F, 0, 1, 1};
  StepScalars step_ = *StepScalarsOf(1e-6, 1, {});
  std::map<std::string, double> seconds_;
  double matmul_flops_ = 0;
};

void StepBench::Forward(const Matrix& x, const Weights& w, const Activations& a) {
  Stream& st = device_.compute();
  Time("norm", [&] { return ops_.RmsNormForward(st, x, {}, w.norm1, 1e-5, {}, a.y1, a.rstd1); });
  Linear(a.y1, w.qkv, a.qkv);
  Time("rope", [&] { return ops_.Rope(st, a.qkv, kHeads, cos_, sin_, false); });
  Time("attention",
       [&] { return ops_.AttentionForward(st, a.qkv, kHeads, {}, a.attention, a.lse, scratch_); });
  Linear(a.attention, w.out, a.projected);
  Time("norm", [&] {
    return ops_.RmsNormForward(st, x, a.projected, w.norm2, 1e-5, a.sum, a.y2, a.rstd2);
  });
  Linear(a.y2, w.gate_up, a.gate_up);
  Time("swiglu", [&] { return ops_.SwiGluForward(st, a.gate_up, a.h); });
  Linear(a.h, w.down, a.mlp);
  Time("add", [&] { return ops_.Add(st, a.sum, a.mlp, a.x); });
}

void StepBench::Backward(const Matrix& dx, const Weights& w, const Activations& a,
                         const Weights& g) {
  Stream& st = device_.compute();
  LinearBackward(dx, a.h, w.down, d_hidden_, g.down);
  Time("swiglu", [&] { return ops_.SwiGluBackward(st, d_hidden_, a.gate_up, d_wide_, {}); });
  LinearBackward(d_wide_, a.y2, w.gate_up, d1_, g.gate_up);
  Time("norm", [&] {
    return ops_.RmsNormBackward(st, d1_, a.sum, w.norm2, a.rstd2, dx, dx, {}, g.norm2, false,
                                scratch_);
  });
  LinearBackward(dx, a.attention, w.out, d1_, g.out);
  Time("attention", [&] {
    return ops_.AttentionBackward(st, d1_, a.qkv, a.attention, a.lse, kHeads, {}, d_qkv_, scratch_);
  });
  Time("rope", [&] { return ops_.Rope(st, d_qkv_, kHeads, cos_, sin_, true); });
  LinearBackward(d_qkv_, a.y1, w.qkv, d1_, g.qkv);
  Time("norm", [&] {
    return ops_.RmsNormBackward(st, d1_, a.x, w.norm1, a.rstd1, dx, dx, {}, g.norm1, false,
                                scratch_);
  });
}

void StepBench::Head(const Matrix& x, const Matrix& dx) {
  Linear(x, head_, logits_);
  Time("cross-entropy", [&] {
    return ops_.CrossEntropy(device_.compute(), logits_, tokens_, &stats_, false, scratch_);
  });
  LinearBackward(logits_, x, head_, dx, d_head_);
}

void StepBench::UpdateOne(void* weight, void* gradient, std::int64_t size) {
  const Vector grad = {gradient, DType::kF32, size};
  const std::vector<DecaySegment> all = {{0, size, 0.01F}};
  Time("grad stats", [&] { return ops_.GradStats(device_.compute(), grad, &stats_, scratch_); });
  Time("adamw", [&] {
    return ops_.AdamW(device_.compute(), {weight, DType::kF32, size}, {m_.data, DType::kF32, size},
                      {v_.data, DType::kF32, size}, grad, all, {}, &step_, &scalars_);
  });
}

void StepBench::Optimizer() {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const Weights& w = weights_[i];
    const Weights& g = gradients_[i];
    UpdateOne(w.qkv.data, g.qkv.data, w.qkv.rows * w.qkv.cols);
    UpdateOne(w.out.data, g.out.data, w.out.rows * w.out.cols);
    UpdateOne(w.gate_up.data, g.gate_up.data, w.gate_up.rows * w.gate_up.cols);
    UpdateOne(w.down.data, g.down.data, w.down.rows * w.down.cols);
  }
  UpdateOne(table_.data, d_table_.data, kVocab * kDim);
  UpdateOne(head_.data, d_head_.data, kVocab * kDim);
}

void StepBench::Step() {
  seconds_.clear();
  matmul_flops_ = 0;
  stats_ = {};
  Time("embedding",
       [&] { return ops_.EmbeddingForward(device_.compute(), tokens_, table_, {}, kSeq, {}, x_); });
  const Matrix* x = &x_;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    Forward(*x, weights_[i], activations_[i]);
    x = &activations_[i].x;
  }
  Head(*x, d2_);
  for (std::size_t i = weights_.size(); i-- > 0;) {
    Backward(d2_, weights_[i], activations_[i], gradients_[i]);
  }
  Time("embedding", [&] {
    return ops_.EmbeddingBackward(device_.compute(), tokens_, d2_, kSeq, {}, d_table_, {}, false);
  });
  Optimizer();
}

void StepBench::Print(double step_seconds) const {
  // Attention's products, masked half left out: 2 forward and 5 backward of S x S/2 x Dh a head.
  const double attention_flops = static_cast<double>(weights_.size()) * kHeads.num_heads * 7 * 2 *
                                 (kSeq * kSeq / 2.0) * kHeads.head_dim;
  const double rate = matmul_flops_ / seconds_.at("matmul");
  for (const auto& [name, seconds] : seconds_) {
    std::printf("  %-14s %8.1f ms\n", name.c_str(), seconds * 1e3);
  }
  std::printf(
      "step %.3f s; %.3f TFLOP in matmuls at %.0f GFLOP/s, attention %.3f TFLOP at %.0f "
      "GFLOP/s\nstep / (FLOPs / rate) = %.3f\n",
      step_seconds, matmul_flops_ / 1e12, rate / 1e9, attention_flops / 1e12,
      attention_flops / seconds_.at("attention") / 1e9,
      step_seconds / ((matmul_flops_ + attention_flops) / rate));
}

}  // namespace

int RunStepBench(Device& device, int layers) {
  StepBench bench(device, layers);
  bench.Step();
  double shortest = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = Now();
    bench.Step();
    shortest = std::min(shortest, Now() - begin);
  }
  bench.Print(shortest);
  return 0;
}

}  // namespace fsdp
