#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "client/cli.h"
#include "tests/unit/client/cli_fixture.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] = "jobs/a-00000001";

class StreamsTest : public ::testing::Test {
 protected:
  StreamsTest() { runner_.service.PutJob(CliRunner::ExampleJob(v1::JOB_STATE_RUNNING)); }
  CliResult Run(const std::vector<std::string>& arguments) { return runner_.Run(arguments); }
  void AddLog(int rank, int attempt, const std::string& text) {
    v1::LogEntry entry;
    entry.set_rank(rank);
    entry.set_attempt(attempt);
    entry.set_text(text);
    entry.mutable_time()->set_seconds(1767323045);
    runner_.service.AddLog(kJob, entry);
  }
  CliRunner runner_;
};

TEST_F(StreamsTest, LogsAreFiltered) {
  AddLog(0, 1, "one");
  AddLog(1, 1, "two");
  AddLog(0, 2, "three");
  EXPECT_EQ(Run({"logs", "a-00000001"}).out, "[1.0] one\n[1.1] two\n[2.0] three\n");
  EXPECT_EQ(Run({"logs", "a-00000001", "--rank", "0", "--no-prefix"}).out, "one\nthree\n");
  EXPECT_EQ(Run({"logs", "a-00000001", "--attempt", "2"}).out, "[2.0] three\n");
  EXPECT_EQ(Run({"logs", "a-00000001", "--tail", "2"}).out, "[1.1] two\n[2.0] three\n");
  EXPECT_EQ(Run({"logs", "a-00000001", "--since-offset", "2"}).out, "[2.0] three\n");
  EXPECT_THAT(Run({"logs", "a-00000001", "--timestamps", "--tail=1"}).out,
              HasSubstr("2026-01-02T03:04:05Z [2.0] three"));
  EXPECT_THAT(Run({"logs", "a-00000001", "-o", "jsonl", "--tail=1"}).out,
              HasSubstr("\"offset\":3,"));
}

TEST_F(StreamsTest, EscapesOfAJobDoNotReachATerminal) {
  AddLog(0, 1, "\x1b[2Jgone");
  EXPECT_EQ(Run({"logs", "a-00000001", "--no-prefix"}).out, "\x1b[2Jgone\n");
  runner_.terminal = true;
  EXPECT_EQ(Run({"logs", "a-00000001", "--no-prefix"}).out, "?[2Jgone\n");
}

TEST_F(StreamsTest, FollowedLogsExitByTheJob) {
  AddLog(0, 1, "one");
  std::thread trainer([this] {
    runner_.service.WaitForStreams(1);
    AddLog(0, 1, "two");
    runner_.service.SetState(kJob, v1::JOB_STATE_FAILED);
  });
  const CliResult result = Run({"logs", "-f", "a-00000001"});
  trainer.join();
  EXPECT_EQ(result.exit_code, 100);
  EXPECT_EQ(result.out, "[1.0] one\n[1.0] two\n");
  EXPECT_THAT(result.err, HasSubstr("job a-00000001: FAILED"));
}

TEST_F(StreamsTest, FollowedLogsGoOnAfterARestartOfTheCoordinator) {
  AddLog(0, 1, "one");
  std::thread operator_thread([this] {
    runner_.service.WaitForStreams(1);
    runner_.service.Stop();
    AddLog(0, 1, "two");
    runner_.service.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
    runner_.service.Serve();
  });
  const CliResult result = Run({"logs", "-f", "a-00000001"});
  operator_thread.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "[1.0] one\n[1.0] two\n");
  EXPECT_THAT(result.err, HasSubstr("connection lost"));
}

TEST_F(StreamsTest, InterruptedLogsSayWhereToGoOn) {
  AddLog(0, 1, "one");
  AddLog(0, 1, "two");
  runner_.service.AddEvent(kJob, {});
  std::thread user([this] {
    runner_.service.WaitForStreams(2);
    runner_.interrupt.Cancel();
  });
  // The first stream breaks after both lines; the user gives up during the second.
  runner_.service.BreakStreamAfter(2);
  std::thread writer([this] {
    while (runner_.service.log_requests().size() < 2) {
      AddLog(0, 1, "more");
      std::this_thread::yield();
    }
  });
  const CliResult result = Run({"logs", "-f", "a-00000001"});
  user.join();
  writer.join();
  EXPECT_EQ(result.exit_code, 101);
  EXPECT_THAT(result.err, HasSubstr("fsdpctl logs a-00000001 --since-offset "));
}

TEST_F(StreamsTest, Events) {
  v1::JobEvent event;
  event.set_type("EPOCH_STARTED");
  event.set_severity(v1::EVENT_SEVERITY_INFO);
  event.set_attempt(1);
  event.set_rank(0);
  event.set_message("2 ranks");
  event.mutable_time()->set_seconds(1767323045);
  runner_.service.AddEvent(kJob, event);
  runner_.service.AddEvent(kJob, event);
  EXPECT_EQ(Run({"events", "a-00000001", "--since", "1"}).out,
            "2026-01-02T03:04:05Z  INFO    EPOCH_STARTED attempt 1 rank 0  2 ranks\n");
  EXPECT_THAT(Run({"events", "a-00000001", "-o", "jsonl"}).out, HasSubstr("\"sequence\":1,"));
}

TEST_F(StreamsTest, Metrics) {
  v1::StepMetrics step;
  step.set_step(1);
  step.set_loss(5.25);
  step.set_lr(0.001);
  step.set_tokens(128);
  step.set_tokens_per_second(2560);
  step.set_step_seconds(0.05);
  step.set_memory_peak_bytes(3 << 20);
  step.mutable_time()->set_seconds(1767323045);
  runner_.service.AddMetrics(kJob, step);
  EXPECT_EQ(Run({"metrics", "a-00000001"}).out,
            "    STEP      LOSS       VAL  GRAD NORM         LR    TOKENS/S      STEP     MFU  "
            "PEAK MEMORY\n"
            "       1    5.2500         -          0      0.001       2.56K    50.0ms       -      "
            "3.0 MiB\n");
  const std::string csv = Run({"metrics", "a-00000001", "-o", "csv"}).out;
  EXPECT_THAT(csv, HasSubstr("step,time,attempt,epoch,loss,validation_loss,"));
  EXPECT_THAT(csv, HasSubstr("\n1,2026-01-02T03:04:05.000Z,0,0,5.25,,0,0.001,128,0.05,2560,"));
  EXPECT_THAT(Run({"metrics", "a-00000001", "-o", "jsonl"}).out, HasSubstr("\"loss\":5.25"));
  // Zero is a figure: a column that comes and goes breaks readers.
  EXPECT_THAT(Run({"metrics", "a-00000001", "-o", "jsonl"}).out, HasSubstr("\"gradNorm\":0.0,"));
  EXPECT_THAT(Run({"metrics", "a-00000001", "-o", "jsonl"}).out, HasSubstr("\"skipped\":false"));

  step.set_skipped(true);
  step.set_spike(true);
  runner_.service.AddMetrics(kJob, step);
  EXPECT_THAT(Run({"metrics", "a-00000001"}).out, HasSubstr("3.0 MiB  skipped\n"));
  step.set_rolled_back(true);
  runner_.service.AddMetrics(kJob, step);
  EXPECT_THAT(Run({"metrics", "a-00000001"}).out, HasSubstr("3.0 MiB  rolled back\n"));
  v1::EvaluationLoss& set = *step.add_evaluations();
  set.set_name("code");
  set.set_loss(2.5);
  runner_.service.AddMetrics(kJob, step);
  EXPECT_THAT(Run({"metrics", "a-00000001"}).out, HasSubstr("rolled back  code 2.5000\n"));
  const std::string flags = Run({"metrics", "a-00000001", "-o", "csv"}).out;
  EXPECT_THAT(flags, HasSubstr(",skipped,spike,rolled_back\n"));
  EXPECT_THAT(flags, HasSubstr(",0,0,0\n"));
  EXPECT_THAT(flags, HasSubstr(",1,1,1\n"));
}

// A column for each set of the spec, from the first line on, whenever it is evaluated.
TEST_F(StreamsTest, EvaluationSetsHaveColumns) {
  runner_.service.UpdateJob(kJob, [](v1::Job& job) {
    v1::DataSpec& data = *job.mutable_spec()->mutable_spec()->mutable_data();
    data.add_evaluation_sets()->set_name("code");
    data.add_evaluation_sets()->set_path("/data/a \"b\", c.bin");
  });
  v1::StepMetrics step;
  step.set_step(1);
  runner_.service.AddMetrics(kJob, step);
  step.set_step(2);
  for (const auto& [name, loss] :
       {std::pair("/data/a \"b\", c.bin", 1.25), std::pair("code", 2.5)}) {
    v1::EvaluationLoss& set = *step.add_evaluations();
    set.set_name(name);
    set.set_loss(loss);
  }
  runner_.service.AddMetrics(kJob, step);
  const std::string csv = Run({"metrics", "a-00000001", "-o", "csv"}).out;
  EXPECT_THAT(csv, HasSubstr(",rolled_back,evaluation_loss.code,"
                             "\"evaluation_loss./data/a \"\"b\"\", c.bin\"\n"));
  EXPECT_THAT(csv, HasSubstr(",0,0,0,,\n2,"));
  EXPECT_THAT(csv, HasSubstr(",0,0,0,2.5,1.25\n"));
  EXPECT_EQ(Run({"metrics", "b-00000001", "-o", "csv"}).exit_code, 102);
}

TEST_F(StreamsTest, LogLinesOfRankZeroSayTheirRank) {
  AddLog(0, 1, "one");
  EXPECT_THAT(Run({"logs", "a-00000001", "-o", "jsonl"}).out, HasSubstr("\"rank\":0"));
}

// `kill -9` of `fsdpctl local` while somebody waits.
TEST_F(StreamsTest, WaitingForACoordinatorThatStaysAwayEndsWithFour) {
  for (const bool progress : {false, true}) {
    if (progress) runner_.service.Serve();
    std::thread killer([this, progress] {
      runner_.service.WaitForStreams(progress ? 2 : 1);
      runner_.service.Stop();
    });
    std::vector<std::string> line = {"wait", "a-00000001", "--reconnect", "300ms"};
    if (progress) line.push_back("--progress");
    const absl::Time start = absl::Now();
    const CliResult result = Run(line);
    killer.join();
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_LT(absl::Now() - start, absl::Seconds(5));
    EXPECT_THAT(result.err, HasSubstr("did not come back within 300ms"));
    if (progress) continue;
    EXPECT_THAT(result.err, HasSubstr("connection lost, trying to resume for 300ms"));
  }
}

TEST_F(StreamsTest, WaitReachesAState) {
  EXPECT_EQ(Run({"wait", "a-00000001", "--for", "state=RUNNING"}).exit_code, 0);
  runner_.service.SetState(kJob, v1::JOB_STATE_FAILED);
  EXPECT_EQ(Run({"wait", "a-00000001", "--for", "state=FAILED"}).exit_code, 0);
  EXPECT_EQ(Run({"wait", "a-00000001"}).exit_code, 100);
  const CliResult bad = Run({"wait", "a-00000001", "--for", "state=RUNING"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("did you mean RUNNING?"));
}

TEST_F(StreamsTest, WaitForAStateThatCannotComeAnyMoreFailsAndSaysSo) {
  const struct {
    v1::JobState ended;
    const char* wanted;
    int exit_code;
  } cases[] = {{v1::JOB_STATE_SUCCEEDED, "RUNNING", 101},
               {v1::JOB_STATE_SUCCEEDED, "CANCELLED", 101},
               {v1::JOB_STATE_FAILED, "RUNNING", 100},
               {v1::JOB_STATE_CANCELLED, "SUCCEEDED", 103}};
  for (const auto& one : cases) {
    runner_.service.SetState(kJob, one.ended);
    const CliResult result =
        Run({"wait", "a-00000001", "--for", std::string("state=") + one.wanted});
    EXPECT_EQ(result.exit_code, one.exit_code);
    EXPECT_THAT(result.err, HasSubstr(std::string("so it does not become ") + one.wanted));
  }
  // The worst of several.
  v1::Job other = CliRunner::ExampleJob(v1::JOB_STATE_RUNNING);
  other.set_name("jobs/b-00000002");
  runner_.service.PutJob(other);
  runner_.service.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"wait", "b-00000002", "a-00000001", "--for", "state=RUNNING"}).exit_code, 101);
}

TEST_F(StreamsTest, WaitRunsOutOfTime) {
  const CliResult result = Run({"wait", "a-00000001", "--timeout", "50ms"});
  EXPECT_EQ(result.exit_code, 101);
  EXPECT_THAT(result.err, HasSubstr("still RUNNING"));
}

TEST_F(StreamsTest, WaitForSeveralTellsTheWorst) {
  v1::Job other = CliRunner::ExampleJob(v1::JOB_STATE_SUCCEEDED);
  other.set_name("jobs/b-00000002");
  runner_.service.PutJob(other);
  runner_.service.SetState(kJob, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Run({"wait", "b-00000002"}).exit_code, 0);
  EXPECT_EQ(Run({"wait", "b-00000002", "a-00000001"}).exit_code, 103);
  EXPECT_EQ(Run({"wait", "b-00000002", "nope", "a-00000001"}).exit_code, 102);
}

}  // namespace
}  // namespace fsdp
