#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/thread_pool.h"

namespace fsdp::cpu {
namespace {

std::vector<const KernelSet*> RunnableSets() {
  std::vector<const KernelSet*> sets = {&baseline::GetKernelSet()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back(&avx2::GetKernelSet());
  }
  if (std::string(BestKernels().isa) == "avx512") sets.push_back(&avx512::GetKernelSet());
  return sets;
}

class KernelsTest : public ::testing::TestWithParam<const KernelSet*> {};

// Relative error at most 2e-7 wherever the result is a normal number; below, one denormal step.
TEST_P(KernelsTest, ExpIsAccurate) {
  std::vector<float> x;
  for (double value = -106; value <= 90; value += 0.00037) x.push_back(static_cast<float>(value));
  for (float tiny = 1; tiny > 0; tiny /= 3) {
    x.push_back(tiny);
    x.push_back(-tiny);
  }
  std::vector<float> y(x.size());
  GetParam()->exp_f32(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    if (want > std::numeric_limits<float>::max()) {
      EXPECT_EQ(y[i], std::numeric_limits<float>::infinity()) << x[i];
    } else if (want < std::numeric_limits<float>::min()) {
      EXPECT_NEAR(y[i], want, 1.5 * std::numeric_limits<float>::denorm_min()) << x[i];
    } else {
      worst = std::max(worst, std::abs(y[i] / want - 1));
    }
  }
  EXPECT_LE(worst, 2e-7);
}

TEST_P(KernelsTest, ExpOfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0F, -0.0F, inf, -inf, std::nanf(""), 1e30F, -1e30F};
  std::vector<float> y(x.size());
  GetParam()->exp_f32(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  EXPECT_EQ(y[0], 1.0F);
  EXPECT_EQ(y[1], 1.0F);
  EXPECT_EQ(y[2], inf);
  EXPECT_EQ(y[3], 0.0F);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], inf);
  EXPECT_EQ(y[6], 0.0F);
}

// f64 -> bf16 rounds once: values just beside a tie of bf16 that f32 would round onto it.
TEST_P(KernelsTest, CastFromF64RoundsOnce) {
  std::vector<double> x;
  std::vector<std::uint16_t> want;
  const auto add = [&](double value, std::uint16_t bits) {
    x.push_back(value);
    want.push_back(bits);
    x.push_back(-value);
    want.push_back(static_cast<std::uint16_t>(bits | 0x8000));
  };
  const double tie = 1 + 0x1p-8;  // between 0x3F80 and 0x3F81
  add(tie, 0x3F80);               // to even
  add(tie + 0x1p-40, 0x3F81);     // above the tie
  add(tie - 0x1p-40, 0x3F80);
  const double odd_tie = 1 + 3 * 0x1p-8;  // between 0x3F81 and 0x3F82
  add(odd_tie, 0x3F82);
  add(odd_tie - 0x1p-40, 0x3F81);  // below the tie
  add(odd_tie + 0x1p-40, 0x3F82);
  add(0.0, 0x0000);
  add(1e300, 0x7F80);
  std::vector<std::uint16_t> y(x.size());
  GetParam()->cast[0][2](x.data(), y.data(), 0, static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], want[i]) << x[i];
}

// Results do not depend on where a range is cut.
TEST_P(KernelsTest, RangesMayBeCutAnywhere) {
  constexpr std::int64_t kRows = 7;
  constexpr std::int64_t kCols = 101;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kCols);
  for (float& value : x) value = normal(random);
  const auto sum_columns = [&](std::int64_t cut) {
    std::vector<float> out(kCols);
    const ColumnSumArgs args = {x.data(), out.data(), kCols, kRows, true, false};
    GetParam()->f32.column_sum(args, 0, cut);
    GetParam()->f32.column_sum(args, cut, kCols);
    return out;
  };
  const std::vector<float> whole = sum_columns(0);
  for (std::int64_t cut = 1; cut < kCols; ++cut) EXPECT_EQ(sum_columns(cut), whole) << cut;
}

std::string IsaName(const ::testing::TestParamInfo<const KernelSet*>& info) {
  return info.param->isa;
}
INSTANTIATE_TEST_SUITE_P(Isa, KernelsTest, ::testing::ValuesIn(RunnableSets()), IsaName);

TEST(ThreadPoolTest, RunsEveryTaskOnceWithSlotsOfItsOwn) {
  ThreadPool pool(4);
  ASSERT_EQ(pool.num_threads(), 4);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> runs(37);
    std::atomic<int> in_slot[4] = {};
    auto task = [&](std::int64_t index, int slot) {
      EXPECT_EQ(in_slot[slot].fetch_add(1), 0);
      ++runs[index];
      in_slot[slot].fetch_sub(1);
    };
    pool.ParallelFor(37, task);
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST(ThreadPoolTest, SecondCallerRunsAloneInsteadOfWaiting) {
  ThreadPool pool(2);
  std::atomic<int> inner = 0;
  auto outer_task = [&](std::int64_t, int) {
    auto inner_task = [&](std::int64_t, int slot) {
      EXPECT_EQ(slot, 0);
      ++inner;
    };
    // From another thread while the pool is taken.
    std::thread other([&] { pool.ParallelFor(5, inner_task); });
    other.join();
  };
  pool.ParallelFor(3, outer_task);
  EXPECT_EQ(inner, 15);
}

}  // namespace
}  // namespace fsdp::cpu
