#include "worker/profile/counters/sample_attribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

struct Truth {
  double sm, hbm, tensor;
};
using Truths = std::map<KernelFamily, Truth>;

// Measured on an H200: a copy that also adds, and a large bf16 matmul; and the update, between
// them.
constexpr Truth kAxpy{0.10, 0.92, 0.0};
constexpr Truth kGemm{0.91, 0.19, 0.90};
constexpr Truth kAdamW{0.22, 0.85, 0.0};
constexpr Truth kTiny{0.03, 0.02, 0.0};
constexpr auto kCopy = KernelFamily::kCopy;
constexpr auto kMlp = KernelFamily::kMatMulMlp;
constexpr auto kOptimizer = KernelFamily::kOptimizer;
constexpr auto kNorm = KernelFamily::kNorm;
constexpr auto kGather = KernelFamily::kGather;

// A device whose families do exactly what `truths` say while they run, and nothing else.
class Device {
 public:
  explicit Device(Truths truths, unsigned seed = 1) : truths_(std::move(truths)), random_(seed) {}

  // One after the other in one stream, `gap_ns` between them.
  Device& Run(KernelFamily family, std::int64_t duration_ns, std::int64_t gap_ns = 0) {
    kernels_.push_back({now_ns_, now_ns_ + duration_ns, family});
    now_ns_ += duration_ns + gap_ns;
    return *this;
  }
  Device& Idle(std::int64_t duration_ns) {
    now_ns_ += duration_ns;
    return *this;
  }
  void Beside(KernelFamily family, std::int64_t begin_ns, std::int64_t end_ns) {
    kernels_.push_back({begin_ns, end_ns, family});
  }
  [[nodiscard]] std::int64_t now_ns() const { return now_ns_; }

  // The whole run, sampled; the first sample has a garbage length, as on the device.
  void SampleInto(SampleAttribution* attribution, std::int64_t interval_ns, double noise = 0,
                  std::int64_t phase_ns = 0) {
    std::vector<CounterSample> samples = {{-5'000'000'000, phase_ns, 0.7, 0.7, 0.7}};
    std::normal_distribution<double> error(0, noise);
    for (std::int64_t begin = phase_ns; begin + interval_ns <= now_ns_; begin += interval_ns) {
      CounterSample sample{begin, begin + interval_ns};
      for (const KernelInterval& kernel : kernels_) {
        const std::int64_t overlap_ns =
            std::min(kernel.end_ns, sample.end_ns) - std::max(kernel.begin_ns, sample.begin_ns);
        if (overlap_ns <= 0) continue;
        const double share = static_cast<double>(overlap_ns) / static_cast<double>(interval_ns);
        const Truth& truth = truths_.at(*kernel.family);
        sample.sm += share * truth.sm;
        sample.hbm += share * truth.hbm;
        sample.tensor += share * truth.tensor;
      }
      if (noise > 0) {
        sample.sm += error(random_);
        sample.hbm += error(random_);
        sample.tensor += error(random_);
      }
      samples.push_back(sample);
    }
    attribution->Add({0, now_ns_, kernels_, samples});
  }

  std::mt19937& random() { return random_; }

 private:
  Truths truths_;
  std::mt19937 random_;
  std::int64_t now_ns_ = 0;
  std::vector<KernelInterval> kernels_;
};

const FamilyCounters& Of(const FamilyCounterTable& table, KernelFamily family) {
  return table[static_cast<std::size_t>(family)];
}

void ExpectNear(const FamilyCounters& found, const Truth& truth, double tolerance) {
  EXPECT_EQ(found.source, v1::METRIC_SOURCE_PM_SAMPLING);
  EXPECT_GE(found.num_samples, 30);
  EXPECT_NEAR(found.sm, truth.sm, tolerance);
  EXPECT_NEAR(found.hbm, truth.hbm, tolerance);
  EXPECT_NEAR(found.tensor, truth.tensor, tolerance);
}

TEST(SampleAttributionTest, KernelsLongerThanASampleAreCreditedDirectly) {
  Device device({{kCopy, kAxpy}, {kMlp, kGemm}});
  for (int i = 0; i < 40; ++i) device.Run(kCopy, 1'000'000, 1'000).Run(kMlp, 1'000'000, 1'000);
  SampleAttribution attribution;
  device.SampleInto(&attribution, 100'000, 0.02);
  const FamilyCounterTable table = attribution.Solve();
  ExpectNear(Of(table, kCopy), kAxpy, 0.01);
  ExpectNear(Of(table, kMlp), kGemm, 0.01);
  EXPECT_FALSE(Of(table, kCopy).solved);
  EXPECT_EQ(Of(table, kNorm).source, v1::METRIC_SOURCE_ANALYTIC);
  EXPECT_EQ(Of(table, kNorm).num_samples, 0);
}

// The case of a real step: nothing fills a sample of 1 ms, and plain weighting by overlap would
// give both the same figure.
TEST(SampleAttributionTest, MixturesAreTakenApartAtAMillisecond) {
  Device device({{kCopy, kAxpy}, {kMlp, kGemm}, {kOptimizer, kAdamW}, {kNorm, kTiny}});
  std::uniform_int_distribution<int> pick(0, 3);
  const std::vector<KernelFamily> families = {kCopy, kMlp, kOptimizer, kNorm};
  const std::vector<std::int64_t> lengths = {186'000, 405'000, 240'000, 60'000};
  for (int i = 0; i < 3000; ++i) {
    const auto at = static_cast<std::size_t>(pick(device.random()));
    device.Run(families[at], lengths[at], 2'000);
  }
  SampleAttribution attribution;
  device.SampleInto(&attribution, 1'000'000, 0.01);
  const FamilyCounterTable table = attribution.Solve();
  ExpectNear(Of(table, kCopy), kAxpy, 0.02);
  ExpectNear(Of(table, kMlp), kGemm, 0.02);
  ExpectNear(Of(table, kOptimizer), kAdamW, 0.02);
  ExpectNear(Of(table, kNorm), kTiny, 0.03);
  EXPECT_TRUE(Of(table, kCopy).solved);
}

TEST(SampleAttributionTest, AnyMixtureIsRecoveredWithinItsNoise) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> ratio(0, 1);
  std::uniform_int_distribution<std::int64_t> length(5'000, 300'000);
  for (unsigned round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    Truths truths;
    std::vector<std::int64_t> lengths;
    for (const KernelFamily family : {kCopy, kMlp, kOptimizer, kNorm}) {
      truths[family] = {ratio(random), ratio(random), ratio(random)};
      lengths.push_back(length(random));
    }
    Device device(truths, round);
    std::uniform_int_distribution<std::size_t> pick(0, 3);
    std::uniform_int_distribution<std::int64_t> gap(0, 5'000);
    while (device.now_ns() < 500'000'000) {
      const std::size_t at = pick(device.random());
      device.Run(std::next(truths.begin(), static_cast<std::ptrdiff_t>(at))->first, lengths[at],
                 gap(device.random()));
    }
    SampleAttribution attribution;
    device.SampleInto(&attribution, 100'000, 0.02);
    const FamilyCounterTable table = attribution.Solve();
    for (const auto& [family, truth] : truths) {
      const FamilyCounters& found = Of(table, family);
      if (found.source == v1::METRIC_SOURCE_ANALYTIC)
        continue;  // too short to be told: checked below
      ExpectNear(found, truth, 0.03);
    }
    EXPECT_GE(std::count_if(table.begin(), table.end(),
                            [](const FamilyCounters& family) {
                              return family.source == v1::METRIC_SOURCE_PM_SAMPLING;
                            }),
              3);
  }
}

// Fifty to a sample, with as much gap as kernel: the figure is the kernels' own, not diluted.
TEST(SampleAttributionTest, ShortKernelsWithGaps) {
  Device device({{kNorm, {0.20, 0.10, 0.0}}});
  for (int i = 0; i < 5000; ++i) device.Run(kNorm, 2'000, 2'000);
  device.Idle(5'000'000);
  SampleAttribution attribution;
  device.SampleInto(&attribution, 100'000, 0.005);
  ExpectNear(Of(attribution.Solve(), kNorm), {0.20, 0.10, 0.0}, 0.02);
}

TEST(SampleAttributionTest, ShortKernelsThatAlwaysComeWithTheSameGap) {
  Device device({{kNorm, {0.20, 0.10, 0.0}}});
  for (int i = 0; i < 5000; ++i) device.Run(kNorm, 2'000, 2'000);
  SampleAttribution attribution;
  device.SampleInto(&attribution, 100'000);
  ExpectNear(Of(attribution.Solve(), kNorm), {0.20, 0.10, 0.0}, 0.01);
}

TEST(SampleAttributionTest, CollectivesBesideTheComputeAreToldApart) {
  const Truth ring{0.02, 0.08, 0.0};
  Device device({{kMlp, kGemm}, {kCopy, kAxpy}, {kGather, ring}});
  for (int i = 0; i < 60; ++i) {
    const std::int64_t begin = device.now_ns();
    device.Run(kMlp, 700'000).Run(kCopy, 350'000);
    device.Beside(kGather, begin + 200'000 + 10'000 * (i % 7), begin + 900'000);
  }
  SampleAttribution attribution;
  device.SampleInto(&attribution, 100'000, 0.01, 17'000);
  const FamilyCounterTable table = attribution.Solve();
  ExpectNear(Of(table, kMlp), kGemm, 0.02);
  ExpectNear(Of(table, kCopy), kAxpy, 0.02);
  ExpectNear(Of(table, kGather), ring, 0.02);
}

TEST(SampleAttributionTest, FewerThanThirtySamplesAreNoMeasurement) {
  Device device({{kMlp, kGemm}});
  device.Run(kMlp, 2'900'000);
  SampleAttribution attribution;
  device.SampleInto(&attribution, 100'000);
  EXPECT_EQ(Of(attribution.Solve(), kMlp).source, v1::METRIC_SOURCE_ANALYTIC);
  // A second window makes it enough.
  device.SampleInto(&attribution, 100'000);
  ExpectNear(Of(attribution.Solve(), kMlp), kGemm, 1e-6);
}

TEST(SampleAttributionTest, FamiliesThatAlwaysRunTogetherAreNotGuessed) {
  Device device({{kMlp, kGemm}, {kCopy, kAxpy}});
  for (int i = 0; i < 3000; ++i) device.Run(kMlp, 50'000).Run(kCopy, 50'000);
  SampleAttribution attribution;
  device.SampleInto(&attribution, 100'000, 0.02);
  const FamilyCounterTable table = attribution.Solve();
  EXPECT_EQ(Of(table, kMlp).source, v1::METRIC_SOURCE_ANALYTIC);
  EXPECT_EQ(Of(table, kCopy).source, v1::METRIC_SOURCE_ANALYTIC);
}

TEST(SampleAttributionTest, KernelsOfUnknownFamilySpoilNobodysFigure) {
  Device device({{kMlp, kGemm}, {kCopy, kAxpy}});
  std::vector<KernelInterval> kernels;
  std::vector<CounterSample> samples = {{-1, 0}};
  // Half a sample of a matmul, half of something else, then a sample of each alone.
  for (std::int64_t i = 0; i < 50; ++i) {
    const std::int64_t at = i * 300;
    kernels.push_back({at, at + 150, kMlp});
    kernels.push_back({at + 150, at + 200, std::nullopt});
    kernels.push_back({at + 200, at + 300, kMlp});
    samples.push_back({at, at + 100, 0.9, 0.2, 0.9});
    samples.push_back({at + 100, at + 200, 0.45 + 0.1, 0.1 + 0.3, 0.45});
    samples.push_back({at + 200, at + 300, 0.9, 0.2, 0.9});
  }
  SampleAttribution attribution;
  attribution.Add({0, 15'000, kernels, samples});
  ExpectNear(Of(attribution.Solve(), kMlp), {0.9, 0.2, 0.9}, 1e-6);
}

TEST(SampleAttributionTest, EdgesAndGarbageAreDroppedAndCounted) {
  const std::vector<KernelInterval> kernels = {{0, 1000, kMlp}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<CounterSample> samples = {
      {-9'000'000, 50, 1, 1, 1},  // the first of a run
      {50, 150, 1, 1, 1},         // begins before the window
      {200, 300, 0.5, 0.5, 0.5}, {300, 300, 1, 1, 1},
      {300, 400, nan, 1, 1},     {450, 600, 1, 1, 1},  // ends after it
  };
  SampleAttribution attribution({.min_samples = 1});
  attribution.Add({100, 500, kernels, samples});
  EXPECT_EQ(attribution.counts().edge, 3);
  EXPECT_EQ(attribution.counts().invalid, 2);
  EXPECT_EQ(attribution.counts().used, 1);
  EXPECT_NEAR(Of(attribution.Solve(), kMlp).sm, 0.5, 1e-12);
}

TEST(SampleAttributionTest, NothingSampledIsAnalytic) {
  for (const FamilyCounters& family : SampleAttribution().Solve()) {
    EXPECT_EQ(family.source, v1::METRIC_SOURCE_ANALYTIC);
  }
}

}  // namespace
}  // namespace fsdp
