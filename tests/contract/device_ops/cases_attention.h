#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ATTENTION_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ATTENTION_H_

// Attention against its definition in f64, and its exact causality.

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

// As Ops::AttentionForward takes them; empty without documents.
using Begins = std::vector<std::int32_t>;

// Attention as it is defined, and the size of what each result adds up.
class AttentionReference {
 public:
  AttentionReference(const AttentionShape& shape, const Values& qkv, Begins begins = {})
      : shape_(shape),
        qkv_(qkv),
        begins_(std::move(begins)),
        width_((shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim),
        out_width_(shape.num_heads * shape.head_dim),
        scale_(shape.scale != 0 ? shape.scale : 1 / std::sqrt(double(shape.head_dim))) {}

  void Forward() {
    const std::int64_t tokens = shape_.batch * shape_.seq;
    out.assign(tokens * out_width_, 0);
    out_size = out;
    lse.assign(shape_.batch * shape_.num_heads * shape_.seq, 0);
    ForEachQuery([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      const Values p = Probabilities(b, h, i, &lse[(b * shape_.num_heads + h) * shape_.seq + i]);
      for (std::size_t j = 0; j < p.size(); ++j) {
        for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
          const std::int64_t at = OutIndex(b, h, i, d);
          out[at] += p[j] * V(b, h, j, d);
          out_size[at] += p[j] * std::abs(V(b, h, j, d));
        }
      }
    });
  }

  // With `given_out` for delta, as the operation is defined.
  void Backward(const Values& d_out, const Values& given_out) {
    d_qkv.assign(qkv_.size(), 0);
    d_size = d_qkv;
    ForEachQuery([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      double ignored = 0;
      const Values p = Probabilities(b, h, i, &ignored);
      double delta = 0;
      double delta_size = 0;
      for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
        const double term = d_out[OutIndex(b, h, i, d)] * given_out[OutIndex(b, h, i, d)];
        delta += term;
        delta_size += std::abs(term);
      }
      for (std::size_t j = 0; j < p.size(); ++j) {
        double dp = 0;
        double dp_size = 0;
        for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
          const double term = d_out[OutIndex(b, h, i, d)] * V(b, h, j, d);
          dp += term;
          dp_size += std::abs(term);
        }
        const double ds = scale_ * p[j] * (dp - delta);
        const double ds_size = scale_ * p[j] * (dp_size + delta_size);
        for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
          AddTo(Index(b, i, h, d), ds * K(b, h, j, d), ds_size * std::abs(K(b, h, j, d)));
          AddTo(Index(b, j, KeyHead(h), d), ds * Q(b, h, i, d), ds_size * std::abs(Q(b, h, i, d)));
          const double g = d_out[OutIndex(b, h, i, d)];
          AddTo(Index(b, j, ValueHead(h), d), p[j] * g, p[j] * std::abs(g));
        }
      }
    });
  }

  Values out, out_size, lse, d_qkv, d_size;
  double max_score_size = 0;  // largest sum of |q||k| scale

 private:
  template <typename F>
  void ForEachQuery(F f) {
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (std::int64_t h = 0; h < shape_.num_heads; ++h) {
        for (std::int64_t i = 0; i < shape_.seq; ++i) f(b, h, i);
      }
    }
  }
  std::int64_t KeyHead(std::int64_t h) const {
    return shape_.num_heads + h / (shape_.num_heads / shape_.num_kv_heads);
  }
  std::int64_t ValueHead(std::int64_t h) const { return KeyHead(h) + shape_.num_kv_heads; }
  std::int64_t Index(std::int64_t b, std::int64_t t, std::int64_t head, std::int64_t d) const {
    return (b * shape_.seq + t) * width_ + head * shape_.head_dim + d;
  }
  std::int64_t OutIndex(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) const {
    return (b * shape_.seq + i) * out_width_ + h * shape_.head_dim + d;
  }
  double Q(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) const {
    return qkv_[Index(b, i, h, d)];
  }
  double K(std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t d) const {
    return qkv_[Index(b, j, KeyHead(h), d)];
  }
  double V(std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t d) const {
    return qkv_[Index(b, j, ValueHead(h), d)];
  }
  void AddTo(std::int64_t at, double value, double size) {
    d_qkv[at] += value;
    d_size[at] += size;
  }
  Values Probabilities(std::int64_t b, std::int64_t h, std::int64_t i, double* log_sum) {
    Values p(shape_.causal ? i + 1 : shape_.seq);
    const std::size_t first = begins_.empty() ? 0 : begins_[b * shape_.seq + i];
    for (std::size_t j = first; j < p.size(); ++j) {
      double size = 0;
      for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
        p[j] += scale_ * Q(b, h, i, d) * K(b, h, j, d);
        size += scale_ * std::abs(Q(b, h, i, d) * K(b, h, j, d));
      }
      max_score_size = std::max(max_score_size, size);
    }
    const double shift = *std::max_element(p.begin() + first, p.end());
    double sum = 0;
    for (std::size_t j = first; j < p.size(); ++j) sum += p[j] = std::exp(p[j] - shift);
    for (double& x : p) x /= sum;
    *log_sum = shift + std::log(sum);
    return p;
  }

  const AttentionShape shape_;
  const Values qkv_;
  const Begins begins_;
  const std::int64_t width_, out_width_;
  const double scale_;
};

inline std::vector<AttentionShape> AttentionShapes() {
  return {
      {.batch = 1, .seq = 1, .num_heads = 1, .num_kv_heads = 1, .head_dim = 1},
      {.batch = 2, .seq = 37, .num_heads = 4, .num_kv_heads = 2, .head_dim = 8},
      {.batch = 1, .seq = 131, .num_heads = 3, .num_kv_heads = 1, .head_dim = 17},
      {.batch = 2, .seq = 70, .num_heads = 2, .num_kv_heads = 2, .head_dim = 64, .causal = false},
      {.batch = 1, .seq = 64, .num_heads = 2, .num_kv_heads = 1, .head_dim = 33, .scale = 0.25F},
      {.batch = 0, .seq = 16, .num_heads = 2, .num_kv_heads = 1, .head_dim = 8},
  };
}

struct AttentionResult {
  Values out, lse, d_qkv;
};

// `gaps`: rows lie further apart than they are long, at addresses that few kernels take.
inline AttentionResult RunAttention(Env& env, const AttentionShape& s, const Values& qkv,
                                    const Values& d_out, const Values& given_out,
                                    const Values& given_lse, const Begins& begins = {},
                                    bool gaps = true) {
  const std::int64_t tokens = s.batch * s.seq;
  const std::int64_t width = (s.num_heads + 2 * s.num_kv_heads) * s.head_dim;
  const std::int64_t out_width = s.num_heads * s.head_dim;
  const auto gap = [gaps](std::int64_t elements) { return gaps ? elements : 0; };
  const Matrix m_qkv = env.In(qkv, tokens, width, gap(2));
  const Matrix out = env.Out(tokens, out_width, gap(1));
  const Vector lse = env.OutVec(env.sums(), tokens * s.num_heads);
  Ops& ops = env.ops();
  FSDP_EXPECT_OK(
      ops.AttentionForward(env.stream(), m_qkv, s, env.Ids(begins), out, lse,
                           env.Scratch(ops.AttentionScratchBytes(s, env.dtype(), false))));
  const Matrix d_qkv = env.Out(tokens, width, gap(3));
  FSDP_EXPECT_OK(ops.AttentionBackward(
      env.stream(), env.In(d_out, tokens, out_width, gap(4)), m_qkv,
      env.In(given_out, tokens, out_width), env.SumVec(given_lse), s, env.Ids(begins), d_qkv,
      env.Scratch(ops.AttentionScratchBytes(s, env.dtype(), true))));
  return {env.Get(out), env.Get(lse), env.Get(d_qkv)};
}

// Forward and backward against the definition. `weight_unit`: the rounding of a weight, and of a
// score's gradient, before they are multiplied: on tensor cores they are bf16.
inline void CheckAttention(Env& env, const AttentionShape& s, const Values& qkv,
                           const Values& d_out, const Begins& begins, bool gaps,
                           double weight_unit) {
  const DType dtype = env.dtype();
  AttentionReference want(s, qkv, begins);
  want.Forward();
  const Values given_out = Rounded(want.out, dtype);
  want.Backward(d_out, given_out);
  const AttentionResult got =
      RunAttention(env, s, qkv, d_out, given_out, Rounded(want.lse, SumsOf(dtype)), begins, gaps);

  const double unit = dtype == DType::kF64 ? 0x1p-53 : kUnitF32;
  const double dim = static_cast<double>(s.head_dim);
  // A score: dim products and the scale. A weight: its score's error, exp (4 u), the shift.
  const double score = (dim + 4) * unit * want.max_score_size;
  const double lse_size = MaxAbs(want.lse);
  const double terms = static_cast<double>(s.seq) + 16;
  const double store = dtype == DType::kF64 ? 0 : StoreUnit(dtype);
  ExpectClose("lse", got.lse, want.lse, 0, {score + (terms + lse_size) * unit});
  Values slack = want.out_size;
  for (double& x : slack) x *= 2 * score + (2 * terms + lse_size) * unit + weight_unit;
  ExpectClose("out", got.out, want.out, store, slack.empty() ? Values{0} : slack);
  // Backward: the same for p, dim terms in dp and delta, then sums over seq x group queries.
  const double group = s.num_heads / s.num_kv_heads;
  slack = want.d_size;
  for (double& x : slack) {
    x *= 2 * score + (2 * dim + group * terms + 2 * lse_size) * unit + weight_unit;
  }
  ExpectClose("d_qkv", got.d_qkv, want.d_qkv, store, slack.empty() ? Values{0} : slack);
}

TEST_P(DeviceOpsContract, Attention) {
  for (const AttentionShape& s : AttentionShapes()) {
    std::vector<DType> dtypes = {DType::kF32, DType::kBf16};
    if (device_->kind() == DeviceKind::kCpu) dtypes.push_back(DType::kF64);
    for (const DType dtype : dtypes) {
      SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " seq " << s.seq << " dim "
                                        << s.head_dim << " causal " << s.causal);
      const std::int64_t tokens = s.batch * s.seq;
      const Values qkv =
          Rounded(Random(tokens * (s.num_heads + 2 * s.num_kv_heads) * s.head_dim, 0.7), dtype);
      const Values d_out = Rounded(Random(tokens * s.num_heads * s.head_dim), dtype);
      Env env(*device_, dtype);
      CheckAttention(env, s, qkv, d_out, {}, /*gaps=*/true, /*weight_unit=*/0);
    }
  }
}

// What a log says of it must not change with time, nor with what ran before.
TEST_P(DeviceOpsContract, AttentionKernelsAreNamedAndKept) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    Env env(*device_, dtype);
    std::vector<AttentionShape> shapes = AttentionShapes();
    for (AttentionShape s : AttentionShapes()) {
      s.documents = s.causal;
      shapes.push_back(s);
    }
    for (const AttentionShape& s : shapes) {
      const auto named = env.ops().ChosenAttention(s, dtype);
      FSDP_ASSERT_OK(named.status());
      EXPECT_FALSE(named->forward.empty());
      EXPECT_FALSE(named->backward.empty());
      const std::int64_t tokens = s.batch * s.seq;
      const Values qkv = Random(tokens * (s.num_heads + 2 * s.num_kv_heads) * s.head_dim);
      const Values out = Random(tokens * s.num_heads * s.head_dim);
      RunAttention(env, s, qkv, out, out, Random(tokens * s.num_heads),
                   Begins(s.documents ? tokens : 0));
      const auto after = env.ops().ChosenAttention(s, dtype);
      FSDP_ASSERT_OK(after.status());
      EXPECT_EQ(after->forward, named->forward);
      EXPECT_EQ(after->backward, named->backward);
    }
  }
}

// Whatever later tokens hold, NaN and Inf included: the same bits.
TEST_P(DeviceOpsContract, AttentionIsExactlyCausal) {
  const AttentionShape s = {
      .batch = 2, .seq = 150, .num_heads = 4, .num_kv_heads = 2, .head_dim = 24};
  const std::int64_t tokens = s.batch * s.seq;
  const std::int64_t width = 8 * s.head_dim;
  const std::int64_t out_width = 4 * s.head_dim;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Values qkv = Random(tokens * width);
    Env env(*device_, dtype);
    const auto run = [&](const Values& in) {
      const Matrix out = env.Out(tokens, out_width);
      const Vector lse = env.OutVec(env.sums(), tokens * s.num_heads);
      const auto scratch = env.Scratch(env.ops().AttentionScratchBytes(s, dtype, false));
      FSDP_EXPECT_OK(env.ops().AttentionForward(env.stream(), env.In(in, tokens, width), s, {}, out,
                                                lse, scratch));
      return std::make_pair(env.Get(out), env.Get(lse));
    };
    const auto base = run(qkv);
    for (const std::int64_t first_changed : {1, 17, 64, 65, 100, 149}) {
      for (const double poison : {1e3, std::nan(""), HUGE_VAL}) {
        if (dtype == DType::kBf16 && !std::isfinite(poison) &&
            GetParam().bf16_attention_spreads_nonfinite) {
          continue;
        }
        Values changed = qkv;
        for (std::int64_t i = 0; i < tokens * width; ++i) {
          if (i / width % s.seq >= first_changed) changed[i] = poison - changed[i];
        }
        const auto other = run(changed);
        for (std::int64_t i = 0; i < tokens * out_width; ++i) {
          if (i / out_width % s.seq >= first_changed) continue;
          ASSERT_EQ(std::memcmp(&base.first[i], &other.first[i], 8), 0)
              << NameOf(dtype) << " out[" << i << "] changed with tokens from " << first_changed;
        }
        for (std::int64_t i = 0; i < tokens * s.num_heads; ++i) {
          if (i % s.seq >= first_changed) continue;
          ASSERT_EQ(base.second[i], other.second[i]) << i;
        }
      }
    }
  }
}

// The same inputs give the same bits.
TEST_P(DeviceOpsContract, AttentionAndMatMulRepeatExactly) {
  const AttentionShape s = {
      .batch = 3, .seq = 90, .num_heads = 6, .num_kv_heads = 2, .head_dim = 40};
  const std::int64_t tokens = s.batch * s.seq;
  const std::int64_t width = 10 * s.head_dim;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Values qkv = Random(tokens * width);
    const Values d_out = Random(tokens * 6 * s.head_dim);
    Env env(*device_, dtype);
    const Matrix x = env.In(qkv, tokens, width);
    const Matrix g = env.In(d_out, tokens, 6 * s.head_dim);
    std::vector<std::vector<std::byte>> first;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Matrix out = env.Out(tokens, 6 * s.head_dim);
      const Vector lse = env.OutVec(env.sums(), tokens * s.num_heads);
      const Matrix d_qkv = env.Out(tokens, width);
      const Matrix product = env.Out(width, width);
      Ops& ops = env.ops();
      FSDP_ASSERT_OK(ops.AttentionForward(env.stream(), x, s, {}, out, lse,
                                          env.Scratch(ops.AttentionScratchBytes(s, dtype, false))));
      FSDP_ASSERT_OK(ops.AttentionBackward(env.stream(), g, x, out, lse, s, {}, d_qkv,
                                           env.Scratch(ops.AttentionScratchBytes(s, dtype, true))));
      FSDP_ASSERT_OK(
          ops.MatMul(env.stream(), x, Transpose::kYes, x, Transpose::kNo, {}, product, false));
      const std::vector<std::vector<std::byte>> bytes = {env.Bytes(out), env.Bytes(lse),
                                                         env.Bytes(d_qkv), env.Bytes(product)};
      if (repeat == 0) first = bytes;
      EXPECT_EQ(bytes, first) << NameOf(dtype);
    }
  }
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ATTENTION_H_
