// Random bits, initial weights, schedules and decay segments.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/device/philox.h"
#include "worker/optim/initializer.h"
#include "worker/optim/schedule.h"
#include "worker/optim/segments.h"

namespace fsdp {
namespace {

void FillInitial(const InitRule& rule, std::uint64_t seed, std::string_view name,
                 std::int64_t first, std::span<float> out) {
  FillInitialValues(InitialDrawOf(rule, seed, name), first, out);
}

// The published known-answer vectors of philox4x32-10 with the upper counter words zero.
TEST(Philox, KnownAnswer) {
  EXPECT_THAT(PhiloxAt(0, 0),
              testing::ElementsAre(0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U));
  EXPECT_EQ(PhiloxAt(7, 0x3'0000'0002), Philox4x32({2, 3, 0, 0}, 7));
}

TEST(Initializer, AnyPartIsAPartOfTheWhole) {
  for (const auto kind : {InitRule::Kind::kNormal, InitRule::Kind::kUniform}) {
    const InitRule rule{kind, 0.5};
    std::vector<float> whole(1001);
    FillInitial(rule, 3, "a.weight", 0, whole);
    for (const std::size_t begin : {0, 1, 2, 3, 4, 63, 500}) {
      std::vector<float> part(101);
      FillInitial(rule, 3, "a.weight", static_cast<std::int64_t>(begin), part);
      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
    std::vector<float> other(1001);
    FillInitial(rule, 4, "a.weight", 0, other);
    EXPECT_NE(whole, other);
    FillInitial(rule, 3, "b.weight", 0, other);
    EXPECT_NE(whole, other);
  }
}

TEST(Initializer, DistributionsHaveTheirMoments) {
  constexpr std::size_t kDraws = 1'000'000;
  std::vector<float> draws(kDraws);
  const auto moment = [&](int power) {
    double sum = 0;
    for (const float x : draws) sum += std::pow(static_cast<double>(x), power);
    return sum / kDraws;
  };
  FillInitial({InitRule::Kind::kNormal, 1}, 11, "w", 0, draws);
  EXPECT_NEAR(moment(1), 0, 5e-3);
  EXPECT_NEAR(moment(2), 1, 5 * std::sqrt(2e-6));
  EXPECT_NEAR(moment(4), 3, 5 * std::sqrt(96e-6));
  FillInitial({InitRule::Kind::kUniform, 2}, 11, "w", 0, draws);
  EXPECT_NEAR(moment(1), 0, 5 * std::sqrt(4.0 / 3) * 1e-3);
  EXPECT_NEAR(moment(2), 4.0 / 3, 0.006);
  EXPECT_THAT(draws, testing::Each(testing::AllOf(testing::Ge(-2), testing::Lt(2))));
}

OptimizerConfig Config(v1::ScheduleType type) {
  OptimizerConfig config;
  config.lr = 1;
  config.schedule = type;
  config.warmup_steps = 10;
  config.min_lr_ratio = 0.1;
  return config;
}

TEST(Schedule, WarmsUpLinearlyThenFollowsItsCurve) {
  for (const auto type : {v1::SCHEDULE_TYPE_CONSTANT, v1::SCHEDULE_TYPE_LINEAR,
                          v1::SCHEDULE_TYPE_COSINE, v1::SCHEDULE_TYPE_WSD}) {
    const OptimizerConfig config = Config(type);
    EXPECT_DOUBLE_EQ(LearningRate(config, 1, 110), 0.1);
    EXPECT_DOUBLE_EQ(LearningRate(config, 10, 110), 1);
    for (std::int64_t step = 11; step <= 110; ++step) {
      EXPECT_LE(LearningRate(config, step, 110), LearningRate(config, step - 1, 110));
    }
  }
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_CONSTANT), 110, 110), 1);
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_LINEAR), 60, 110), 0.55);
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_LINEAR), 110, 110), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_COSINE), 60, 110), 0.55);
  EXPECT_NEAR(LearningRate(Config(v1::SCHEDULE_TYPE_COSINE), 110, 110), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_WSD), 90, 110), 1);
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_WSD), 100, 110), 0.55);
  // Past the end it stays at the floor; without an end nothing decays.
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_LINEAR), 500, 110), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(Config(v1::SCHEDULE_TYPE_COSINE), 500, 0), 1);
}

TEST(Schedule, DefaultsAreTorchs) {
  const OptimizerConfig config = OptimizerFromSpec({});
  EXPECT_EQ(config.lr, 3e-4);
  EXPECT_EQ(config.beta2, 0.999);
  EXPECT_EQ(config.weight_decay, 0.01);
  EXPECT_TRUE(config.decay_vectors);
}

TEST(Segments, CoverEveryParameterOnceAndNoPadding) {
  v1::ModelSpec spec;
  spec.set_preset("llama-tiny");
  PlanInput input;
  input.model = *ResolveModel(spec);
  input.sequence_length = 8;
  input.global_batch = 4;
  for (const int world : {1, 2, 3, 7}) {
    input.world_size = world;
    const Plan plan = *BuildPlan(input);
    for (const bool decay_vectors : {true, false}) {
      OptimizerConfig config;
      config.weight_decay = 0.25;
      config.decay_vectors = decay_vectors;
      std::int64_t decayed = 0, others = 0;
      for (int rank = 0; rank < world; ++rank) {
        for (const UnitPlan& unit : plan.units) {
          std::int64_t end = 0;
          for (const DecaySegment& segment : DecaySegments(unit, rank, config)) {
            EXPECT_GE(segment.begin, end);
            EXPECT_LT(segment.begin, segment.end);
            end = segment.end;
            (segment.weight_decay > 0 ? decayed : others) += segment.end - segment.begin;
          }
          EXPECT_LE(end, unit.layout.shard_elements);
        }
      }
      EXPECT_EQ(decayed + others, plan.parameters);
      // Five norms of 64.
      EXPECT_EQ(others, decay_vectors ? 0 : 5 * 64);
    }
  }
}

}  // namespace
}  // namespace fsdp
