// Whatever passes ValidateProfile is drawn: spans that overlap, touch or have no length, ranks
// without steps, roofs, clocks or names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "nlohmann/json.hpp"
#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/chrome_trace.h"
#include "worker/profile/report/html_report.h"
#include "worker/profile/report/job_profile_io.h"
#include "worker/profile/report/perfetto_trace.h"
#include "worker/profile/report/profile_compare.h"
#include "worker/profile/report/roofline_svg.h"

namespace fsdp {
namespace {

using testing::HasSubstr;
using testing::Not;

class Source {
 public:
  explicit Source(unsigned seed) : random_(seed) {}
  // 0 to below `bound`.
  int Below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  bool Maybe() { return Below(2) == 0; }
  double Amount() { return Maybe() ? 0 : std::pow(10, Below(15)); }

 private:
  std::mt19937 random_;
};

void AddSpans(Source& source, RankBuilder* rank) {
  static const char* const kNames[] = {"", "a", "matmul", "<b>&\"'", "核"};
  const int count = source.Below(60);
  for (int i = 0; i < count; ++i) {
    const auto track = static_cast<v1::ProfileTrack>(1 + source.Below(6));
    const bool is_collective =
        track == v1::PROFILE_TRACK_GATHER || track == v1::PROFILE_TRACK_SCATTER;
    rank->Add({track, source.Below(100), source.Below(30), kNames[source.Below(5)],
               kNames[source.Below(5)], kNames[source.Below(5)], source.Amount(), source.Amount(),
               source.Below(4), is_collective ? source.Below(5) : 0});
  }
}

v1::JobProfile RandomProfile(unsigned seed) {
  Source source(seed);
  v1::JobProfile profile;
  const int world_size = 1 + source.Below(4);
  for (int number = 0; number < world_size; ++number) {
    if (source.Below(4) == 0) continue;
    RankBuilder rank(number, world_size);
    AddSpans(source, &rank);
    const int steps = source.Below(3);
    for (int step = 0; step < steps; ++step) rank.AddStep(step, step * 50, source.Below(60));
    v1::RankProfile& to = rank.profile();
    to.set_flops_ceiling(source.Amount());
    to.set_bytes_ceiling(source.Amount());
    to.set_model_flops_per_step(source.Amount());
    if (source.Maybe()) to.add_counters()->set_name("memory");
    if (source.Maybe()) {
      v1::FamilyVerdict& family = *to.add_families();
      family.set_family("matmul");
      family.set_seconds(source.Amount());
      family.set_flops(source.Amount());
      family.set_bytes(source.Amount());
      family.set_bound(static_cast<v1::Bound>(source.Below(6)));
      family.set_compute_ratio(source.Amount());
    }
    *profile.add_ranks() = to;
    if (source.Maybe()) profile.add_clocks()->set_rank(number);
  }
  return profile;
}

// Of a number that is none, in a text or an attribute.
void ExpectNoNan(const std::string& text) {
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, Not(HasSubstr("inf\"")));
}

class RandomProfileTest : public testing::TestWithParam<unsigned> {};

TEST_P(RandomProfileTest, IsDrawn) {
  const v1::JobProfile profile = RandomProfile(GetParam());
  ASSERT_TRUE(ValidateProfile(profile).ok()) << ValidateProfile(profile);
  ExpectNoNan(HtmlReport(profile, BuildKernelReport(profile), {}));
  ExpectNoNan(RooflineSvg(profile));
  ExpectNoNan(KernelTableText(profile, 3));
  const auto trace = PerfettoTrace(profile, 1 << 30);
  ASSERT_TRUE(trace.ok());
  const auto json = ChromeTrace(profile, 1 << 30);
  ASSERT_TRUE(json.ok());
  EXPECT_FALSE(nlohmann::json::parse(json->bytes, nullptr, false).is_discarded());
  EXPECT_EQ(json->written, trace->written);
  const auto again = DecodeJobProfile(EncodeJobProfile(profile));
  ASSERT_TRUE(again.ok()) << again.status();
}

TEST_P(RandomProfileTest, ComparisonAddsUp) {
  const v1::JobProfile before = RandomProfile(GetParam());
  const v1::JobProfile after = RandomProfile(GetParam() + 1000);
  const Comparison comparison = Compare(before, after);
  double sum = 0;
  for (const Contribution& one : comparison.contributions) sum += one.difference_seconds;
  EXPECT_NEAR(sum, comparison.after_seconds - comparison.before_seconds, 1e-12);
  ExpectNoNan(CompareText(before, after));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProfileTest, testing::Range(1U, 101U));

}  // namespace
}  // namespace fsdp
