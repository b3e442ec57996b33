#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_LINEAR_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_LINEAR_H_

// Matrix products, column sums, addition, embedding, conversions.

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

struct MatMulCase {
  std::int64_t m, n, k;
  bool ta, tb, bias, accumulate;
  std::int64_t pad = 0;
  bool wide_out = false;  // bf16 operands, f32 output
};

inline Values RunMatMul(Env& env, const MatMulCase& c, const Values& a, const Values& b,
                        const Values& bias, const Values& before) {
  const Matrix ma = env.In(a, c.ta ? c.k : c.m, c.ta ? c.m : c.k, c.pad);
  const Matrix mb = env.In(b, c.tb ? c.n : c.k, c.tb ? c.k : c.n, c.pad);
  const Values initial = c.accumulate ? before : Values(c.m * c.n, std::nan(""));
  const Matrix out = env.InAs(c.wide_out ? env.sums() : env.dtype(), initial, c.m, c.n, c.pad);
  const auto transpose = [](bool yes) { return yes ? Transpose::kYes : Transpose::kNo; };
  FSDP_EXPECT_OK(env.ops().MatMul(env.stream(), ma, transpose(c.ta), mb, transpose(c.tb),
                                  c.bias ? env.Vec(bias) : Vector{}, out, c.accumulate));
  return env.Get(out);
}

inline Values Absolute(Values x) {
  for (double& value : x) value = std::abs(value);
  return x;
}

TEST_P(DeviceOpsContract, MatMul) {
  std::vector<MatMulCase> cases;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      cases.push_back({1, 1, 1, ta, tb, false, false});
      cases.push_back({7, 5, 3, ta, tb, true, true});
      cases.push_back({33, 65, 129, ta, tb, false, true});
      cases.push_back({130, 515, 70, ta, tb, true, false, 3});
      cases.push_back({259, 40, 257, ta, tb, false, false, 0, true});
      cases.push_back({1, 300, 64, ta, tb, true, true, 5, true});
    }
  }
  cases.push_back({64, 61, 24, false, true, true, false});
  cases.push_back({40, 48, 16, false, true, true, false, 3});
  cases.push_back({3, 4, 0, false, true, false, false});
  cases.push_back({3, 4, 0, false, true, false, true});
  cases.push_back({0, 4, 5, false, true, true, false});
  cases.push_back({4, 0, 5, false, true, true, false});
  for (const MatMulCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " m " << c.m << " n " << c.n << " k "
                                        << c.k << " ta " << c.ta << " tb " << c.tb);
      const Values a = Rounded(Random(c.m * c.k), dtype);
      const Values b = Rounded(Random(c.k * c.n), dtype);
      const Values bias = Rounded(Random(c.n, 3.0), dtype);
      const DType out_dtype = c.wide_out ? DType::kF32 : dtype;
      const Values before = Rounded(Random(c.m * c.n), out_dtype);
      Env here(*device_, dtype);
      Env truth(*truth_, DType::kF64);
      const Values got = RunMatMul(here, c, a, b, bias, before);
      const Values want = RunMatMul(truth, c, a, b, bias, before);
      // A sum of k products, the bias and the old value in f32, in any order: at most k + 2 errors
      // of u times the sum of sizes; then one rounding of the result. A second rounding to bf16
      // anywhere would exceed this.
      Values size = RunMatMul(truth, c, Absolute(a), Absolute(b), Absolute(bias), Absolute(before));
      for (double& value : size) value *= static_cast<double>(c.k + 2) * kUnitF32;
      ExpectClose("out", got, want, StoreUnit(out_dtype), size.empty() ? Values{0} : size);
    }
  }
}

TEST_P(DeviceOpsContract, MatMulGelu) {
  struct Case {
    std::int64_t m, n, k;
    bool tb, bias;
    std::int64_t pad = 0;
  };
  // A fused kernel takes rows of multiples of 16 bytes; other shapes take two.
  for (const Case& c : {Case{1, 1, 1, true, true}, Case{33, 72, 40, true, true},
                        Case{130, 512, 64, false, true}, Case{259, 136, 257, true, false},
                        Case{64, 61, 24, true, true}, Case{40, 48, 16, true, true, 3},
                        Case{40, 48, 16, false, true, 8}, Case{0, 8, 8, true, true}}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " m " << c.m << " n " << c.n << " k "
                                        << c.k << " tb " << c.tb << " pad " << c.pad);
      const Values a = Rounded(Random(c.m * c.k), dtype);
      const Values b = Rounded(Random(c.k * c.n), dtype);
      const Values bias = Rounded(Random(c.n, 3.0), dtype);
      const auto run = [&](Env& env, const Values& left, const Values& right,
                           const Values& added) -> std::pair<Values, Values> {
        const Matrix pre = env.Out(c.m, c.n, c.pad);
        const Matrix out = env.Out(c.m, c.n, c.pad);
        FSDP_EXPECT_OK(env.ops().MatMulGelu(
            env.stream(), env.In(left, c.m, c.k), env.In(right, c.tb ? c.n : c.k, c.tb ? c.k : c.n),
            c.tb ? Transpose::kYes : Transpose::kNo, c.bias ? env.Vec(added) : Vector{}, pre, out));
        return {env.Get(pre), env.Get(out)};
      };
      Env here(*device_, dtype);
      Env truth(*truth_, DType::kF64);
      const auto got = run(here, a, b, bias);
      const auto want = run(truth, a, b, bias);
      Values size = run(truth, Absolute(a), Absolute(b), Absolute(bias)).first;
      for (double& value : size) value *= static_cast<double>(c.k + 2) * kUnitF32;
      if (size.empty()) size = {0};
      ExpectClose("pre", got.first, want.first, StoreUnit(dtype), size);
      // GELU's slope is below 1.13, so an error of its input, with its rounding where two kernels
      // run, grows by no more. A fused kernel may take the hardware's tanh, relative error 2^-11
      // (its manual), which x/2 multiplies.
      const double tanh_unit = here.ops().FusesMatMulGelu(dtype) ? 0x1p-12 : 64 * kUnitF32;
      for (std::size_t i = 0; i < size.size() && i < want.first.size(); ++i) {
        size[i] = 1.13 * (size[i] + StoreUnit(dtype) * std::abs(want.first[i])) +
                  tanh_unit * std::abs(want.first[i]);
      }
      ExpectClose("gelu", got.second, want.second, StoreUnit(dtype), size);
    }
  }
}

TEST_P(DeviceOpsContract, MatMulKeepsNaN) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    Env env(*device_, dtype);
    Values a = Random(5 * 40);
    a[2 * 40 + 17] = std::nan("");
    const MatMulCase c = {5, 6, 40, false, true, false, false};
    const Values got = RunMatMul(env, c, a, Values(6 * 40, 0.0), {}, {});
    for (std::int64_t i = 0; i < 30; ++i) EXPECT_EQ(std::isnan(got[i]), i / 6 == 2) << i;
  }
}

TEST_P(DeviceOpsContract, ColumnSumAndAdd) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {0, 5}, {131, 67}, {300, 33}}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool accumulate : {false, true}) {
        for (const bool wide : {false, true}) {
          const Values x = Rounded(Random(rows * cols), dtype);
          const DType out_dtype = wide ? DType::kF32 : dtype;
          const Values before = Rounded(Random(cols), out_dtype);
          const auto run = [&](Env& env, const Values& in, const Values& old) {
            const Vector out = env.VecAs(wide ? env.sums() : env.dtype(),
                                         accumulate ? old : Values(cols, std::nan("")));
            FSDP_EXPECT_OK(
                env.ops().ColumnSum(env.stream(), env.In(in, rows, cols, 2), out, accumulate,
                                    env.Scratch(env.ops().ColumnSumScratchBytes(rows, cols))));
            return env.Get(out);
          };
          Env here(*device_, dtype);
          Env truth(*truth_, DType::kF64);
          // rows additions and one more: an error of (rows + 1) u times the sum of sizes.
          Values size = run(truth, Absolute(x), Absolute(before));
          for (double& value : size) value *= static_cast<double>(rows + 1) * kUnitF32;
          ExpectClose("column sum", run(here, x, before), run(truth, x, before),
                      StoreUnit(out_dtype), size);
        }
      }
      const Values a = Rounded(Random(rows * cols), dtype);
      const Values b = Rounded(Random(rows * cols), dtype);
      Env env(*device_, dtype);
      const Matrix y = env.In(a, rows, cols, 1);  // y is a
      FSDP_ASSERT_OK(env.ops().Add(env.stream(), y, env.In(b, rows, cols), y));
      Values want(a.size());
      for (std::size_t i = 0; i < a.size(); ++i) want[i] = a[i] + b[i];
      // One addition (f32), one rounding to store.
      ExpectClose("sum", env.Get(y), want, kUnitF32 + StoreUnit(dtype), {0});
    }
  }
}

TEST_P(DeviceOpsContract, EmbeddingForward) {
  const std::int64_t vocab = 11;
  const std::int64_t dim = 37;
  const std::int64_t seq = 6;
  for (const std::int64_t num_tokens : {0, 1, 18}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool positions : {false, true}) {
        const std::vector<std::int32_t> ids = RandomIds(num_tokens, vocab);
        const Values table = Rounded(Random(vocab * dim), dtype);
        const Values position = Rounded(Random(seq * dim), dtype);
        Env env(*device_, dtype);
        const Matrix out = env.Out(num_tokens, dim, 3);
        FSDP_ASSERT_OK(env.ops().EmbeddingForward(
            env.stream(), env.Ids(ids), env.In(table, vocab, dim),
            positions ? env.In(position, seq, dim, 1) : Matrix{}, seq, {}, out));
        Values want;
        for (std::int64_t i = 0; i < num_tokens * dim; ++i) {
          const std::int64_t t = i / dim;
          const double added = positions ? position[t % seq * dim + i % dim] : 0;
          want.push_back(table[ids[t] * dim + i % dim] + added);
        }
        // Without positions a copy, which is exact; with them one addition and one rounding.
        ExpectClose("out", env.Get(out), want, positions ? kUnitF32 + StoreUnit(dtype) : 0, {0});
      }
    }
  }
}

TEST_P(DeviceOpsContract, EmbeddingBackward) {
  const std::int64_t vocab = 9;
  const std::int64_t dim = 21;
  const std::int64_t seq = 5;
  for (const std::int64_t num_tokens : {0, 1, 60}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool accumulate : {false, true}) {
        for (const bool wide : {false, true}) {
          const DType out_dtype = wide ? DType::kF32 : dtype;
          const std::vector<std::int32_t> ids = RandomIds(num_tokens, vocab - 1);  // one unused row
          const Values dout = Rounded(Random(num_tokens * dim), dtype);
          const Values table = Rounded(Random(vocab * dim), out_dtype);
          const Values position = Rounded(Random(seq * dim), out_dtype);
          Env env(*device_, dtype);
          const auto output = [&](const Values& old, std::int64_t rows) {
            return accumulate ? env.InAs(out_dtype, old, rows, dim)
                              : env.OutAs(out_dtype, rows, dim);
          };
          const Matrix d_table = output(table, vocab);
          const Matrix d_position = output(position, seq);
          FSDP_ASSERT_OK(env.ops().EmbeddingBackward(env.stream(), env.Ids(ids),
                                                     env.In(dout, num_tokens, dim), seq, {},
                                                     d_table, d_position, accumulate));
          Values want_table = accumulate ? table : Values(vocab * dim, 0.0);
          Values want_position = accumulate ? position : Values(seq * dim, 0.0);
          for (std::int64_t i = 0; i < num_tokens * dim; ++i) {
            want_table[ids[i / dim] * dim + i % dim] += dout[i];
            want_position[i / dim % seq * dim + i % dim] += dout[i];
          }
          // At most num_tokens + 1 additions of values below MaxAbs, one rounding to store.
          const double size = (static_cast<double>(num_tokens) + 1) * MaxAbs(dout) + MaxAbs(table) +
                              MaxAbs(position);
          const Values slack = {(static_cast<double>(num_tokens) + 1) * kUnitF32 * size};
          ExpectClose("d_table", env.Get(d_table), want_table, StoreUnit(out_dtype), slack);
          ExpectClose("d_positions", env.Get(d_position), want_position, StoreUnit(out_dtype),
                      slack);
        }
      }
    }
  }
}

// More tokens and rows than one pass or block holds, half of them one token. Small whole numbers
// sum exactly in any order.
TEST_P(DeviceOpsContract, EmbeddingBackwardOfManyTokens) {
  const std::int64_t vocab = 3001;
  const std::int64_t dim = 24;
  const std::int64_t num_tokens = 10007;
  std::vector<std::int32_t> ids = RandomIds(num_tokens, static_cast<std::int32_t>(vocab));
  for (std::size_t t = 0; t < ids.size(); t += 2) ids[t] = 7;
  Values dout(num_tokens * dim);
  for (std::size_t i = 0; i < dout.size(); ++i) dout[i] = static_cast<double>(i % 5) - 2;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " accumulate " << accumulate);
      Env env(*device_, dtype);
      const Values before(vocab * dim, accumulate ? 3.0 : std::nan(""));
      const Matrix d_table = env.InAs(DType::kF32, before, vocab, dim);
      FSDP_ASSERT_OK(env.ops().EmbeddingBackward(env.stream(), env.Ids(ids),
                                                 env.In(dout, num_tokens, dim), num_tokens, {},
                                                 d_table, {}, accumulate));
      Values want(vocab * dim, accumulate ? 3.0 : 0.0);
      for (std::int64_t i = 0; i < num_tokens * dim; ++i) {
        want[ids[i / dim] * dim + i % dim] += dout[i];
      }
      EXPECT_EQ(env.Get(d_table), want);
    }
  }
}

// Positions that do not follow the sequence: forward bit for bit as a copy in their order gives,
// backward in sums that are exact.
TEST_P(DeviceOpsContract, EmbeddingTakesPositionIds) {
  const std::int64_t vocab = 11;
  const std::int64_t dim = 40;
  const std::int64_t seq = 300;
  for (const std::int64_t num_tokens : {0, 1, 600}) {
    const std::vector<std::int32_t> ids = RandomIds(num_tokens, vocab);
    const std::vector<std::int32_t> positions = RandomIds(num_tokens, seq);
    Values dout(num_tokens * dim);
    for (std::size_t i = 0; i < dout.size(); ++i) dout[i] = static_cast<double>(i % 5) - 2;
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " tokens " << num_tokens);
      const Values table = Rounded(Random(vocab * dim), dtype);
      const Values position = Rounded(Random(seq * dim), dtype);
      Env env(*device_, dtype);
      const Matrix out = env.Out(num_tokens, dim);
      FSDP_ASSERT_OK(
          env.ops().EmbeddingForward(env.stream(), env.Ids(ids), env.In(table, vocab, dim),
                                     env.In(position, seq, dim), seq, env.Ids(positions), out));
      Values in_order;
      for (const std::int32_t at : positions) {
        in_order.insert(in_order.end(), position.begin() + at * dim,
                        position.begin() + (at + 1) * dim);
      }
      const std::int64_t num_rows = std::max<std::int64_t>(num_tokens, 1);
      in_order.resize(num_rows * dim);
      const Matrix same = env.Out(num_tokens, dim);
      const auto none = env.Ids(positions).first(0);  // at an address
      FSDP_ASSERT_OK(
          env.ops().EmbeddingForward(env.stream(), env.Ids(ids), env.In(table, vocab, dim),
                                     env.In(in_order, num_rows, dim), num_rows, none, same));
      EXPECT_EQ(env.Get(out), env.Get(same));

      const Matrix d_table = env.OutAs(DType::kF32, vocab, dim);
      const Matrix d_position = env.OutAs(DType::kF32, seq, dim);
      FSDP_ASSERT_OK(env.ops().EmbeddingBackward(env.stream(), env.Ids(ids),
                                                 env.In(dout, num_tokens, dim), seq,
                                                 env.Ids(positions), d_table, d_position, false));
      Values want(seq * dim, 0.0);
      for (std::int64_t i = 0; i < num_tokens * dim; ++i) {
        want[positions[i / dim] * dim + i % dim] += dout[i];
      }
      EXPECT_EQ(env.Get(d_position), want);
    }
  }
}

TEST_P(DeviceOpsContract, CastRoundsToNearestEven) {
  // Around every kind of tie: the low half of f32 bits at 0x7FFF, 0x8000, 0x8001 below even and odd
  // bf16 values, signs, denormals, the largest values, infinities.
  std::vector<float> values;
  for (const std::uint32_t high : {0x3F80U, 0x3F81U, 0x0000U, 0x0001U, 0x7F7FU, 0x4049U}) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      for (const std::uint32_t sign : {0U, 0x8000U}) {
        const std::uint32_t bits = ((high | sign) << 16) | low;
        float value;
        std::memcpy(&value, &bits, 4);
        values.push_back(value);
      }
    }
  }
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  Env env(*device_, DType::kF32);
  const auto size = static_cast<std::int64_t>(values.size());
  const Vector from = {env.UploadRaw(values), DType::kF32, size};
  const Vector to = env.OutVec(DType::kBf16, size);
  FSDP_ASSERT_OK(env.ops().Cast(env.stream(), from, to));
  const auto got = env.DownloadRaw(static_cast<const std::uint16_t*>(to.data), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(FromBf16Bits(got[i])));
    } else {
      EXPECT_EQ(got[i], Bf16Bits(values[i])) << values[i];
    }
  }
  const Vector back = env.OutVec(DType::kF32, size);  // widening is exact
  FSDP_ASSERT_OK(env.ops().Cast(env.stream(), to, back));
  const Values wide = env.Get(back);
  for (std::size_t i = 0; i + 1 < values.size(); ++i) EXPECT_EQ(wide[i], FromBf16Bits(got[i]));
}

TEST_P(DeviceOpsContract, Accumulate) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t size : {0, 1, 1000}) {
      const Values from = Rounded(Random(size), dtype);
      const Values to = Rounded(Random(size), DType::kF32);
      Env env(*device_, dtype);
      const Vector out = env.SumVec(to);
      FSDP_ASSERT_OK(env.ops().Accumulate(env.stream(), env.Vec(from), out));
      Values want(to);
      for (std::int64_t i = 0; i < size; ++i) want[i] += from[i];
      ExpectClose("to", env.Get(out), want, kUnitF32, {0});  // one f32 addition
    }
  }
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_LINEAR_H_
