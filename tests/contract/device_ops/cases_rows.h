#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ROWS_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ROWS_H_

// Norms, activations and rotary positions: operations on rows.

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

// Whether a backward pass writes the forward's output again, and into what.
enum class Redo { kNo, kApart, kInPlace };

struct NormCase {
  bool layer, delta, alias_sum, residual, alias_dx, accumulate, wide_weight;
  std::int64_t rows, cols;
  Redo redo = Redo::kNo;  // in place: of dy
};

struct NormResult {
  Values sum, y, mean, rstd;
};

inline NormResult RunNormForward(Env& env, const NormCase& c, const Values& x, const Values& delta,
                                 const Values& weight, const Values& bias) {
  const Matrix mx = env.In(x, c.rows, c.cols, 1);
  const Matrix sum = c.alias_sum ? mx : env.Out(c.rows, c.cols, 1);
  const Matrix y = env.Out(c.rows, c.cols, 2);
  const Vector mean = env.OutVec(env.sums(), c.rows);
  const Vector rstd = env.OutVec(env.sums(), c.rows);
  const Matrix md = c.delta ? env.In(delta, c.rows, c.cols) : Matrix{};
  if (c.layer) {
    FSDP_EXPECT_OK(env.ops().LayerNormForward(env.stream(), mx, md, env.Vec(weight), env.Vec(bias),
                                              1e-5, sum, y, mean, rstd));
  } else {
    FSDP_EXPECT_OK(
        env.ops().RmsNormForward(env.stream(), mx, md, env.Vec(weight), 1e-5, sum, y, rstd));
  }
  return {c.delta ? env.Get(sum) : x, env.Get(y), c.layer ? env.Get(mean) : Values{},
          env.Get(rstd)};
}

struct NormGradients {
  Values dx, d_weight, d_bias, y;
};

inline NormGradients RunNormBackward(Env& env, const NormCase& c, const Values& dy, const Values& x,
                                     const Values& weight, const Values& bias,
                                     const NormResult& forward, const Values& residual,
                                     const Values& before) {
  const Matrix mdy = env.In(dy, c.rows, c.cols, 1);
  const Matrix mr = c.residual ? env.In(residual, c.rows, c.cols, 1) : Matrix{};
  const Matrix dx = !c.alias_dx ? env.Out(c.rows, c.cols, 3) : c.residual ? mr : mdy;
  const bool redo = c.redo != Redo::kNo;
  const Matrix y = !redo ? Matrix{} : c.redo == Redo::kApart ? env.Out(c.rows, c.cols, 2) : mdy;
  const Vector redo_bias = redo ? env.Vec(bias) : Vector{};
  const DType weight_dtype = c.wide_weight ? env.sums() : env.dtype();
  const Values initial = c.accumulate ? before : Values(c.cols, std::nan(""));
  const Vector d_weight = env.VecAs(weight_dtype, initial);
  const Vector d_bias = env.VecAs(weight_dtype, initial);
  const auto scratch = env.Scratch(env.ops().NormBackwardScratchBytes(c.rows, c.cols));
  const Matrix mx = env.In(x, c.rows, c.cols);
  const Vector rstd = env.SumVec(forward.rstd);
  if (c.layer) {
    FSDP_EXPECT_OK(env.ops().LayerNormBackward(env.stream(), mdy, mx, env.Vec(weight), redo_bias,
                                               env.SumVec(forward.mean), rstd, mr, dx, y, d_weight,
                                               d_bias, c.accumulate, scratch));
  } else {
    FSDP_EXPECT_OK(env.ops().RmsNormBackward(env.stream(), mdy, mx, env.Vec(weight), rstd, mr, dx,
                                             y, d_weight, c.accumulate, scratch));
  }
  return {env.Get(dx), env.Get(d_weight), c.layer ? env.Get(d_bias) : Values{},
          redo ? env.Get(y) : Values{}};
}

TEST_P(DeviceOpsContract, NormForwardAndBackward) {
  std::vector<NormCase> cases;
  for (const bool layer : {false, true}) {
    cases.push_back({layer, false, false, false, false, false, true, 1, 1});
    cases.push_back({layer, true, false, true, false, true, true, 5, 37, Redo::kInPlace});
    cases.push_back({layer, true, true, true, true, false, false, 67, 129, Redo::kApart});
    cases.push_back({layer, false, false, false, true, true, false, 130, 64});
    cases.push_back({layer, false, false, true, true, true, true, 141, 64, Redo::kInPlace});
    cases.push_back({layer, true, false, true, false, false, true, 0, 16, Redo::kApart});
  }
  for (const NormCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      SCOPED_TRACE(::testing::Message() << NameOf(dtype) << (c.layer ? " layer " : " rms ")
                                        << c.rows << " x " << c.cols);
      const std::int64_t size = c.rows * c.cols;
      const Values x = Rounded(Random(size), dtype);
      const Values delta = Rounded(Random(size), dtype);
      const Values weight = Rounded(Random(c.cols), dtype);
      const Values bias = Rounded(Random(c.cols), dtype);
      Env here(*device_, dtype);
      Env truth(*truth_, DType::kF64);
      const NormResult got = RunNormForward(here, c, x, delta, weight, bias);
      Values want_sum = x;
      for (std::int64_t i = 0; c.delta && i < size; ++i) want_sum[i] += delta[i];
      ExpectClose("sum", got.sum, want_sum, kUnitF32 + StoreUnit(dtype), {0});

      // The norm is of the sum as it was stored: give the truth that sum.
      NormCase plain = c;
      plain.delta = plain.alias_sum = false;
      const NormResult want = RunNormForward(truth, plain, got.sum, {}, weight, bias);
      // mean and variance: sums of cols terms; y: a handful of roundings more. Each relative to
      // values of size 1 (rstd x) times the weight; mean is subtracted, so its error is in x's
      // size.
      const double terms = static_cast<double>(c.cols) + 8;
      const double unit = terms * kUnitF32;
      const double spread = 1 + MaxAbs(got.sum) * MaxAbs(want.rstd);
      ExpectClose("mean", got.mean, want.mean, 0, {unit * MaxAbs(got.sum)});
      ExpectClose("rstd", got.rstd, want.rstd, unit * spread, {0});
      ExpectClose("y", got.y, want.y, StoreUnit(dtype),
                  {unit * spread * (MaxAbs(want.y) + MaxAbs(weight) + MaxAbs(bias))});

      const Values dy = Rounded(Random(size), dtype);
      const Values residual = Rounded(Random(size), dtype);
      const Values before = Rounded(Random(c.cols), c.wide_weight ? DType::kF32 : dtype);
      NormResult kept = want;  // the statistics as f32 holds them
      kept.mean = Rounded(kept.mean, DType::kF32);
      kept.rstd = Rounded(kept.rstd, DType::kF32);
      const NormGradients grads =
          RunNormBackward(here, c, dy, got.sum, weight, bias, kept, residual, before);
      const NormGradients wants =
          RunNormBackward(truth, c, dy, got.sum, weight, bias, kept, residual, before);
      const double g = MaxAbs(dy) * MaxAbs(weight);
      const double xhat = 2 * MaxAbs(got.sum) * MaxAbs(kept.rstd);
      // dx = rstd (g - mean(g) - xhat mean(g xhat)) + residual.
      ExpectClose("dx", grads.dx, wants.dx, StoreUnit(dtype),
                  {unit * (MaxAbs(kept.rstd) * g * (2 + xhat * xhat) + MaxAbs(residual))});
      if (c.redo != Redo::kNo) {  // as the forward's y, from statistics with one rounding
        ExpectClose("y again", grads.y, want.y, StoreUnit(dtype),
                    {8 * kUnitF32 * (spread * MaxAbs(weight) + MaxAbs(bias))});
      }
      // Sums of `rows` products dy xhat (and of dy), plus the old value.
      const double rows = static_cast<double>(c.rows) + 4;
      const double weight_unit = c.wide_weight ? 0 : StoreUnit(dtype);
      const Values slack = {rows * kUnitF32 * (rows * MaxAbs(dy) * (1 + xhat) + MaxAbs(before))};
      ExpectClose("d_weight", grads.d_weight, wants.d_weight, weight_unit, slack);
      ExpectClose("d_bias", grads.d_bias, wants.d_bias, weight_unit, slack);
    }
  }
}

// A block computes the same whether its norms' outputs were kept or are written again.
TEST_P(DeviceOpsContract, NormBackwardWritesTheForwardsBitsAgain) {
  for (const std::int64_t cols : {37, 128, 2048}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool layer : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << NameOf(dtype) << (layer ? " layer " : " rms ") << cols);
        const std::int64_t rows = 7;
        Env env(*device_, dtype);
        Ops& ops = env.ops();
        Stream& st = env.stream();
        const Matrix x = env.In(Random(rows * cols), rows, cols);
        const Vector weight = env.Vec(Random(cols));
        const Vector bias = env.Vec(Random(cols));
        const Matrix y = env.Out(rows, cols);
        const Vector mean = env.OutVec(DType::kF32, rows);
        const Vector rstd = env.OutVec(DType::kF32, rows);
        const Matrix dy = env.In(Random(rows * cols), rows, cols);
        const Matrix dx = env.Out(rows, cols);
        const Vector d_weight = env.OutVec(DType::kF32, cols);
        const Vector d_bias = env.OutVec(DType::kF32, cols);
        const auto scratch = env.Scratch(ops.NormBackwardScratchBytes(rows, cols));
        if (layer) {
          FSDP_ASSERT_OK(ops.LayerNormForward(st, x, {}, weight, bias, 1e-5, {}, y, mean, rstd));
          FSDP_ASSERT_OK(ops.LayerNormBackward(st, dy, x, weight, bias, mean, rstd, {}, dx, dy,
                                               d_weight, d_bias, false, scratch));
        } else {
          FSDP_ASSERT_OK(ops.RmsNormForward(st, x, {}, weight, 1e-5, {}, y, rstd));
          FSDP_ASSERT_OK(
              ops.RmsNormBackward(st, dy, x, weight, rstd, {}, dx, dy, d_weight, false, scratch));
        }
        EXPECT_EQ(env.Get(dy), env.Get(y));
      }
    }
  }
}

// An activation's inputs: normal values and the far ends, where exp overflows or vanishes.
inline Values ActivationInputs(Values values) {
  const Values ends = {0.0, -0.0, 1e-6, -1e-6, 20, -20, 90, -90, 105, -105, 1e4, -1e4};
  for (std::size_t i = 0; i < ends.size() && i < values.size(); ++i) values[i] = ends[i];
  return values;
}

TEST_P(DeviceOpsContract, Activations) {
  using Forward = absl::Status (Ops::*)(Stream&, const Matrix&, const Matrix&);
  using Backward =
      absl::Status (Ops::*)(Stream&, const Matrix&, const Matrix&, const Matrix&, const Matrix&);
  const std::pair<Forward, Backward> functions[] = {{&Ops::SiluForward, &Ops::SiluBackward},
                                                    {&Ops::GeluForward, &Ops::GeluBackward}};
  for (const auto& [forward, backward] : functions) {
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{0, 7}, {1, 1}, {9, 53}}) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        const Values x = Rounded(ActivationInputs(Random(rows * cols, 3.0)), dtype);
        const Values dy = Rounded(Random(rows * cols), dtype);
        const auto run = [&](Env& env, bool alias, Redo redo) -> std::pair<Values, Values> {
          const Matrix mx = env.In(x, rows, cols, 2);
          const Matrix y = env.Out(rows, cols, 1);
          FSDP_EXPECT_OK((env.ops().*forward)(env.stream(), mx, y));
          const Matrix mdy = env.In(dy, rows, cols, 2);
          const Matrix dx = alias ? mdy : env.Out(rows, cols, 2);
          const Matrix again = redo == Redo::kNo      ? Matrix{}
                               : redo == Redo::kApart ? env.Out(rows, cols, 3)
                                                      : mx;
          const Values kept = env.Get(y);
          FSDP_EXPECT_OK((env.ops().*backward)(env.stream(), mdy, mx, dx, again));
          if (redo != Redo::kNo) {
            EXPECT_EQ(env.Get(again), kept) << "y again";
          }
          return {kept, env.Get(dx)};
        };
        Env here(*device_, dtype);
        Env truth(*truth_, DType::kF64);
        const auto got = run(here, true, Redo::kNo);
        const auto fused = run(here, false, Redo::kApart);
        const auto in_place = run(here, true, Redo::kInPlace);
        const auto want = run(truth, false, Redo::kNo);
        // sigmoid(a) has a relative error of about |a| u from its argument (3 roundings of it for
        // gelu) where exp matters, |a| < 104, and 8 u else; results below exp(-87) may vanish.
        const double unit = (8 + 4 * 104) * kUnitF32;
        ExpectClose("y", got.first, want.first, unit + StoreUnit(dtype), {1e-30});
        // The derivative is a difference of terms of size |x| s and may cancel.
        Values slack(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double reach = std::min(std::abs(x[i]), 30.0);
          slack[i] = 32 * kUnitF32 * std::abs(dy[i]) * (1 + reach * reach);
        }
        if (slack.empty()) slack = {0};
        for (const Values& dx : {got.second, fused.second, in_place.second}) {
          ExpectClose("dx", dx, want.second, StoreUnit(dtype), slack);
        }
      }
    }
  }
}

TEST_P(DeviceOpsContract, SwiGlu) {
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {1, 1}, {11, 45}}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const Values gate_up = Rounded(ActivationInputs(Random(rows * 2 * cols, 2.0)), dtype);
      const Values dh = Rounded(Random(rows * cols), dtype);
      const auto run = [&](Env& env, bool alias, Redo redo) -> std::pair<Values, Values> {
        const Matrix in = env.In(gate_up, rows, 2 * cols, 1);
        const Matrix h = env.Out(rows, cols, 1);
        FSDP_EXPECT_OK(env.ops().SwiGluForward(env.stream(), in, h));
        const Matrix out = alias ? in : env.Out(rows, 2 * cols, 3);
        const Matrix d = env.In(dh, rows, cols);
        const Matrix again = redo == Redo::kNo      ? Matrix{}
                             : redo == Redo::kApart ? env.Out(rows, cols, 2)
                                                    : d;
        FSDP_EXPECT_OK(env.ops().SwiGluBackward(env.stream(), d, in, out, again));
        if (redo != Redo::kNo) {
          EXPECT_EQ(env.Get(again), env.Get(h)) << "h again";
        }
        return {env.Get(h), env.Get(out)};
      };
      Env here(*device_, dtype);
      Env truth(*truth_, DType::kF64);
      const auto got = run(here, true, Redo::kNo);
      const auto fused = run(here, false, Redo::kApart);
      const auto in_place = run(here, true, Redo::kInPlace);
      const auto want = run(truth, false, Redo::kNo);
      // As for Activations, times the other factor.
      ExpectClose("h", got.first, want.first, (8 + 4 * 104) * kUnitF32 + StoreUnit(dtype), {1e-26});
      Values slack(gate_up.size());
      for (std::size_t i = 0; i < slack.size(); ++i) {
        const std::size_t row = i / (2 * cols);
        const std::size_t col = i % cols;
        const double gate = std::min(std::abs(gate_up[row * 2 * cols + col]), 30.0);
        const double up = std::abs(gate_up[row * 2 * cols + cols + col]);
        slack[i] = 32 * kUnitF32 * std::abs(dh[row * cols + col]) *
                   ((1 + gate * gate) * up + std::abs(gate_up[row * 2 * cols + col]));
      }
      if (slack.empty()) slack = {0};
      for (const Values& d_gate_up : {got.second, fused.second, in_place.second}) {
        ExpectClose("d_gate_up", d_gate_up, want.second, StoreUnit(dtype), slack);
      }
    }
  }
}

TEST_P(DeviceOpsContract, RopeRotatesByPositionAndBack) {
  const AttentionShape shape = {
      .batch = 2, .seq = 5, .num_heads = 3, .num_kv_heads = 1, .head_dim = 22};
  const std::int64_t rows = shape.batch * shape.seq;
  const std::int64_t cols = 5 * shape.head_dim;
  Values cos;
  Values sin;
  for (std::int64_t i = 0; i < shape.seq * 11; ++i) {
    const double angle = static_cast<double>(i / 11) * std::pow(10000.0, -(i % 11) / 11.0);
    cos.push_back(Rounded(std::cos(angle), DType::kF32));
    sin.push_back(Rounded(std::sin(angle), DType::kF32));
  }
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const bool inverse : {false, true}) {
      const Values qkv = Rounded(Random(rows * cols), dtype);
      Env env(*device_, dtype);
      const Matrix x = env.In(qkv, rows, cols, 3);
      FSDP_ASSERT_OK(env.ops().Rope(env.stream(), x, shape, env.InAs(env.sums(), cos, 5, 11),
                                    env.InAs(env.sums(), sin, 5, 11), inverse));
      Values want = qkv;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < 4; ++head) {
          for (std::int64_t i = 0; i < 11; ++i) {
            const std::int64_t low = row * cols + head * 22 + i;
            const double c = cos[row % 5 * 11 + i];
            const double s = (inverse ? -1 : 1) * sin[row % 5 * 11 + i];
            want[low] = qkv[low] * c - qkv[low + 11] * s;
            want[low + 11] = qkv[low + 11] * c + qkv[low] * s;
          }
        }
      }
      // Two products and a sum; values (the fourth group) are untouched.
      ExpectClose("qkv", env.Get(x), want, StoreUnit(dtype), {4 * kUnitF32 * MaxAbs(qkv)});
      const Values got = env.Get(x);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 4 * 22; i < cols; ++i) {
          EXPECT_EQ(got[row * cols + i], qkv[row * cols + i]);
        }
      }
    }
  }
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_ROWS_H_
