// The backward operations against central finite differences of the forward ones, in f64.
//
// With step h the difference quotient of a smooth function errs by h^2/6 |f'''| plus eps |f| / h.
// For h = 1e-5, values near 1 and sums of some hundred terms that is below 1e-8; 1e-7 of the
// gradient's largest element is asked for.

#include <gtest/gtest.h>

#include <functional>

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {
namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

class CpuGradientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCpuDevice({.num_threads = 1});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
  }

  Values Random(std::int64_t size) {
    std::normal_distribution<double> normal;
    Values values(size);
    for (double& value : values) value = normal(random_);
    return values;
  }
  // The scalar that gradients are of: sum of g out.
  static double Dot(const Values& g, const Values& out) {
    double total = 0;
    for (std::size_t i = 0; i < g.size(); ++i) total += g[i] * out[i];
    return total;
  }
  // Compares `gradient` with the differences of `scalar` around `at`.
  void Check(const char* what, const Values& at, const Values& gradient,
             const std::function<double(const Values&)>& scalar) {
    ASSERT_EQ(at.size(), gradient.size()) << what;
    Values x = at;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = at[i] + kStep;
      const double above = scalar(x);
      x[i] = at[i] - kStep;
      const double below = scalar(x);
      x[i] = at[i];
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), kTolerance * (1 + MaxAbs(gradient)))
          << what << "[" << i << "]";
    }
  }
  Env NewEnv() { return Env(*device_, DType::kF64); }

  std::unique_ptr<Device> device_;
  std::mt19937 random_{99};
};

TEST_F(CpuGradientsTest, MatMulWithBias) {
  const Values x = Random(3 * 5);
  const Values w = Random(4 * 5);
  const Values b = Random(4);
  const Values g = Random(3 * 4);
  const auto forward = [&](const Values& xs, const Values& ws, const Values& bs) {
    Env env = NewEnv();
    const Matrix y = env.Out(3, 4);
    FSDP_EXPECT_OK(env.ops().MatMul(env.stream(), env.In(xs, 3, 5), Transpose::kNo,
                                    env.In(ws, 4, 5), Transpose::kYes, env.Vec(bs), y, false));
    return Dot(g, env.Get(y));
  };
  Env env = NewEnv();
  const Matrix dy = env.In(g, 3, 4);
  const Matrix dx = env.Out(3, 5);
  const Matrix dw = env.Out(4, 5);
  const Vector db = env.OutVec(DType::kF64, 4);
  FSDP_ASSERT_OK(env.ops().MatMul(env.stream(), dy, Transpose::kNo, env.In(w, 4, 5), Transpose::kNo,
                                  {}, dx, false));
  FSDP_ASSERT_OK(env.ops().MatMul(env.stream(), dy, Transpose::kYes, env.In(x, 3, 5),
                                  Transpose::kNo, {}, dw, false));
  FSDP_ASSERT_OK(env.ops().ColumnSum(env.stream(), dy, db, false,
                                     env.Scratch(env.ops().ColumnSumScratchBytes(3, 4))));
  Check("dx", x, env.Get(dx), [&](const Values& v) { return forward(v, w, b); });
  Check("dw", w, env.Get(dw), [&](const Values& v) { return forward(x, v, b); });
  Check("db", b, env.Get(db), [&](const Values& v) { return forward(x, w, v); });
}

TEST_F(CpuGradientsTest, EmbeddingWithPositions) {
  const std::vector<std::int32_t> tokens = {2, 0, 2, 1, 2, 0};
  const std::vector<std::int32_t> in_order;
  const std::vector<std::int32_t> reset = {0, 0, 1, 0, 1, 2};
  for (const std::vector<std::int32_t>& ids : {in_order, reset}) {
    const Values table = Random(4 * 3);
    const Values positions = Random(3 * 3);
    const Values g = Random(6 * 3);
    const auto forward = [&](const Values& t, const Values& p) {
      Env env = NewEnv();
      const Matrix out = env.Out(6, 3);
      FSDP_EXPECT_OK(env.ops().EmbeddingForward(env.stream(), env.Ids(tokens), env.In(t, 4, 3),
                                                env.In(p, 3, 3), 3, env.Ids(ids), out));
      return Dot(g, env.Get(out));
    };
    Env env = NewEnv();
    const Matrix d_table = env.Out(4, 3);
    const Matrix d_positions = env.Out(3, 3);
    FSDP_ASSERT_OK(env.ops().EmbeddingBackward(env.stream(), env.Ids(tokens), env.In(g, 6, 3), 3,
                                               env.Ids(ids), d_table, d_positions, false));
    Check("d_table", table, env.Get(d_table),
          [&](const Values& v) { return forward(v, positions); });
    Check("d_positions", positions, env.Get(d_positions),
          [&](const Values& v) { return forward(table, v); });
  }
}

class CpuNormGradientsTest : public CpuGradientsTest, public ::testing::WithParamInterface<bool> {};

TEST_P(CpuNormGradientsTest, Norm) {
  const bool layer = GetParam();
  const Values x = Random(3 * 7);
  const Values w = Random(7);
  const Values b = Random(7);
  const Values g = Random(3 * 7);
  const Values residual = Random(3 * 7);
  struct Forward {
    double scalar;
    Values mean, rstd, y;
  };
  const auto forward = [&](const Values& xs, const Values& ws, const Values& bs) -> Forward {
    Env env = NewEnv();
    const Matrix y = env.Out(3, 7);
    const Vector mean = env.OutVec(DType::kF64, 3);
    const Vector rstd = env.OutVec(DType::kF64, 3);
    if (layer) {
      FSDP_EXPECT_OK(env.ops().LayerNormForward(env.stream(), env.In(xs, 3, 7), {}, env.Vec(ws),
                                                env.Vec(bs), 1e-3, {}, y, mean, rstd));
    } else {
      FSDP_EXPECT_OK(env.ops().RmsNormForward(env.stream(), env.In(xs, 3, 7), {}, env.Vec(ws), 1e-3,
                                              {}, y, rstd));
    }
    // The residual's path adds sum(residual x) to the scalar.
    return {Dot(g, env.Get(y)) + Dot(residual, xs), env.Get(mean), env.Get(rstd), env.Get(y)};
  };
  const Forward kept = forward(x, w, b);
  Env env = NewEnv();
  const Matrix dx = env.Out(3, 7);
  const Matrix again = env.Out(3, 7);  // the forward's output
  const Vector dw = env.OutVec(DType::kF64, 7);
  const Vector db = env.OutVec(DType::kF64, 7);
  const auto scratch = env.Scratch(env.ops().NormBackwardScratchBytes(3, 7));
  if (layer) {
    FSDP_ASSERT_OK(env.ops().LayerNormBackward(
        env.stream(), env.In(g, 3, 7), env.In(x, 3, 7), env.Vec(w), env.Vec(b), env.Vec(kept.mean),
        env.Vec(kept.rstd), env.In(residual, 3, 7), dx, again, dw, db, false, scratch));
    Check("db", b, env.Get(db), [&](const Values& v) { return forward(x, w, v).scalar; });
  } else {
    FSDP_ASSERT_OK(env.ops().RmsNormBackward(env.stream(), env.In(g, 3, 7), env.In(x, 3, 7),
                                             env.Vec(w), env.Vec(kept.rstd), env.In(residual, 3, 7),
                                             dx, again, dw, false, scratch));
  }
  EXPECT_EQ(env.Get(again), kept.y);
  Check("dx", x, env.Get(dx), [&](const Values& v) { return forward(v, w, b).scalar; });
  Check("dw", w, env.Get(dw), [&](const Values& v) { return forward(x, v, b).scalar; });
}

INSTANTIATE_TEST_SUITE_P(RmsAndLayer, CpuNormGradientsTest, ::testing::Bool());

TEST_F(CpuGradientsTest, Rope) {
  const AttentionShape shape = {
      .batch = 1, .seq = 3, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  const Values cos = {1, 1, 0.6, 0.8, -0.28, 0.28};
  const Values sin = {0, 0, 0.8, 0.6, 0.96, -0.96};
  const Values x = Random(3 * 16);
  const Values g = Random(3 * 16);
  const auto rotate = [&](const Values& values, bool inverse) {
    Env env = NewEnv();
    const Matrix m = env.In(values, 3, 16);
    FSDP_EXPECT_OK(
        env.ops().Rope(env.stream(), m, shape, env.In(cos, 3, 2), env.In(sin, 3, 2), inverse));
    return env.Get(m);
  };
  Check("dx", x, rotate(g, true), [&](const Values& v) { return Dot(g, rotate(v, false)); });
}

TEST_F(CpuGradientsTest, Attention) {
  struct Mask {
    const char* d_qkv;
    bool causal;
    std::vector<std::int32_t> begins;
  };
  for (const Mask& mask : {Mask{"causal d_qkv", true, {}}, Mask{"full d_qkv", false, {}},
                           Mask{"d_qkv of documents", true, {0, 0, 2, 2, 4, 0, 1, 1, 1, 1}}}) {
    const AttentionShape shape = {.batch = 2,
                                  .seq = 5,
                                  .num_heads = 4,
                                  .num_kv_heads = 2,
                                  .head_dim = 3,
                                  .causal = mask.causal,
                                  .documents = !mask.begins.empty()};
    const Values x = Random(10 * 24);
    const Values g = Random(10 * 12);
    Ops& ops = device_->ops();
    const auto forward = [&](const Values& values, Values* out_values, Values* lse_values) {
      Env env = NewEnv();
      const Matrix out = env.Out(10, 12);
      const Vector lse = env.OutVec(DType::kF64, 2 * 4 * 5);
      const auto scratch = env.Scratch(ops.AttentionScratchBytes(shape, DType::kF64, false));
      FSDP_EXPECT_OK(ops.AttentionForward(env.stream(), env.In(values, 10, 24), shape,
                                          env.Ids(mask.begins), out, lse, scratch));
      *out_values = env.Get(out);
      *lse_values = env.Get(lse);
      return Dot(g, *out_values);
    };
    Values out;
    Values lse;
    forward(x, &out, &lse);
    Env env = NewEnv();
    const Matrix dx = env.Out(10, 24);
    FSDP_ASSERT_OK(
        ops.AttentionBackward(env.stream(), env.In(g, 10, 12), env.In(x, 10, 24),
                              env.In(out, 10, 12), env.Vec(lse), shape, env.Ids(mask.begins), dx,
                              env.Scratch(ops.AttentionScratchBytes(shape, DType::kF64, true))));
    Values out_there;
    Values lse_there;
    Check(mask.d_qkv, x, env.Get(dx),
          [&](const Values& v) { return forward(v, &out_there, &lse_there); });
  }
}

TEST_F(CpuGradientsTest, Activations) {
  using Forward = absl::Status (Ops::*)(Stream&, const Matrix&, const Matrix&);
  using Backward =
      absl::Status (Ops::*)(Stream&, const Matrix&, const Matrix&, const Matrix&, const Matrix&);
  struct Case {
    const char* name;
    Forward forward;
    Backward backward;
    std::int64_t in_cols;
  };
  const Case cases[] = {{"silu", &Ops::SiluForward, &Ops::SiluBackward, 5},
                        {"gelu", &Ops::GeluForward, &Ops::GeluBackward, 5},
                        {"swiglu", &Ops::SwiGluForward, &Ops::SwiGluBackward, 10}};
  for (const Case& c : cases) {
    const Values x = Random(4 * c.in_cols);
    const Values g = Random(4 * 5);
    Env env = NewEnv();
    const Matrix dx = env.Out(4, c.in_cols);
    const Matrix again = env.Out(4, 5);  // the forward's output
    FSDP_ASSERT_OK(
        (env.ops().*c.backward)(env.stream(), env.In(g, 4, 5), env.In(x, 4, c.in_cols), dx, again));
    Env once = NewEnv();
    const Matrix y = once.Out(4, 5);
    FSDP_ASSERT_OK((once.ops().*c.forward)(once.stream(), once.In(x, 4, c.in_cols), y));
    EXPECT_EQ(env.Get(again), once.Get(y)) << c.name;
    Check(c.name, x, env.Get(dx), [&](const Values& v) {
      Env here = NewEnv();
      const Matrix y = here.Out(4, 5);
      FSDP_EXPECT_OK((here.ops().*c.forward)(here.stream(), here.In(v, 4, c.in_cols), y));
      return Dot(g, here.Get(y));
    });
  }
}

TEST_F(CpuGradientsTest, CrossEntropy) {
  const std::vector<std::int32_t> targets = {3, kIgnoreTarget, 0, 5};
  const Values x = Random(4 * 6);
  const auto run = [&](Env& env, const Matrix& logits, bool loss_only) {
    StepStats* stats = env.UploadRaw<StepStats>({{}});
    const auto scratch = env.Scratch(env.ops().CrossEntropyScratchBytes(4, 6));
    FSDP_EXPECT_OK(
        env.ops().CrossEntropy(env.stream(), logits, env.Ids(targets), stats, loss_only, scratch));
    return env.DownloadRaw(stats, 1)[0].loss_sum;
  };
  Env env = NewEnv();
  const Matrix logits = env.In(x, 4, 6);
  run(env, logits, false);
  Check("d_logits", x, env.Get(logits), [&](const Values& v) {
    Env here = NewEnv();
    return run(here, here.In(v, 4, 6), true);
  });
}

}  // namespace
}  // namespace fsdp
