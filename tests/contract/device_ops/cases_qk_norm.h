#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_QK_NORM_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_QK_NORM_H_

// The norm of query and key heads with rope behind it.

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

struct QkNormCase {
  std::int64_t batch, seq;
  int num_heads, num_kv_heads;
  std::int64_t head_dim;
  std::int64_t pad = 0;  // between rows
  bool accumulate = false, wide_weight = true;

  [[nodiscard]] AttentionShape shape() const {
    return {batch, seq, num_heads, num_kv_heads, head_dim};
  }
  [[nodiscard]] std::int64_t tokens() const { return batch * seq; }
  [[nodiscard]] std::int64_t heads() const { return num_heads + num_kv_heads; }
  [[nodiscard]] std::int64_t qkv_dim() const { return (heads() + num_kv_heads) * head_dim; }
};

struct QkNormInput {
  Values qkv, d_qkv, q_weight, k_weight, cos, sin, before;
};

struct QkNormResult {
  Values qkv, raw, rstd, d_qkv, d_q_weight, d_k_weight;
};

inline QkNormResult RunQkNorm(Env& env, const QkNormCase& c, const QkNormInput& in) {
  const AttentionShape shape = c.shape();
  const std::int64_t half = c.head_dim / 2;
  QkNormOperands operands;
  operands.q_weight = env.Vec(in.q_weight);
  operands.k_weight = env.Vec(in.k_weight);
  operands.cos = env.InAs(env.sums(), in.cos, c.seq, half, c.pad);
  operands.sin = env.InAs(env.sums(), in.sin, c.seq, half, c.pad);
  operands.raw = env.Out(c.tokens(), c.heads() * c.head_dim, c.pad);
  operands.rstd = env.OutVec(env.sums(), c.heads() * c.tokens());
  const Matrix qkv = env.In(in.qkv, c.tokens(), c.qkv_dim(), c.pad);
  FSDP_EXPECT_OK(env.ops().QkNormRope(env.stream(), qkv, shape, 1e-6, operands));
  const Matrix d_qkv = env.In(in.d_qkv, c.tokens(), c.qkv_dim(), c.pad);
  const DType weight_dtype = c.wide_weight ? env.sums() : env.dtype();
  const Values initial = c.accumulate ? in.before : Values(c.head_dim, std::nan(""));
  const Vector d_q_weight = env.VecAs(weight_dtype, initial);
  const Vector d_k_weight = env.VecAs(weight_dtype, initial);
  FSDP_EXPECT_OK(env.ops().QkNormRopeBackward(
      env.stream(), d_qkv, shape, operands, d_q_weight, d_k_weight, c.accumulate,
      env.Scratch(env.ops().QkNormBackwardScratchBytes(c.tokens(), c.head_dim))));
  return {env.Get(qkv),   env.Get(operands.raw), env.Get(operands.rstd),
          env.Get(d_qkv), env.Get(d_q_weight),   env.Get(d_k_weight)};
}

TEST_P(DeviceOpsContract, QkNormRopeForwardAndBackward) {
  const QkNormCase cases[] = {
      {2, 5, 4, 2, 6, 3, true},
      {1, 3, 3, 1, 2, 0, false, false},
      {2, 7, 2, 1, 64},
      {1, 9, 11, 1, 128, 8, true, false},
      {1, 4, 2, 2, 256, 1},
      {3, 3, 2, 1, 22},
      {0, 4, 2, 1, 8, 0, true},
      {0, 4, 2, 1, 8},
      {5, 140, 2, 1, 16, 0, true, true},
  };
  for (const QkNormCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      SCOPED_TRACE(testing::Message()
                   << NameOf(dtype) << " head_dim " << c.head_dim << " tokens " << c.tokens());
      QkNormInput in;
      in.qkv = Rounded(Random(c.tokens() * c.qkv_dim(), 2), dtype);
      in.d_qkv = Rounded(Random(c.tokens() * c.qkv_dim()), dtype);
      in.q_weight = Rounded(Random(c.head_dim), dtype);
      in.k_weight = Rounded(Random(c.head_dim), dtype);
      in.before = Rounded(Random(c.head_dim), c.wide_weight ? DType::kF32 : dtype);
      for (const double angle : Random(c.seq * (c.head_dim / 2), 3)) {
        in.cos.push_back(Rounded(1.2 * std::cos(angle), DType::kF32));
        in.sin.push_back(Rounded(1.2 * std::sin(angle), DType::kF32));
      }
      Env env(*device_, dtype);
      Env truth(*truth_, DType::kF64);
      const QkNormResult got = RunQkNorm(env, c, in);
      const QkNormResult want = RunQkNorm(truth, c, in);
      // The mean of Dh squares, then about ten products and sums of values as large as the largest
      // result; bf16 may be rounded once between norm and rope too.
      const double terms = static_cast<double>(c.head_dim) / 2 + 16;
      const double once = terms * kUnitF32 + 2 * StoreUnit(dtype);
      EXPECT_EQ(got.raw, want.raw);
      ExpectClose("rstd", got.rstd, want.rstd, terms * kUnitF32, {0});
      ExpectClose("qkv", got.qkv, want.qkv, 0, {2 * once * MaxAbs(want.qkv)});
      ExpectClose("d_qkv", got.d_qkv, want.d_qkv, 0, {4 * once * MaxAbs(want.d_qkv)});
      // A sum over tokens and heads of dy xhat, where |xhat| <= sqrt(Dh) and |dy| <= 1.2 sqrt(2)
      // max|d|; dy may have been rounded.
      const double rows = static_cast<double>(c.tokens() * c.num_heads);
      const double each = 1.7 * MaxAbs(in.d_qkv) * std::sqrt(static_cast<double>(c.head_dim));
      const double sum = (rows + terms) * kUnitF32 * std::sqrt(rows) * each +
                         StoreUnit(dtype) * std::sqrt(rows) * each;
      const double store = c.wide_weight ? kUnitF32 : StoreUnit(dtype) + kUnitF32;
      ExpectClose("d_q_weight", got.d_q_weight, want.d_q_weight, store, {sum});
      ExpectClose("d_k_weight", got.d_k_weight, want.d_k_weight, store, {sum});
      // Values beyond q and k are left alone, to the bit.
      for (std::int64_t t = 0; t < c.tokens(); ++t) {
        for (std::int64_t i = c.heads() * c.head_dim; i < c.qkv_dim(); ++i) {
          const auto at = static_cast<std::size_t>(t * c.qkv_dim() + i);
          ASSERT_EQ(got.qkv[at], in.qkv[at]);
          ASSERT_EQ(got.d_qkv[at], in.d_qkv[at]);
        }
      }
      Env again(*device_, dtype);
      const QkNormResult second = RunQkNorm(again, c, in);
      EXPECT_EQ(second.d_q_weight, got.d_q_weight);
      EXPECT_EQ(second.d_qkv, got.d_qkv);
    }
  }
}

TEST_P(DeviceOpsContract, QkNormRopeNamesWhatDoesNotFit) {
  const QkNormCase c{1, 4, 2, 1, 8};
  Env env(*device_, DType::kF32);
  const Matrix qkv = env.Out(c.tokens(), c.qkv_dim());
  QkNormOperands operands;
  operands.q_weight = operands.k_weight = env.Vec(Values(8, 1));
  operands.cos = operands.sin = env.Out(4, 4);
  operands.raw = env.Out(4, 24);
  operands.rstd = env.OutVec(DType::kF32, 12);
  const auto message = [&](const QkNormOperands& wrong) {
    return std::string(env.ops().QkNormRope(env.stream(), qkv, c.shape(), 1e-6, wrong).message());
  };
  QkNormOperands wrong = operands;
  wrong.k_weight = env.Vec(Values(7, 1));
  EXPECT_THAT(message(wrong), testing::HasSubstr("k_weight has 7 elements, must have 8"));
  wrong = operands;
  wrong.raw = env.Out(4, 16);
  EXPECT_THAT(message(wrong), testing::HasSubstr("raw is [4, 16], must be [4, 24]"));
  wrong = operands;
  wrong.sin = env.Out(4, 8);
  EXPECT_THAT(message(wrong), testing::HasSubstr("sin is [4, 8], must be [4, 4]"));
  const Vector d_weight = env.OutVec(DType::kF32, 8);
  const absl::Status status = env.ops().QkNormRopeBackward(
      env.stream(), qkv, c.shape(), operands, d_weight, env.OutVec(DType::kF32, 9), false,
      env.Scratch(env.ops().QkNormBackwardScratchBytes(4, 8)));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("d_k_weight has 9 elements"));
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_QK_NORM_H_
