// Draws by weight are arithmetic on the position: within one of every share, at any prefix.

#include "worker/plan/mixture_cycle.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

MixtureCycle Make(const std::vector<double>& weights) {
  auto cycle = MixtureCycle::Create(weights);
  EXPECT_TRUE(cycle.ok()) << cycle.status();
  return *std::move(cycle);
}

// Walks the positions and holds each answer against what was counted on the way.
void CheckPrefixes(const std::vector<double>& weights, std::int64_t first, std::int64_t count,
                   double beyond_one = 0) {
  const MixtureCycle cycle = Make(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> drawn(weights.size());
  for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = cycle.CountBefore(i, first);
  for (std::int64_t position = first; position < first + count; ++position) {
    const MixtureCycle::Draw draw = cycle.At(position);
    ASSERT_EQ(draw.index, drawn[draw.source]) << position;
    ASSERT_EQ(cycle.PositionOf(draw), position);
    ++drawn[draw.source];
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      ASSERT_EQ(cycle.CountBefore(i, position + 1), drawn[i]);
      const double share = weights[i] / sum * static_cast<double>(position + 1);
      // 1e-6: the share itself is a rounded product.
      ASSERT_LT(std::abs(static_cast<double>(drawn[i]) - share), 1 + 1e-6 + beyond_one)
          << "source " << i << " after " << position + 1;
    }
  }
}

TEST(MixtureCycle, IsExactForDecimalsAndWholeNumbers) {
  EXPECT_EQ(Make({0.7, 0.2, 0.1}).length(), 10);
  EXPECT_EQ(Make({3, 1}).length(), 4);
  EXPECT_EQ(Make({1e9, 1e9}).length(), 2);
  EXPECT_EQ(Make({0.3333333333333333, 0.6666666666666666}).length(), 3);
  EXPECT_EQ(Make({5}).length(), 1);
  const MixtureCycle cycle = Make({0.7, 0.2, 0.1});
  EXPECT_EQ(cycle.count(0), 7);
  EXPECT_EQ(cycle.count(1), 2);
  EXPECT_EQ(cycle.count(2), 1);
  EXPECT_EQ(cycle.share(0), 0.7);
  // Far out it is as exact: no drift.
  EXPECT_EQ(cycle.CountBefore(1, 1'000'000'000'000), 200'000'000'000);
}

TEST(MixtureCycle, EverySourceIsWithinOneOfItsShareAtEveryPrefix) {
  CheckPrefixes({0.7, 0.2, 0.1}, 0, 1000);
  CheckPrefixes({1, 1, 1, 1, 1, 1, 1}, 0, 100);
  CheckPrefixes({1, 100, 1, 1, 50, 1}, 0, 2000);
  CheckPrefixes({0.5, 0.01, 0.01, 0.01, 0.01, 0.01, 0.45}, 0, 2000);
  CheckPrefixes({0.7, 0.2, 0.1}, 123'456'789'012, 100);
  std::vector<double> many(MixtureCycle::kMaxSources);
  std::iota(many.begin(), many.end(), 1);
  CheckPrefixes(many, 0, 5000);
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<double> weights(2 + random() % 9);
    for (double& weight : weights) weight = 1 + random() % 200;
    CheckPrefixes(weights, random() % 10'000, 2500);
  }
}

// 3.14159265358979 and such have no short cycle: rounded to the longest, off by one in a million.
TEST(MixtureCycle, WeightsOfManyDigitsAreRounded) {
  const std::vector<double> weights = {std::acos(-1.0), std::exp(1.0), std::sqrt(2.0)};
  const MixtureCycle cycle = Make(weights);
  EXPECT_EQ(cycle.length(), MixtureCycle::kMaxLength);
  CheckPrefixes(weights, 0, 20'000, 0.02);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(cycle.share(i), weights[i] / sum, 1.0 / MixtureCycle::kMaxLength);
  }
  // As different as is allowed.
  const MixtureCycle rare = Make({1, 1048574.6});
  EXPECT_EQ(rare.length(), MixtureCycle::kMaxLength);
  EXPECT_EQ(rare.count(0), 1);
}

TEST(MixtureCycle, BadWeightsAreNamed) {
  const auto expect = [](const std::vector<double>& weights, const std::string& text) {
    const absl::Status status = MixtureCycle::Create(weights).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect({}, "0 sources; give 1..64");
  expect(std::vector<double>(65, 1.0), "65 sources");
  expect({1, 0}, "mixture[1].weight is 0;");
  expect({0, 0}, "mixture[0].weight is 0;");
  expect({-2, 1}, "mixture[0].weight is -2;");
  expect({1, std::nan("")}, "mixture[1].weight is nan;");
  expect({std::numeric_limits<double>::infinity(), 1}, "mixture[0].weight is inf;");
  expect({1, 2, 1e-9}, "mixture[2].weight 1e-09 is less than 1 in 1048576 of the sum");
}

}  // namespace
}  // namespace fsdp
