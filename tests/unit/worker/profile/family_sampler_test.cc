#include "worker/profile/family_sampler.h"

#include <vector>

#include "gmock/gmock.h"

namespace fsdp {
namespace {

constexpr auto kNorm = static_cast<std::size_t>(KernelFamily::kNorm);

FamilyTable Norm(double seconds) {
  FamilyTable table{};
  table[kNorm].seconds = seconds;
  return table;
}

TEST(FamilySamplerTest, SoonAtFirstAndRarelyLater) {
  std::vector<std::int64_t> due;
  for (std::int64_t step = 0; step <= 1000; ++step) {
    if (FamilySampler::IsDue(step)) due.push_back(step);
  }
  EXPECT_THAT(due, ::testing::ElementsAre(3, 10, 30, 100, 300, 600, 900));
}

TEST(FamilySamplerTest, EveryStepCountsAsTheLastThatWasTimed) {
  FamilyRecorder recorder(/*time_launches=*/false);
  FamilySampler sampler;
  EXPECT_EQ(sampler.OnUntimed(recorder), 0);
  EXPECT_EQ(sampler.OnUntimed(recorder), 0);
  EXPECT_EQ(recorder.totals()[kNorm].seconds, 0);
  // The timed step's own seconds are in the recorder already.
  recorder.AddSeconds(KernelFamily::kNorm, 2);
  sampler.OnTimed(Norm(2), recorder);
  EXPECT_EQ(recorder.totals()[kNorm].seconds, 6) << "its own and those of the two before it";
  EXPECT_EQ(sampler.OnUntimed(recorder), 2);
  EXPECT_EQ(recorder.totals()[kNorm].seconds, 8);
  recorder.AddSeconds(KernelFamily::kNorm, 3);
  sampler.OnTimed(Norm(3), recorder);
  EXPECT_EQ(recorder.totals()[kNorm].seconds, 11) << "what was missed is made up for once";
  EXPECT_EQ(sampler.OnUntimed(recorder), 3);
  EXPECT_EQ(recorder.totals()[kNorm].seconds, 14);
}

}  // namespace
}  // namespace fsdp
