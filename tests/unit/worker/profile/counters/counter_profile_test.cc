#include "worker/profile/counters/counter_profile.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/fakes/fake_clock.h"

namespace fsdp {
namespace {

constexpr std::uint32_t kComputeStream = 7;
constexpr std::uint32_t kGatherStream = 13;
constexpr std::int64_t kMs = 1'000'000;

// Steps of two graphs: a matmul of 1 ms, then a norm of 0.4 ms; a gather runs beside the matmul.
CounterReading Reading(int num_steps) {
  CounterReading reading;
  std::int64_t now_ns = 1000 * kMs;
  reading.begin_ns = now_ns - 20 * kMs;
  for (int i = 0; i < num_steps; ++i) {
    reading.kernels.push_back({now_ns, now_ns + kMs, kComputeStream, 1, 21, 100});
    reading.kernels.push_back({now_ns, now_ns + kMs / 2, kGatherStream, 2, 0, 0});
    now_ns += kMs;
    reading.kernels.push_back({now_ns, now_ns + 2 * kMs / 5, kComputeStream, 3, 22, 200});
    now_ns += 2 * kMs / 5;
  }
  reading.end_ns = now_ns + 5 * kMs;
  for (std::int64_t at = reading.begin_ns; at < reading.end_ns; at += kMs / 10) {
    CounterSample sample{at, at + kMs / 10};
    for (const KernelRecord& kernel : reading.kernels) {
      if (kernel.begin_ns > at || kernel.end_ns < at + kMs / 10) continue;
      sample.sm += kernel.graph == 21 ? 0.9 : 0.1;
      sample.hbm += kernel.graph == 22 ? 0.8 : 0.05;
    }
    // What ran before the first record: nobody knows what it was.
    if (at < 1000 * kMs) sample = {at, at + kMs / 10, 0.5, 0.5, 0.5};
    reading.samples.push_back(sample);
  }
  return reading;
}

class CounterProfileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    profile_.SetOrder(
        {{kComputeStream,
          {{true, {{KernelFamily::kMatMulMlp, 1}}}, {true, {{KernelFamily::kNorm, 1}}}}},
         {kGatherStream, {{false, {{KernelFamily::kGather}}}}}});
  }
  FamilyCounters Of(KernelFamily family) {
    return profile_.Table()[static_cast<std::size_t>(family)];
  }

  FakeClock clock_;
  CounterProfile profile_{clock_};
};

TEST_F(CounterProfileTest, FromRecordsAndSamplesToFamilies) {
  // All graphs seem to be of one kernel, and only their order tells them apart: a first window
  // teaches nothing here, because either may come first.
  const CounterWindows::Use use = profile_.Read(Reading(30));
  EXPECT_EQ(use.dropped.at("unassigned"), 60);
  EXPECT_EQ(Of(KernelFamily::kMatMulMlp).source, v1::METRIC_SOURCE_ANALYTIC);
}

TEST_F(CounterProfileTest, FamiliesGetTheirOwnFigures) {
  CounterReading reading = Reading(30);
  // The norm's graph has two kernels, so the two graphs cannot be mistaken.
  std::vector<KernelRecord> kernels;
  for (const KernelRecord& kernel : reading.kernels) {
    kernels.push_back(kernel);
    if (kernel.graph != 22) continue;
    kernels.back().end_ns -= kMs / 5;
    kernels.push_back(kernel);
    kernels.back().begin_ns += kMs / 5;
    kernels.back().graph_node = 201;
  }
  reading.kernels = kernels;
  profile_.SetOrder(
      {{kComputeStream,
        {{true, {{KernelFamily::kMatMulMlp, 1}}}, {true, {{KernelFamily::kNorm, 2}}}}},
       {kGatherStream, {{false, {{KernelFamily::kGather}}}}}});
  const CounterWindows::Use use = profile_.Read(reading);
  EXPECT_EQ(use.dropped.count("unassigned"), 0U);
  // 20 ms before the first record, 5 ms after the last.
  EXPECT_EQ(use.dropped.at("edge"), 250);
  EXPECT_EQ(use.samples, 30 * 14);
  EXPECT_NEAR(Of(KernelFamily::kMatMulMlp).sm, 0.9, 0.005);
  EXPECT_NEAR(Of(KernelFamily::kMatMulMlp).hbm, 0.05, 0.005);
  EXPECT_NEAR(Of(KernelFamily::kNorm).hbm, 0.8, 0.005);
  EXPECT_NEAR(Of(KernelFamily::kGather).sm, 0.1, 0.005);
  EXPECT_EQ(Of(KernelFamily::kGather).source, v1::METRIC_SOURCE_PM_SAMPLING);
}

TEST_F(CounterProfileTest, WithoutAnOrderNothingIsCredited) {
  profile_.SetOrder({});
  const CounterWindows::Use use = profile_.Read(Reading(30));
  EXPECT_EQ(use.samples, 0);
  EXPECT_EQ(use.dropped.at("unassigned"), 90);
  EXPECT_EQ(Of(KernelFamily::kGather).source, v1::METRIC_SOURCE_ANALYTIC);
}

}  // namespace
}  // namespace fsdp
