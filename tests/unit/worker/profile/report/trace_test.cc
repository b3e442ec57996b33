// The traces by their own reports: counts, the cap, lanes, clocks. That the bytes say the same is
// tests/unit/worker/profile/report/trace_files_test.py's, with another implementation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "nlohmann/json.hpp"
#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/chrome_trace.h"
#include "worker/profile/report/perfetto_trace.h"
#include "worker/profile/report/rank_clock.h"
#include "worker/profile/report/trace_layout.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kNoLimit = std::int64_t{1} << 40;

std::int64_t EventsOf(const v1::JobProfile& profile) {
  std::int64_t events = 0;
  for (const auto& rank : profile.ranks()) {
    events += rank.spans_size();
    for (const auto& counter : rank.counters()) events += counter.values_size();
  }
  return events;
}

TEST(RankClockTest, OneAxisFromTheEarliestBegin) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  const auto ranks = report::AlignRanks(profile);
  ASSERT_EQ(ranks.size(), 3U);
  // 20 us apart although their clocks are 0.7 s apart.
  EXPECT_EQ(ranks[0].shift_ns, 0);
  EXPECT_EQ(ranks[1].shift_ns, 20'000);
  EXPECT_EQ(ranks[2].shift_ns, 60'000);
  EXPECT_EQ(report::RankTitle(ranks[0]), "rank 0");
  EXPECT_EQ(report::RankTitle(ranks[2]), "rank 3 (±12 us)");
}

TEST(RankClockTest, WithoutClocksOneHostIsExactAndSeveralAreUnknown) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  profile.clear_clocks();
  EXPECT_EQ(report::AlignRanks(profile)[1].uncertainty_ns, 0);
  profile.mutable_ranks(1)->set_host("node-b");
  EXPECT_EQ(report::RankTitle(report::AlignRanks(profile)[1]), "rank 1 (clock not aligned)");
}

TEST(TraceLayoutTest, SpansThatOverlapGetLanes) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  const report::TraceLayout layout = report::LayOut(profile);
  int gathers = 0, computes = 0;
  for (const auto& lane : layout.lanes) {
    if (lane.rank_index != 0) continue;
    gathers += lane.track == v1::PROFILE_TRACK_GATHER ? 1 : 0;
    computes += lane.track == v1::PROFILE_TRACK_COMPUTE ? 1 : 0;
  }
  EXPECT_EQ(gathers, 2);
  EXPECT_EQ(computes, 1) << "what is nested needs no second lane";
}

TEST(TraceLayoutTest, OneFlowPerCollectiveOfSeveralRanks) {
  v1::JobProfile profile = ExampleProfile(ExampleNames::kPlain);
  std::map<std::uint64_t, int> flows;
  for (const auto& lane : report::LayOut(profile).lanes) {
    for (const auto& placed : lane.spans) {
      EXPECT_EQ(placed.flow != 0, placed.span->sequence() != 0);
      if (placed.flow != 0) ++flows[placed.flow];
    }
  }
  EXPECT_EQ(flows.size(), 6U);
  for (const auto& [flow, count] : flows) EXPECT_EQ(count, 3);
  // A single rank has nobody to flow to.
  profile.mutable_ranks()->DeleteSubrange(1, 2);
  for (const auto& lane : report::LayOut(profile).lanes) {
    for (const auto& placed : lane.spans) EXPECT_EQ(placed.flow, 0U);
  }
}

TEST(TraceLayoutTest, SpansWithoutALaneAreCounted) {
  RankBuilder rank(0, 1);
  for (int i = 0; i < 40; ++i) {
    rank.Add({v1::PROFILE_TRACK_COPY, i, 1000, "copy", "copy", "", 0, 0, 0, 0});
  }
  v1::JobProfile profile;
  *profile.add_ranks() = rank.profile();
  const absl::StatusOr<Trace> trace = PerfettoTrace(profile, kNoLimit);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->written, 32);
  EXPECT_EQ(trace->dropped, 8);
  EXPECT_THAT(trace->bytes, HasSubstr("8 events left out of this trace"));
}

TEST(FairLimitTest, IsTheLargestThatFits) {
  const std::vector<std::int64_t> lists = {3, 100, 40};
  const auto size_of = [&](std::int64_t limit) {
    return std::accumulate(
        lists.begin(), lists.end(), std::int64_t{10},
        [&](std::int64_t sum, std::int64_t length) { return sum + std::min(limit, length); });
  };
  EXPECT_EQ(report::FairLimit(100, 1000, size_of), 100);
  // 10 + 3 + 40 + 40.
  EXPECT_EQ(report::FairLimit(100, 93, size_of), 40);
  EXPECT_EQ(report::FairLimit(100, 92, size_of), 39);
  EXPECT_EQ(report::FairLimit(100, 10, size_of), 0);
  EXPECT_EQ(report::FairLimit(100, 9, size_of), -1);
}

TEST(PerfettoTraceTest, HasEveryEventOfTheRecordings) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kHostile);
  const absl::StatusOr<Trace> trace = PerfettoTrace(profile, kNoLimit);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->written, EventsOf(profile));
  EXPECT_EQ(trace->dropped, 0);
  EXPECT_THAT(trace->bytes, testing::Not(HasSubstr("left out")));
}

template <typename MakeTrace>
void ExpectHardCap(const MakeTrace& make_trace) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kHostile);
  const absl::StatusOr<Trace> whole = make_trace(profile, kNoLimit);
  ASSERT_TRUE(whole.ok());
  const auto size = static_cast<std::int64_t>(whole->bytes.size());
  std::int64_t last_written = 0;
  for (std::int64_t cap = size / 3; cap < size + 100; cap += size / 37) {
    const absl::StatusOr<Trace> trace = make_trace(profile, cap);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_LE(static_cast<std::int64_t>(trace->bytes.size()), cap);
    EXPECT_EQ(trace->written + trace->dropped, EventsOf(profile));
    EXPECT_GE(trace->written, last_written);
    last_written = trace->written;
    // Nothing is cut from a track while a longer one keeps more.
    std::int64_t longest_kept = 0;
    for (const TrackCount& track : trace->tracks) {
      longest_kept = std::max(longest_kept, track.written);
    }
    for (const TrackCount& track : trace->tracks) {
      EXPECT_TRUE(track.dropped == 0 || track.written == longest_kept) << track.track;
    }
  }
  const absl::StatusOr<Trace> none = make_trace(profile, 10);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("_bytes 10 is too small"));
}

TEST(PerfettoTraceTest, NeverExceedsItsCap) { ExpectHardCap(PerfettoTrace); }
TEST(ChromeTraceTest, NeverExceedsItsCap) { ExpectHardCap(ChromeTrace); }

TEST(ChromeTraceTest, IsJsonWithTheRecordingsEvents) {
  const v1::JobProfile profile = ExampleProfile(ExampleNames::kHostile);
  const absl::StatusOr<Trace> trace = ChromeTrace(profile, kNoLimit);
  ASSERT_TRUE(trace.ok());
  const auto json = nlohmann::json::parse(trace->bytes, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  std::int64_t events = 0, flows = 0;
  for (const auto& event : json["traceEvents"]) {
    const std::string phase = event["ph"];
    events += phase == "X" || phase == "C" ? 1 : 0;
    flows += phase == "s" || phase == "t" || phase == "f" ? 1 : 0;
  }
  EXPECT_EQ(events, EventsOf(profile));
  EXPECT_EQ(flows, 6 * 3);
  EXPECT_EQ(json["otherData"]["job"], profile.job());
  EXPECT_EQ(json["otherData"]["events_left_out"], 0);
  EXPECT_THAT(json["otherData"]["notes"], testing::SizeIs(3));
}

TEST(ChromeTraceTest, InvalidTextBecomesValidJson) {
  RankBuilder rank(0, 1);
  rank.Add({v1::PROFILE_TRACK_COMPUTE, 0, 1, "a\xff\xc0\x80\xed\xa0\x80\"\\\n\x7f", "f", "", 0, 0,
            0, 0});
  v1::JobProfile profile;
  *profile.add_ranks() = rank.profile();
  const auto trace = ChromeTrace(profile, kNoLimit);
  ASSERT_TRUE(trace.ok());
  EXPECT_FALSE(nlohmann::json::parse(trace->bytes, nullptr, false).is_discarded());
}

TEST(TraceTest, AProfileWithoutRecordingsIsATraceToo) {
  v1::JobProfile profile;
  profile.add_missing("rank 0: gone");
  const auto trace = PerfettoTrace(profile, kNoLimit);
  ASSERT_TRUE(trace.ok());
  EXPECT_THAT(trace->bytes, HasSubstr("rank 0: gone"));
  EXPECT_TRUE(ChromeTrace(profile, kNoLimit).ok());
}

}  // namespace
}  // namespace fsdp
