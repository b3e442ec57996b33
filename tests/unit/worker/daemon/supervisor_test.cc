// The supervisor's decisions, with time and trainers under the test's control.

#include "worker/daemon/supervisor.h"

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/daemon/supervisor_fixture.h"

namespace fsdp::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(SupervisorTest, TheHelloIsAnsweredByTheAssignment) {
  Start(1);
  EXPECT_EQ(pulses_.running()->state(), v1::RANK_STATE_STARTING);
  v1::TrainerToDaemon hello;
  hello.mutable_hello()->set_protocol_version(1);
  supervisor_->OnTrainerMessage(hello);
  ASSERT_EQ(trainer().messages.size(), 1u);
  EXPECT_EQ(trainer().messages[0].start().assignment().key().epoch(), 1);
  EXPECT_EQ(trainer().messages[0].start().cpu_threads(), 3);
  EXPECT_FALSE(trainer().messages[0].start().share_device());
}

// Its NCCL refuses two ranks of one host on one device, unless it knows.
TEST_F(SupervisorTest, ATrainerIsToldThatItsDeviceIsShared) {
  MakeSupervisor({.cpu_threads = 3, .share_device = true});
  Start(1);
  v1::TrainerToDaemon hello;
  hello.mutable_hello()->set_protocol_version(1);
  supervisor_->OnTrainerMessage(hello);
  ASSERT_EQ(trainer().messages.size(), 1u);
  EXPECT_TRUE(trainer().messages[0].start().share_device());
}

TEST_F(SupervisorTest, ARepeatedStartOrCommitChangesNothing) {
  Start(1);
  Start(1);
  Commit(1);
  Commit(1);
  EXPECT_EQ(launched_.size(), 1u);
  EXPECT_EQ(trainer().messages.size(), 1u);
  EXPECT_THAT(trainer().signals, IsEmpty());
}

TEST_F(SupervisorTest, TheGraceRunsFromTheStopAndEndsInAKill) {
  StartRunning(1);
  Stop(v1::STOP_MODE_CHECKPOINT, 10);
  ASSERT_EQ(trainer().messages.size(), 1u);
  EXPECT_EQ(trainer().messages[0].stop().mode(), v1::STOP_MODE_CHECKPOINT);
  Advance(absl::Seconds(9.9));
  EXPECT_THAT(trainer().signals, IsEmpty());
  Advance(absl::Seconds(0.2));
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
  Advance(absl::Seconds(100));
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
}

TEST_F(SupervisorTest, TheJobsGraceCountsWhenTheCommandHasNone) {
  v1::TrainingJob job;
  job.mutable_spec()->mutable_limits()->set_grace_period_seconds(3);
  StartRunning(1, job);
  Stop(v1::STOP_MODE_TERMINATE, 0);
  EXPECT_THAT(trainer().signals, ElementsAre(SIGTERM));
  Advance(absl::Seconds(3));
  EXPECT_THAT(trainer().signals, ElementsAre(SIGTERM, SIGKILL));
}

TEST_F(SupervisorTest, StopsGetHarsherNeverMilder) {
  StartRunning(1);
  Stop(v1::STOP_MODE_CHECKPOINT, 10);
  Stop(v1::STOP_MODE_TERMINATE, 100);  // The earlier deadline stays.
  Stop(v1::STOP_MODE_DRAIN, 100);
  EXPECT_THAT(trainer().signals, ElementsAre(SIGTERM));
  EXPECT_EQ(trainer().messages.size(), 2u);
  Advance(absl::Seconds(10));
  EXPECT_THAT(trainer().signals, ElementsAre(SIGTERM, SIGKILL));
}

TEST_F(SupervisorTest, WhatDoesNotTrainYetIsTerminatedAtOnce) {
  Start(1);
  Stop(v1::STOP_MODE_CHECKPOINT, 10);
  EXPECT_THAT(trainer().signals, ElementsAre(SIGTERM));
}

TEST_F(SupervisorTest, OlderEpochsAreRefusedEvenWhenIdle) {
  Start(5);
  supervisor_->OnTrainerExit({});
  Start(4);
  Commit(4);
  EXPECT_EQ(launched_.size(), 1u);
  EXPECT_EQ(supervisor_->stats().num_stale_commands, 2);
}

TEST_F(SupervisorTest, TheNextEpochWaitsForTheOldProcess) {
  StartRunning(1);
  Start(2);
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
  EXPECT_EQ(launched_.size(), 1u);
  supervisor_->OnTrainerExit({.signal = SIGKILL});
  ASSERT_EQ(launched_.size(), 2u);
  EXPECT_EQ(launched_[1].key().epoch(), 2);
  EXPECT_EQ(ReportsOf(v1::Report::kExited).size(), 1u);
}

TEST_F(SupervisorTest, AnExitTellsWhetherWeSignalled) {
  Start(1);
  supervisor_->OnTrainerExit({.signal = SIGKILL});
  Start(2);
  supervisor_->OnTrainerExit({.signal = SIGKILL, .signalled_by_us = true});
  const auto exits = ReportsOf(v1::Report::kExited);
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_FALSE(exits[0].exited().signalled_by_worker());
  EXPECT_TRUE(exits[1].exited().signalled_by_worker());
}

TEST_F(SupervisorTest, AStopOfTheWaitingEpochIsAnsweredByItsExit) {
  StartRunning(1);
  Start(2);
  Stop(v1::STOP_MODE_KILL, 0, 2);
  supervisor_->OnTrainerExit({.signal = SIGKILL});
  EXPECT_EQ(launched_.size(), 1u);
  const auto exits = ReportsOf(v1::Report::kExited);
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].key().epoch(), 2);
  EXPECT_EQ(exits[1].key().epoch(), 1);
}

TEST_F(SupervisorTest, AnOrphanStopsAfterTheJobsLimit) {
  v1::TrainingJob job;
  job.mutable_spec()->mutable_limits()->set_stop_after_disconnect_seconds(30);
  StartRunning(1, job);
  supervisor_->OnDisconnected();
  Advance(absl::Seconds(29));
  EXPECT_THAT(trainer().signals, IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(trainer().signals, ElementsAre(SIGTERM));
  const auto failures = ReportsOf(v1::Report::kFailure);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].failure().cause(), v1::FAILURE_CAUSE_ORPHANED);
}

TEST_F(SupervisorTest, AReconnectInTimeSavesTheRank) {
  StartRunning(1);
  supervisor_->OnDisconnected();
  Advance(absl::Seconds(599));
  v1::Welcome welcome;
  welcome.set_keep_running_rank(true);
  supervisor_->OnWelcome(welcome);
  Advance(absl::Seconds(599));
  EXPECT_THAT(trainer().signals, IsEmpty());
}

TEST_F(SupervisorTest, AStaleEpochNoticeKills) {
  StartRunning(1);
  v1::ConnectResponse command;
  *command.mutable_stale_epoch()->mutable_key() = Key(1);
  command.mutable_stale_epoch()->set_live_epoch(2);
  supervisor_->OnCommand(command);
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
}

TEST_F(SupervisorTest, AClosedLinkIsGivenTimeToExit) {
  StartRunning(1);
  supervisor_->OnTrainerLinkClosed(absl::OkStatus());
  Advance(absl::Seconds(9));
  EXPECT_THAT(trainer().signals, IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
}

TEST_F(SupervisorTest, ATrainerThatTakesNoMessagesIsAHang) {
  StartRunning(1);
  trainer().send_status = absl::DeadlineExceededError("the peer takes no bytes");
  Commit(1);
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
  ASSERT_EQ(ReportsOf(v1::Report::kFailure).size(), 1u);
  EXPECT_EQ(ReportsOf(v1::Report::kFailure)[0].failure().cause(), v1::FAILURE_CAUSE_HANG);
}

TEST_F(SupervisorTest, LogLinesAreBatchedAndComeBeforeTheExit) {
  Start(1);
  supervisor_->OnTrainerLine(v1::LOG_STREAM_STDOUT, "one", false);
  supervisor_->OnTrainerLine(v1::LOG_STREAM_STDERR, "two", false);
  EXPECT_THAT(reports_, IsEmpty());
  Advance(absl::Milliseconds(100));
  ASSERT_EQ(reports_.size(), 1u);
  // The daemon's own line about the start is the first.
  ASSERT_EQ(reports_[0].logs().entries_size(), 3);
  EXPECT_EQ(reports_[0].logs().entries(0).stream(), v1::LOG_STREAM_WORKER);
  EXPECT_EQ(reports_[0].logs().entries(2).text(), "two");
  supervisor_->OnTrainerExit({.exit_code = 1});
  ASSERT_EQ(reports_.size(), 3u);
  EXPECT_TRUE(reports_[1].has_logs());
  EXPECT_THAT(reports_[2].exited().last_lines(), ElementsAre("two"));
}

TEST_F(SupervisorTest, OnlyTheLastLinesOfStderrAreTheRootCause) {
  Start(1);
  for (int i = 0; i < 30; ++i) {
    supervisor_->OnTrainerLine(v1::LOG_STREAM_STDERR, std::to_string(i), false);
  }
  supervisor_->OnTrainerLine(v1::LOG_STREAM_STDERR, std::string(1023, 'x') + "\xC3\xA9", false);
  supervisor_->OnTrainerExit({.exit_code = 1});
  const v1::RankExited exited = ReportsOf(v1::Report::kExited).at(0).exited();
  ASSERT_EQ(exited.last_lines_size(), 20);
  EXPECT_EQ(exited.last_lines(0), "11");
  // Cut to 1 KiB, and still valid text.
  EXPECT_EQ(exited.last_lines(19), std::string(1023, 'x') + "?");
}

TEST_F(SupervisorTest, ReportsThatAreTooLargeAreCutToTheirNewestPart) {
  StartRunning(1);
  v1::TrainerToDaemon message;
  message.mutable_failure()->set_message(std::string(1 << 20, 'x'));
  supervisor_->OnTrainerMessage(message);
  EXPECT_EQ(ReportsOf(v1::Report::kFailure).at(0).failure().message().size(), 65536u);
  for (int i = 0; i < 50'000; ++i) {
    v1::CollectiveRecord& record = *message.mutable_collective_dump()->add_records();
    record.set_sequence(i);
    record.set_unit(std::string(100, 'u'));
  }
  supervisor_->OnTrainerMessage(message);
  const v1::CollectiveDump dump = ReportsOf(v1::Report::kCollectiveDump).at(0).collective_dump();
  EXPECT_LT(dump.ByteSizeLong(), 2u << 20);
  EXPECT_GT(dump.records_size(), 5'000);
  EXPECT_EQ(dump.records().rbegin()->sequence(), 49'999);
}

TEST_F(SupervisorTest, AReportThatCannotBeCutEndsTheRank) {
  StartRunning(1);
  v1::TrainerToDaemon message;
  message.mutable_step()->add_families()->set_remedy(std::string(4 << 20, 'x'));
  supervisor_->OnTrainerMessage(message);
  EXPECT_THAT(ReportsOf(v1::Report::kStep), IsEmpty());
  EXPECT_THAT(ReportsOf(v1::Report::kFailure).at(0).failure().message(), HasSubstr("4194"));
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
}

TEST_F(SupervisorTest, AnAcknowledgedProposalWithoutAVerdictIsMadeAgain) {
  StartRunning(1);
  v1::TrainerToDaemon message;
  message.mutable_manifest()->mutable_checkpoint()->set_step(7);
  supervisor_->OnTrainerMessage(message);
  const std::int64_t sequence = static_cast<std::int64_t>(reports_.size());
  v1::Welcome welcome;
  welcome.set_keep_running_rank(true);
  welcome.set_acked_sequence(sequence - 1);
  supervisor_->OnWelcome(welcome);  // Not acknowledged: the spool delivers it.
  EXPECT_EQ(ReportsOf(v1::Report::kManifest).size(), 1u);
  welcome.set_acked_sequence(sequence);
  supervisor_->OnWelcome(welcome);
  EXPECT_EQ(ReportsOf(v1::Report::kManifest).size(), 2u);
  v1::ConnectResponse verdict;
  *verdict.mutable_manifest_verdict()->mutable_key() = Key(1);
  verdict.mutable_manifest_verdict()->set_step(7);
  supervisor_->OnCommand(verdict);
  supervisor_->OnCommand(verdict);  // The second one is not passed on.
  EXPECT_EQ(trainer().messages.size(), 1u);
  supervisor_->OnWelcome(welcome);
  EXPECT_EQ(ReportsOf(v1::Report::kManifest).size(), 2u);
}

TEST_F(SupervisorTest, AShutdownSavesTheRankAndTakesNoOther) {
  StartRunning(1);
  supervisor_->BeginShutdown("SIGTERM");
  EXPECT_EQ(trainer().messages.back().stop().mode(), v1::STOP_MODE_CHECKPOINT);
  EXPECT_FALSE(supervisor_->idle());
  supervisor_->OnTrainerExit({});
  EXPECT_TRUE(supervisor_->idle());
  Start(2);
  EXPECT_EQ(launched_.size(), 1u);
  const std::vector<v1::Report> exits = ReportsOf(v1::Report::kExited);
  EXPECT_THAT(exits.back().exited().last_lines(0), HasSubstr("shutting down"));
  // The coordinator must not take either for a rank that stopped by itself.
  for (const v1::Report& exit : exits) {
    EXPECT_EQ(exit.exited().worker_stop_reason(), "the worker is shutting down: SIGTERM");
  }
}

TEST_F(SupervisorTest, AStopThatTheCoordinatorAskedForFirstIsNotTheWorkers) {
  StartRunning(1);
  Stop(v1::STOP_MODE_CHECKPOINT, 10);
  supervisor_->BeginShutdown("SIGTERM");
  supervisor_->OnTrainerExit({});
  EXPECT_EQ(ReportsOf(v1::Report::kExited).back().exited().worker_stop_reason(), "");
}

TEST_F(SupervisorTest, AManifestThatIsWrittenIsReported) {
  StartRunning(1);
  v1::TrainerToDaemon message;
  message.mutable_published()->set_step(5);
  supervisor_->OnTrainerMessage(message);
  EXPECT_EQ(ReportsOf(v1::Report::kPublished).back().published().step(), 5);
}

TEST_F(SupervisorTest, ASecondShutdownRequestKills) {
  StartRunning(1);
  supervisor_->BeginShutdown("SIGTERM");
  supervisor_->BeginShutdown("SIGTERM");
  EXPECT_THAT(trainer().signals, ElementsAre(SIGKILL));
}

TEST_F(SupervisorTest, TheMarkerIsSetWhileAProcessExists) {
  Start(1);
  EXPECT_THAT(marks_, ElementsAre(true));
  supervisor_->OnTrainerExit({});
  EXPECT_THAT(marks_, ElementsAre(true, false));
  EXPECT_FALSE(pulses_.running());
}

TEST_F(SupervisorTest, ExitsAreCountedByWhatTheyMean) {
  Start(1);
  v1::TrainerToDaemon done;
  done.mutable_done()->set_finished(true);
  supervisor_->OnTrainerMessage(done);
  supervisor_->OnTrainerExit({});
  Start(2);
  supervisor_->OnTrainerExit({.exit_code = 1});
  Start(3);
  supervisor_->OnTrainerExit({.signal = SIGSEGV});
  Start(4);
  Stop(v1::STOP_MODE_KILL, 0, 4);
  supervisor_->OnTrainerExit({.signal = SIGKILL});
  const auto& exits = supervisor_->stats().trainer_exits;
  EXPECT_EQ(exits.at("finished"), 1);
  EXPECT_EQ(exits.at("failed"), 1);
  EXPECT_EQ(exits.at("signal"), 1);
  EXPECT_EQ(exits.at("stopped"), 1);
}

}  // namespace
}  // namespace fsdp::daemon
