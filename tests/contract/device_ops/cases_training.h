#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_TRAINING_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_TRAINING_H_

// Loss, gradient statistics, optimizer, split master.

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

struct CrossEntropyCase {
  std::int64_t rows, vocab, pad;
  DType dtype;
  bool loss_only;
  Values logits;
  std::vector<std::int32_t> targets;
};

inline void ExpectCrossEntropy(Device& device, const CrossEntropyCase& c) {
  const auto [rows, vocab] = std::pair(c.rows, c.vocab);
  const DType dtype = c.dtype;
  const bool loss_only = c.loss_only;
  SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " " << rows << " x " << vocab);
  Values logits = Rounded(c.logits, dtype);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(vocab, rows * vocab); ++i) {
    logits[i] = Rounded(logits[i] + 300, dtype);  // a shift must not overflow
  }
  std::vector<std::int32_t> targets = c.targets;
  for (std::int64_t row = 2; row < rows; row += 5) targets[row] = kIgnoreTarget;
  Env env(device, dtype);
  const Matrix x = env.In(logits, rows, vocab, c.pad);
  StepStats* stats = env.UploadRaw<StepStats>({{10.0, 2.0, 3.0, 4.0}});
  FSDP_ASSERT_OK(
      env.ops().CrossEntropy(env.stream(), x, env.Ids(targets), stats, loss_only,
                             env.Scratch(env.ops().CrossEntropyScratchBytes(rows, vocab))));
  double loss = 10;
  double size = 0;
  double valid = 2;
  Values want = loss_only ? logits : Values(rows * vocab, 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == kIgnoreTarget) continue;
    const double* z = &logits[row * vocab];
    const double shift = *std::max_element(z, z + vocab);
    double sum = 0;
    for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(z[i] - shift);
    loss += shift + std::log(sum) - z[targets[row]];
    size += std::abs(shift) + std::abs(z[targets[row]]) + 8;
    valid += 1;
    for (std::int64_t i = 0; i < vocab && !loss_only; ++i) {
      want[row * vocab + i] = std::exp(z[i] - shift) / sum - (i == targets[row] ? 1 : 0);
    }
  }
  const StepStats got = env.DownloadRaw(stats, 1)[0];
  // Per row: max, target and log of the sum in f32; a sum of vocab exponentials.
  EXPECT_NEAR(got.loss_sum, loss, size * (static_cast<double>(vocab) + 16) * kUnitF32 + 1e-12);
  EXPECT_EQ(got.valid_tokens, valid);
  EXPECT_EQ(got.grad_norm_sq, 3.0);
  EXPECT_EQ(got.nonfinite, 4.0);
  // p: exp (argument below 104 in size), sum, quotient; the -1 at the target.
  const double unit = (static_cast<double>(vocab) + 16 + 104) * kUnitF32;
  ExpectClose("logits", env.Get(x), want, loss_only ? 0 : unit + StoreUnit(dtype),
              {loss_only ? 0 : 4 * kUnitF32});
}

TEST_P(DeviceOpsContract, CrossEntropy) {
  for (const auto& [rows, vocab] :
       {std::pair<std::int64_t, std::int64_t>{0, 5}, {1, 1}, {19, 257}, {7, 2100}}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool loss_only : {false, true}) {
        ExpectCrossEntropy(*device_, {rows, vocab, 3, dtype, loss_only, Random(rows * vocab, 4.0),
                                      RandomIds(rows, static_cast<std::int32_t>(vocab))});
      }
    }
  }
}

// Packed rows of real vocabularies, and more of them than a device works on at once.
TEST_P(DeviceOpsContract, CrossEntropyOfLongRows) {
  struct Case {
    std::int64_t rows, vocab;
    DType dtype;
    bool loss_only;
  };
  for (const Case& c : {Case{300, 16384, DType::kBf16, false}, Case{7, 32000, DType::kBf16, false},
                        Case{7, 32000, DType::kF32, false}, Case{40, 128256, DType::kBf16, false},
                        Case{140, 151936, DType::kBf16, false}, Case{5, 128256, DType::kF32, true},
                        Case{9, 82008, DType::kBf16, false}, Case{3, 170000, DType::kBf16, false},
                        Case{9, 2048, DType::kBf16, false}}) {
    ExpectCrossEntropy(*device_,
                       {c.rows, c.vocab, 0, c.dtype, c.loss_only, Random(c.rows * c.vocab, 4.0),
                        RandomIds(c.rows, static_cast<std::int32_t>(c.vocab))});
  }
}

TEST_P(DeviceOpsContract, CrossEntropyKeepsNaN) {
  for (const int count : {1, 8, 40}) {  // a vector of them has no maximum
    Env env(*device_, DType::kF32);
    Values logits = Random(3 * 40);
    for (int i = 0; i < count; ++i) logits[79 - i] = std::nan("");
    const Matrix x = env.In(logits, 3, 40);
    StepStats* stats = env.UploadRaw<StepStats>({{}});
    FSDP_ASSERT_OK(env.ops().CrossEntropy(env.stream(), x, env.Ids({1, 2, 3}), stats, false,
                                          env.Scratch(env.ops().CrossEntropyScratchBytes(3, 40))));
    EXPECT_TRUE(std::isnan(env.DownloadRaw(stats, 1)[0].loss_sum));
    const Values got = env.Get(x);
    for (int i = 0; i < 120; ++i) EXPECT_EQ(std::isnan(got[i]), i / 40 == 1) << i;
  }
}

TEST_P(DeviceOpsContract, GradStats) {
  for (const std::int64_t size : {0, 1, 70000, 200001}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      Values grad = Rounded(Random(size, 1e-3), dtype);
      double want = 5;
      for (const double g : grad) want += g * g;
      const auto run = [&] {
        Env env(*device_, dtype);
        StepStats* stats = env.UploadRaw<StepStats>({{1.0, 2.0, 5.0, 7.0}});
        FSDP_EXPECT_OK(env.ops().GradStats(env.stream(), env.Vec(grad), stats,
                                           env.Scratch(env.ops().GradStatsScratchBytes(size))));
        return env.DownloadRaw(stats, 1)[0];
      };
      const StepStats stats = run();
      // Sums may be formed in f32 over short runs: (64 + 1) u is far above what either backend
      // does.
      EXPECT_NEAR(stats.grad_norm_sq, want, want * 65 * kUnitF32);
      EXPECT_EQ(stats.nonfinite, 7.0);
      EXPECT_EQ(stats.loss_sum, 1.0);
      EXPECT_EQ(stats.valid_tokens, 2.0);
      for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
        if (size == 0) continue;
        const std::int64_t at = size * 2 / 3;
        const double kept = std::exchange(grad[at], bad);
        EXPECT_GT(run().nonfinite, 7.0) << bad;
        grad[at] = kept;
      }
    }
  }
}

TEST_P(DeviceOpsContract, FinishStats) {
  struct Case {
    StepStats stats;
    float max_norm;
    double grad_scale, skip, grad_norm, loss;
    StepBounds bounds = {};
  };
  const double inf = HUGE_VAL;
  const Case cases[] = {
      {{12.0, 4.0, 64.0, 0}, 0, 0.25, 0, 2.0, 3.0},              // norm 8 / 4; no clipping
      {{12.0, 4.0, 64.0, 0}, 5.0F, 0.25, 0, 2.0, 3.0},           // below the limit
      {{12.0, 4.0, 64.0, 0}, 1.0F, 0.125, 0, 2.0, 3.0},          // factor 1/2
      {{0, 0, 0, 0}, 1.0F, 0, 1, 0, 0},                          // nothing valid
      {{12.0, 4.0, 64.0, 1.0}, 1.0F, 0, 1, 2.0, 3.0},            // some gradient was not finite
      {{12.0, 4.0, inf, 0}, 1.0F, 0, 1, inf, 3.0},               // the norm overflowed
      {{inf, 4.0, 64.0, 0}, 1.0F, 0, 1, 2.0, inf},               // the loss, whatever the gradients
      {{12.0, 4.0, 64.0, 0}, 0, 0.25, 0, 2.0, 3.0, {3.0, 2.0}},  // at the bounds
      {{12.0, 4.0, 64.0, 0}, 1.0F, 0, 1, 2.0, 3.0, {2.9, 9.0}},  // a loss above its bound
      {{12.0, 4.0, 64.0, 0}, 1.0F, 0, 1, 2.0, 3.0, {9.0, 1.9}},  // a norm above its, then clipped
  };
  for (const Case& c : cases) {
    Env env(*device_, DType::kF32);
    UpdateScalars* scalars = env.UploadRaw<UpdateScalars>({{NAN, NAN, NAN, NAN}});
    StepScalars step{};
    step.bounds = c.bounds;
    FSDP_ASSERT_OK(env.ops().FinishStats(env.stream(), env.UploadRaw<StepStats>({c.stats}),
                                         c.max_norm, env.UploadRaw<StepScalars>({step}), scalars));
    const UpdateScalars got = env.DownloadRaw(scalars, 1)[0];
    EXPECT_EQ(got.skip, c.skip);
    if (c.skip == 0) {
      // The clip factor is max_norm / (norm + 1e-6), as torch's.
      EXPECT_NEAR(got.grad_scale, c.grad_scale, 1e-6);
    }
    EXPECT_FLOAT_EQ(got.grad_norm, static_cast<float>(c.grad_norm));
    EXPECT_FLOAT_EQ(got.loss, static_cast<float>(c.loss));
  }
}

struct AdamWState {
  Values master, m, v;
};

// torch.optim.AdamW, element by element in f64.
inline AdamWState ReferenceAdamW(AdamWState s, const Values& grad,
                                 const std::vector<DecaySegment>& segments, double lr,
                                 std::int64_t step, const AdamWOptions& o,
                                 const UpdateScalars& scalars) {
  const double beta1 = o.beta1;
  const double beta2 = o.beta2;
  for (const DecaySegment& segment : segments) {
    for (std::int64_t i = segment.begin; i < segment.end; ++i) {
      const double g = grad[i] * static_cast<double>(scalars.grad_scale);
      s.master[i] *= 1 - lr * static_cast<double>(segment.weight_decay);
      s.m[i] = beta1 * s.m[i] + (1 - beta1) * g;
      s.v[i] = beta2 * s.v[i] + (1 - beta2) * g * g;
      const double m_hat = s.m[i] / (1 - std::pow(beta1, static_cast<double>(step)));
      const double v_hat = s.v[i] / (1 - std::pow(beta2, static_cast<double>(step)));
      s.master[i] -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
  return s;
}

// A master in f32, and the same as (bf16, remainder): both follow the reference, to the same bits.
TEST_P(DeviceOpsContract, AdamW) {
  const std::int64_t size = 40007;
  const std::vector<DecaySegment> segments = {{0, 5, 0.1F}, {5, 33000, 0.0F}, {33001, 39999, 0.5F}};
  const UpdateScalars scalars = {0.125F, 0, 1, 1};
  Env env(*device_, DType::kF32);
  AdamWState want = {Rounded(Random(size), DType::kF32), Values(size, 0.0), Values(size, 0.0)};
  const AdamWState start = want;
  const Vector master = env.Vec(want.master);
  const Vector m = env.Vec(want.m);
  const Vector v = env.Vec(want.v);
  const Vector split_compute = env.OutVec(DType::kBf16, size);
  const Vector remainder = {env.UploadRaw(std::vector<std::uint16_t>(size, 77)), DType::kU16, size};
  const Vector split_m = env.Vec(want.m);
  const Vector split_v = env.Vec(want.v);
  FSDP_ASSERT_OK(env.ops().SplitMaster(env.stream(), master, split_compute, remainder));
  UpdateScalars* device_scalars = env.UploadRaw<UpdateScalars>({scalars});
  const AdamWOptions options = {.beta1 = 0.9F, .beta2 = 0.95F};
  for (int step = 1; step <= 3; ++step) {
    const double lr = 0.01 / step;  // another in each step
    const auto step_scalars = StepScalarsOf(lr, step, options);
    FSDP_ASSERT_OK(step_scalars.status());
    const StepScalars* device_step = env.UploadRaw<StepScalars>({*step_scalars});
    const Values grad = Rounded(Random(size), DType::kF32);
    const Vector g = env.Vec(grad);
    FSDP_ASSERT_OK(env.ops().AdamW(env.stream(), master, m, v, g, segments, options, device_step,
                                   device_scalars));
    FSDP_ASSERT_OK(env.ops().AdamWSplit(env.stream(), split_compute, remainder, split_m, split_v, g,
                                        segments, options, device_step, device_scalars));
    FSDP_ASSERT_OK(env.device().Synchronize(env.stream()));
    want = ReferenceAdamW(want, grad, segments, lr, step, options, scalars);
  }
  // Three steps; per step about 4 roundings of m and v, 8 of the update (at most lr / (1 - beta1)
  // of size, 0.1), 3 of the weight.
  ExpectClose("m", env.Get(m), want.m, 0, {3 * 4 * kUnitF32 * MaxAbs(want.m)});
  ExpectClose("v", env.Get(v), want.v, 3 * 6 * kUnitF32, {0});
  ExpectClose("master", env.Get(master), want.master, 3 * 3 * kUnitF32, {3 * 16 * kUnitF32 * 0.1});
  const Values got = env.Get(master);
  for (const std::int64_t padding : {33000, 39999, 40006}) {
    EXPECT_EQ(got[padding], start.master[padding]) << padding;
  }
  const Vector joined = env.OutVec(DType::kF32, size);
  FSDP_ASSERT_OK(env.ops().JoinMaster(env.stream(), split_compute, remainder, joined));
  EXPECT_EQ(env.Bytes(joined), env.Bytes(master));
  EXPECT_EQ(env.Bytes(split_m), env.Bytes(m));
  EXPECT_EQ(env.Bytes(split_v), env.Bytes(v));

  // With skip nothing changes, whatever the gradient holds.
  const auto before = env.Bytes(master);
  UpdateScalars* skip = env.UploadRaw<UpdateScalars>({{NAN, 1, NAN, 0}});
  const Vector bad = env.Vec(Values(size, std::nan("")));
  const StepScalars* last = env.UploadRaw<StepScalars>({*StepScalarsOf(0.01, 4, options)});
  FSDP_ASSERT_OK(env.ops().AdamW(env.stream(), master, m, v, bad, segments, options, last, skip));
  FSDP_ASSERT_OK(env.ops().AdamWSplit(env.stream(), split_compute, remainder, split_m, split_v, bad,
                                      segments, options, last, skip));
  EXPECT_EQ(env.Bytes(master), before);
  EXPECT_EQ(env.Bytes(split_m), env.Bytes(m));
}

// Uniform draws are the host's bits; normal ones at most one unit of f32 apart.
TEST_P(DeviceOpsContract, FillInitialDrawsTheHostsValues) {
  using Kind = InitialDraw::Kind;
  for (const Kind kind : {Kind::kZeros, Kind::kOnes, Kind::kUniform, Kind::kNormal}) {
    const InitialDraw draw = {kind, 0.37F, 0x123456789abcdef0ULL};
    for (const std::int64_t first :
         {std::int64_t{0}, std::int64_t{3}, std::int64_t{5}, (std::int64_t{1} << 34) + 6}) {
      for (const std::size_t size : {0, 1, 2, 7, 100003}) {
        std::vector<float> want(size);
        FillInitialValues(draw, first, std::span(want));
        for (const DType dtype : {DType::kF32, DType::kF64}) {
          SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " kind " << static_cast<int>(kind)
                                            << " first " << first << " size " << size);
          Env env(*device_, dtype);
          const Vector out = env.OutVec(dtype, static_cast<std::int64_t>(size) + 1);
          // One element in: not every start is aligned for wide stores.
          const Vector part = {static_cast<std::byte*>(out.data) + SizeOf(dtype), dtype,
                               static_cast<std::int64_t>(size)};
          FSDP_ASSERT_OK(env.ops().FillInitial(env.stream(), draw, first, part));
          const Values got = env.Get(out);
          EXPECT_TRUE(std::isnan(got[0])) << "the element before was written";
          for (std::size_t i = 0; i < size; ++i) {
            const float below = std::nextafter(want[i], -HUGE_VALF);
            const float above = std::nextafter(want[i], HUGE_VALF);
            const bool exact = kind != Kind::kNormal;
            ASSERT_GE(got[i + 1], exact ? want[i] : below) << i;
            ASSERT_LE(got[i + 1], exact ? want[i] : above) << i;
          }
        }
      }
    }
  }
}

TEST_P(DeviceOpsContract, SplitMasterIsExact) {
  std::vector<float> values;
  const auto add = [&](std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    if (std::isfinite(value)) values.push_back(value);
  };
  for (int i = 0; i < 100000; ++i) add(static_cast<std::uint32_t>(random_()));
  for (int i = 0; i < 2000; ++i) {  // halfway and its neighbours, above even and odd
    const auto high = static_cast<std::uint32_t>(random_()) & 0xFFFF0000U;
    for (const std::uint32_t low : {0x7FFFU, 0x8000U, 0x8001U, 0U, 0xFFFFU}) add(high | low);
  }
  for (const std::uint32_t bits : {0x00000000U, 0x80000000U, 0x00000001U, 0x80008000U, 0x7F7FFFFFU,
                                   0xFF7FFFFFU, 0x7F7F8000U, 0x00800000U, 0x807FFFFFU}) {
    add(bits);
  }
  const auto size = static_cast<std::int64_t>(values.size());
  Env env(*device_, DType::kF32);
  const Vector master = {env.UploadRaw(values), DType::kF32, size};
  const Vector compute = env.OutVec(DType::kBf16, size);
  const Vector remainder = {env.UploadRaw(std::vector<std::uint16_t>(size, 0xAAAA)), DType::kU16,
                            size};
  const Vector back = env.OutVec(DType::kF32, size);
  FSDP_ASSERT_OK(env.ops().SplitMaster(env.stream(), master, compute, remainder));
  FSDP_ASSERT_OK(env.ops().JoinMaster(env.stream(), compute, remainder, back));
  EXPECT_EQ(env.Bytes(back), env.Bytes(master));
  // The bf16 part is the nearest bf16, halfway cases away from zero.
  const auto bf16 = env.DownloadRaw(static_cast<const std::uint16_t*>(compute.data), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    const bool halfway = (bits & 0xFFFFU) == 0x8000U;
    ASSERT_EQ(bf16[i],
              halfway ? static_cast<std::uint16_t>((bits >> 16) + 1) : Bf16Bits(values[i]));
  }
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_TRAINING_H_
