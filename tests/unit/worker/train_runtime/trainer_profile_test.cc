// Ranks that record steps while they train: the same steps on every rank, everything of a step in
// the recording, and training that does not notice.

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "proto/support/crc32c.h"
#include "proto/support/recording_pieces.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainerProfileTest : public TrainerTest {
 protected:
  [[nodiscard]] v1::TrainerProfile Request(int rank, int steps) const {
    v1::TrainerProfile profile;
    profile.set_profile("p1");
    profile.mutable_options()->set_steps(steps);
    profile.set_path(absl::StrCat(directory_, "/recording-", rank));
    return profile;
  }
  // The last update that the rank sent of its profile.
  static v1::TrainerProfileUpdate Last(FakeLink& link) {
    v1::TrainerProfileUpdate last;
    for (const v1::TrainerToDaemon& message : link.Messages()) {
      if (message.has_profile()) last = message.profile();
    }
    return last;
  }
  [[nodiscard]] v1::RankProfile Recording(int rank) const {
    std::ifstream file(Request(rank, 1).path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    v1::RankProfile profile;
    EXPECT_TRUE(profile.ParseFromString(bytes));
    EXPECT_GT(bytes.size(), 100U);
    return profile;
  }
  static std::string Name(const v1::RankProfile& profile, const v1::ProfileSpan& span) {
    return profile.strings(static_cast<int>(span.name()));
  }
};

TEST_F(TrainerProfileTest, AllRanksRecordTheSameStepsThoughTheyAreAskedAtDifferentOnes) {
  const auto losses = [&](bool profiled) {
    Epoch epoch(Job(12), 3);
    for (int rank = 0; profiled && rank < 3; ++rank) {
      epoch.links[static_cast<std::size_t>(rank)]->ProfileAfter(2 + rank, Request(rank, 3));
    }
    epoch.Run();
    if (profiled) {
      for (int rank = 0; rank < 3; ++rank) {
        const v1::TrainerProfileUpdate last = Last(*epoch.links[static_cast<std::size_t>(rank)]);
        EXPECT_EQ(last.state(), v1::PROFILE_STATE_DONE) << last.message();
        EXPECT_EQ(last.steps(), 3);
        EXPECT_EQ(static_cast<std::uintmax_t>(last.size_bytes()),
                  std::filesystem::file_size(Request(rank, 1).path()));
      }
    }
    return epoch.links[0]->Losses();
  };
  const std::vector<double> plain = losses(false);
  EXPECT_EQ(losses(true), plain);
  std::set<std::int64_t> first_steps;
  for (int rank = 0; rank < 3; ++rank) {
    const v1::RankProfile profile = Recording(rank);
    first_steps.insert(profile.first_step());
    EXPECT_EQ(profile.last_step(), profile.first_step() + 2);
    EXPECT_EQ(profile.rank(), rank);
    EXPECT_EQ(profile.world_size(), 3);
    EXPECT_EQ(profile.timing(), v1::PROFILE_TIMING_HOST);
    EXPECT_EQ(profile.spans_dropped(), 0);
  }
  EXPECT_EQ(first_steps.size(), 1U) << "ranks began with different steps";
}

TEST_F(TrainerProfileTest, ARecordingHoldsTheWholeStep) {
  Epoch epoch(Job(8), 2);
  for (int rank = 0; rank < 2; ++rank) {
    epoch.links[static_cast<std::size_t>(rank)]->ProfileAfter(2, Request(rank, 2));
  }
  epoch.Run();
  const v1::RankProfile profile = Recording(1);
  ASSERT_EQ(profile.steps_size(), 2);
  std::map<v1::ProfileTrack, std::set<std::string>> names;
  std::map<std::int64_t, std::int64_t> compute_ns;  // by step
  for (const v1::ProfileSpan& span : profile.spans()) {
    names[span.track()].insert(Name(profile, span));
    EXPECT_GE(span.step(), profile.first_step());
    EXPECT_LE(span.step(), profile.last_step());
    EXPECT_LE(span.begin_ns() + span.duration_ns(), profile.end_ns() - profile.begin_ns());
    if (span.track() == v1::PROFILE_TRACK_COMPUTE) compute_ns[span.step()] += span.duration_ns();
  }
  EXPECT_THAT(names[v1::PROFILE_TRACK_COMPUTE],
              ::testing::IsSupersetOf({"matmul", "matmul.dx", "matmul.dw", "attention.fwd",
                                       "attention.bwd", "rms_norm", "rms_norm.bwd", "adamw",
                                       "cross_entropy+grad", "embedding", "swiglu", "rope"}));
  EXPECT_THAT(names[v1::PROFILE_TRACK_GATHER],
              ::testing::IsSupersetOf({"all_gather embed", "all_gather layers.0"}));
  EXPECT_THAT(names[v1::PROFILE_TRACK_SCATTER], ::testing::Contains("reduce_scatter layers.0"));
  EXPECT_THAT(names[v1::PROFILE_TRACK_HOST], ::testing::IsSupersetOf({"data", "train", "agree"}));
  EXPECT_THAT(names[v1::PROFILE_TRACK_PHASE],
              ::testing::IsSupersetOf({"data", "compute", "exposed_gather", "optimizer"}));
  for (const v1::ProfileStep& step : profile.steps()) {
    const v1::StepPhases& phases = step.phases();
    const double sum = phases.data_seconds() + phases.compute_seconds() +
                       phases.exposed_gather_seconds() + phases.exposed_scatter_seconds() +
                       phases.optimizer_seconds() + phases.checkpoint_seconds() +
                       phases.evaluate_seconds() + phases.other_seconds() +
                       phases.unattributed_seconds();
    EXPECT_NEAR(sum, static_cast<double>(step.duration_ns()) * 1e-9, 1e-6);
    // What launches took and what lay between them is what the phases say.
    const double launches = static_cast<double>(compute_ns[step.step()]) * 1e-9;
    EXPECT_NEAR(launches + phases.launch_gap_seconds(),
                phases.compute_seconds() + phases.optimizer_seconds(), 1e-6);
  }
  // Verdicts are of these steps, not of the run: as many launches as spans.
  std::int64_t launches = 0;
  for (const v1::FamilyVerdict& family : profile.families()) {
    if (family.family() != "gather" && family.family() != "scatter" &&
        family.family() != "reduce") {
      launches += family.launches();
    }
  }
  std::int64_t spans = 0;
  std::map<std::string, std::int64_t> collectives;
  for (const v1::ProfileSpan& span : profile.spans()) {
    spans += span.track() == v1::PROFILE_TRACK_COMPUTE ? 1 : 0;
    const std::string& family = profile.strings(static_cast<int>(span.family()));
    if (span.sequence() > 0) ++collectives[family];
    EXPECT_EQ(family == "agreement", Name(profile, span) == "all_gather agree");
  }
  EXPECT_EQ(spans, launches);
  // One rule for both: the schedule's collectives are a family's, what ranks agree on is not.
  EXPECT_GT(collectives["agreement"], 0);
  for (const v1::FamilyVerdict& family : profile.families()) {
    if (family.family() == "gather" || family.family() == "scatter") {
      EXPECT_EQ(collectives[family.family()], family.launches()) << family.family();
    }
    EXPECT_NE(family.family(), "agreement");
  }
  ASSERT_EQ(profile.counters_size(), 1);
  EXPECT_EQ(profile.counters(0).name(), "memory");
  EXPECT_EQ(profile.counters(0).values_size(), 2);
}

TEST_F(TrainerProfileTest, ThePiecesGoWhenTheRecordingIsWhole) {
  Epoch epoch(Job(12));
  const v1::TrainerProfile request = Request(0, 4);
  epoch.links[0]->ProfileAfter(2, request);
  epoch.Run();
  EXPECT_EQ(Recording(0).steps_size(), 4);
  EXPECT_FALSE(std::filesystem::exists(PiecesPath(request.path())));
}

TEST_F(TrainerProfileTest, OnlyTheRanksThatAreAskedRecordAndWaitForEachOther) {
  Epoch epoch(Job(10), 3);
  for (const int rank : {0, 2}) {
    v1::TrainerProfile request = Request(rank, 2);
    request.mutable_options()->add_ranks(0);
    request.mutable_options()->add_ranks(2);
    epoch.links[static_cast<std::size_t>(rank)]->ProfileAfter(1 + rank, request);
  }
  epoch.Run();
  EXPECT_EQ(Recording(0).first_step(), Recording(2).first_step());
  EXPECT_FALSE(std::filesystem::exists(Request(1, 1).path()));
}

TEST_F(TrainerProfileTest, ATrainingThatEndsFirstKeepsWhatItHas) {
  Epoch epoch(Job(5));
  epoch.links[0]->ProfileAfter(2, Request(0, 100));
  epoch.Run();
  EXPECT_EQ(Last(*epoch.links[0]).state(), v1::PROFILE_STATE_DONE);
  // Asked for in step 3, begun with step 4.
  const v1::RankProfile profile = Recording(0);
  EXPECT_EQ(profile.steps_size(), 2);
  EXPECT_THAT(profile.notes(), ElementsAre("the training ended: 2 of 100 steps are recorded"));
}

TEST_F(TrainerProfileTest, WhatCannotBeRecordedFailsAloneAndTrainingGoesOn) {
  // Rank 1 is never asked: its peers' profile cannot begin.
  Epoch lonely(Job(5), 2);
  lonely.links[0]->ProfileAfter(1, Request(0, 2));
  lonely.Run();
  EXPECT_EQ(Last(*lonely.links[0]).state(), v1::PROFILE_STATE_FAILED);
  EXPECT_THAT(Last(*lonely.links[0]).message(), HasSubstr("the training ended"));
  EXPECT_TRUE(lonely.done().finished());

  Epoch bad(Job(5));
  v1::TrainerProfile request = Request(0, 2);
  request.mutable_options()->add_ranks(4);
  bad.links[0]->ProfileAfter(1, request);
  bad.Run();
  EXPECT_THAT(Last(*bad.links[0]).message(), HasSubstr("ranks has 4"));

  Epoch nowhere(Job(5));
  request = Request(0, 2);
  request.set_path("/proc/nowhere/recording");
  nowhere.links[0]->ProfileAfter(1, request);
  nowhere.Run();
  EXPECT_EQ(Last(*nowhere.links[0]).state(), v1::PROFILE_STATE_FAILED);
  EXPECT_THAT(Last(*nowhere.links[0]).message(), HasSubstr("/proc/nowhere/recording"));
  EXPECT_TRUE(nowhere.done().finished());
}

TEST_F(TrainerProfileTest, StepReportsTellUtilisationAndCollectives) {
  Epoch epoch(Job(4), 2);
  epoch.Run();
  const std::vector<v1::StepReport> steps = epoch.links[0]->Steps();
  const v1::StepReport& last = steps.back();
  std::map<std::string, std::int64_t> counts;
  for (const v1::CollectiveTotals& totals : last.collectives()) {
    counts[totals.operation()] = totals.count();
    EXPECT_GT(totals.bytes(), 0) << totals.operation();
    EXPECT_GT(totals.seconds(), 0) << totals.operation();
  }
  EXPECT_GT(counts["all_gather"], 0);
  EXPECT_GT(counts["reduce_scatter"], 0);
  EXPECT_GT(counts["all_reduce"], 0);
  EXPECT_EQ(last.profiler().state(), "analytic");
  // The fixture measures no ceilings: no peak is known on a CPU.
  EXPECT_EQ(last.metrics().mfu(), 0);
}

}  // namespace
}  // namespace fsdp
