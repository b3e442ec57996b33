#include "client/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/unit/client/cli_fixture.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] = "jobs/a-00000001";

class CliTest : public ::testing::Test {
 protected:
  CliResult Run(const std::vector<std::string>& arguments) { return runner_.Run(arguments); }
  void PutJob(v1::JobState state) { runner_.service.PutJob(CliRunner::ExampleJob(state)); }
  CliRunner runner_;
};

TEST_F(CliTest, WithoutAVerbItHelpsAndFails) {
  const CliResult result = Run({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("Usage: fsdpctl VERB"));
  EXPECT_EQ(Run({"--help"}).exit_code, 0);
  EXPECT_EQ(Run({"help"}).out, Run({"-h"}).out);
}

TEST_F(CliTest, EveryVerbHasHelpWithExamples) {
  for (const auto& command : Commands()) {
    const CliResult result = Run({command.name, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command.name;
    EXPECT_THAT(result.out, HasSubstr("Examples:\n  # ")) << command.name;
    EXPECT_THAT(result.out, HasSubstr("Usage: fsdpctl " + command.name));
    EXPECT_EQ(Run({"help", command.name}).out, result.out);
  }
}

TEST_F(CliTest, EveryVerbRefusesUnknownFlagsAndExtraArguments) {
  for (const auto& command : Commands()) {
    const CliResult result = Run({command.name, "--servr=x"});
    EXPECT_EQ(result.exit_code, 2) << command.name;
    EXPECT_THAT(result.err, HasSubstr("did you mean --server?")) << command.name;
    if (command.max_arguments < 0) continue;
    std::vector<std::string> many(static_cast<std::size_t>(command.max_arguments) + 2, "x");
    many[0] = command.name;
    EXPECT_EQ(Run(many).exit_code, 2) << command.name;
  }
}

TEST_F(CliTest, VerbsThatNeedAnArgumentSaySo) {
  for (const auto& command : Commands()) {
    if (command.min_arguments == 0) continue;
    const CliResult result = Run({command.name});
    EXPECT_EQ(result.exit_code, 2) << command.name;
    EXPECT_THAT(result.err, HasSubstr(command.arguments)) << command.name;
  }
}

TEST_F(CliTest, UnknownVerbsAreSuggested) {
  EXPECT_THAT(Run({"sumbit"}).err, HasSubstr("unknown verb sumbit; did you mean submit?"));
  EXPECT_EQ(Run({"sumbit"}).exit_code, 2);
  EXPECT_EQ(Run({"--server=x", "list"}).exit_code, 2);
}

// Unreachable is 4 for every verb that talks to the coordinator, within the call's time.
TEST_F(CliTest, UnreachableIsFourForEveryVerb) {
  runner_.service.Stop();
  runner_.variables["FSDPCTL_CALL_TIMEOUT"] = "50ms";
  runner_.input = kGoodSpec;
  const std::vector<std::vector<std::string>> lines = {{"submit", "-"},
                                                       {"list"},
                                                       {"get", "a"},
                                                       {"describe", "a"},
                                                       {"logs", "a"},
                                                       {"logs", "-f", "a"},
                                                       {"wait", "a"},
                                                       {"cancel", "a"},
                                                       {"suspend", "a"},
                                                       {"resume", "a"},
                                                       {"restart", "a"},
                                                       {"delete", "a"},
                                                       {"top"},
                                                       {"events", "a"},
                                                       {"metrics", "a"},
                                                       {"workers"},
                                                       {"drain", "w"},
                                                       {"uncordon", "w"},
                                                       {"version", "--remote"}};
  for (const auto& line : lines) {
    const CliResult result = Run(line);
    EXPECT_EQ(result.exit_code, 4) << line[0] << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(runner_.service.address())) << line[0];
  }
}

TEST_F(CliTest, UnknownJobsAre102ForEveryVerb) {
  for (const char* verb : {"get", "describe", "logs", "wait", "cancel", "suspend", "resume",
                           "restart", "delete", "events", "metrics"}) {
    const CliResult result = Run({verb, "nope"});
    EXPECT_EQ(result.exit_code, 102) << verb << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("no job jobs/nope")) << verb;
    EXPECT_THAT(result.err, HasSubstr("[JOB_NOT_FOUND]")) << verb;
  }
  EXPECT_EQ(Run({"drain", "nope"}).exit_code, 102);
  EXPECT_EQ(Run({"uncordon", "nope"}).exit_code, 102);
}

TEST_F(CliTest, UnknownJobsAndWorkersAreSuggested) {
  PutJob(v1::JOB_STATE_RUNNING);
  for (const char* verb : {"get", "describe", "logs", "wait", "cancel", "suspend", "resume",
                           "restart", "delete", "events", "metrics"}) {
    EXPECT_THAT(Run({verb, "a-00000010"}).err, HasSubstr("; did you mean a-00000001?\n")) << verb;
  }
  EXPECT_THAT(Run({"get", "nothing-like-it"}).err, Not(HasSubstr("did you mean")));
  v1::Job other = CliRunner::ExampleJob(v1::JOB_STATE_QUEUED);
  for (const char* name : {"jobs/llama-00000001", "jobs/llama-00000002"}) {
    other.set_name(name);
    runner_.service.PutJob(other);
  }
  EXPECT_THAT(Run({"describe", "llama"}).err,
              HasSubstr("; did you mean one of llama-00000001, llama-00000002?\n"));
  v1::Worker worker;
  worker.set_name("workers/host-0");
  runner_.service.PutWorker(worker);
  EXPECT_THAT(Run({"drain", "hots-0"}).err, HasSubstr("; did you mean host-0?\n"));
}

TEST_F(CliTest, AuthErrorsAreFive) {
  runner_.service.FailUnary(
      ServiceError(grpc::StatusCode::UNAUTHENTICATED, "who are you", "NO_IDENTITY"));
  EXPECT_EQ(Run({"list"}).exit_code, 5);
}

TEST_F(CliTest, ABadServerAddressIsUsage) {
  const CliResult result = Run({"list", "--server", "nowhere"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("(from --server)"));
}

TEST_F(CliTest, ListsJobs) {
  PutJob(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"list"}).out,
            "JOB         STATE    RANKS    STEP    LOSS    AGE\n"
            "a-00000001  RUNNING      2  40/100  2.3457  1m30s\n");
  EXPECT_EQ(Run({"list", "-o", "name"}).out, "a-00000001\n");
  EXPECT_EQ(Run({"ls", "--state", "FAILED", "-o", "name"}).out, "");
  EXPECT_THAT(Run({"list", "-o", "wide"}).out, HasSubstr("12.3K"));
  EXPECT_EQ(Run({"list", "--state", "running", "-o", "name"}).out, "a-00000001\n");
  const CliResult unknown = Run({"list", "--state", "runing"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("one of QUEUED, STARTING, RUNNING, "));
  EXPECT_THAT(unknown.err, HasSubstr("; did you mean RUNNING?"));
  EXPECT_EQ(Run({"list", "--label", "novalue"}).exit_code, 2);
}

TEST_F(CliTest, JsonAndYamlWriteNamesAsTheyAreTyped) {
  PutJob(v1::JOB_STATE_RUNNING);
  const auto list = nlohmann::json::parse(Run({"list", "-o", "json"}).out);
  EXPECT_EQ(list["jobs"][0]["name"], kJob);
  const auto one = nlohmann::json::parse(Run({"get", "a-00000001", "-o", "json"}).out);
  EXPECT_EQ(one["state"], "RUNNING");
  EXPECT_EQ(one["createTime"], "2026-01-02T03:02:35Z");
  EXPECT_THAT(Run({"get", "a-00000001", "-o", "yaml"}).out, HasSubstr("state: RUNNING\n"));
}

TEST_F(CliTest, RankZeroHasARank) {
  PutJob(v1::JOB_STATE_RUNNING);
  const auto job = nlohmann::json::parse(Run({"get", "a-00000001", "-o", "json"}).out);
  EXPECT_EQ(job["ranks"][0]["rank"], 0);
  EXPECT_THAT(Run({"get", "a-00000001", "-o", "yaml"}).out, HasSubstr("- rank: 0\n"));
  v1::Worker worker;
  worker.set_name("workers/host-0");
  worker.set_job(kJob);
  runner_.service.PutWorker(worker);
  const auto workers = nlohmann::json::parse(Run({"workers", "-o", "json"}).out);
  EXPECT_EQ(workers["workers"][0]["rank"], 0);
}

TEST_F(CliTest, AnEmptyArgumentIsUsageAndToldOnce) {
  for (const char* verb : {"get", "describe", "logs", "wait", "cancel", "delete", "drain"}) {
    const CliResult result = Run({verb, ""});
    EXPECT_EQ(result.exit_code, 2) << verb;
    EXPECT_THAT(result.err, HasSubstr("an empty one is given")) << verb;
  }
}

TEST_F(CliTest, GetGoesOnAfterAnUnknownJob) {
  PutJob(v1::JOB_STATE_RUNNING);
  const CliResult result = Run({"get", "nope", "a-00000001", "-o", "name"});
  EXPECT_EQ(result.exit_code, 102);
  EXPECT_EQ(result.out, "a-00000001\n");
}

TEST_F(CliTest, ColourOnlyOnATerminal) {
  PutJob(v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Run({"list"}).out, Not(HasSubstr("\x1b[")));
  runner_.terminal = true;
  EXPECT_THAT(Run({"list"}).out, HasSubstr("\x1b[32mRUNNING"));
  runner_.variables["NO_COLOR"] = "1";
  EXPECT_THAT(Run({"list"}).out, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(Run({"list", "--color=always"}).out, HasSubstr("\x1b["));
}

TEST_F(CliTest, StateVerbsPrintTheNewState) {
  PutJob(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"suspend", "a-00000001", "--reason", "room"}).out, "job a-00000001: SUSPENDED\n");
  EXPECT_EQ(runner_.service.job(kJob).reason(), "room");
  EXPECT_EQ(Run({"resume", "a-00000001"}).out, "job a-00000001: QUEUED\n");
  EXPECT_EQ(Run({"restart", kJob}).out, "job a-00000001: QUEUED\n");
  EXPECT_EQ(Run({"delete", kJob}).exit_code, 2);
  EXPECT_EQ(Run({"cancel", "--wait", kJob}).out, "job a-00000001: CANCELLED\n");
  EXPECT_EQ(Run({"cancel", kJob}).exit_code, 0);
  const CliResult late = Run({"suspend", kJob});
  EXPECT_EQ(late.exit_code, 2);
  EXPECT_THAT(late.err, Not(HasSubstr("failed precondition")));
  EXPECT_EQ(Run({"delete", kJob}).out, "job a-00000001: deleted\n");
  EXPECT_EQ(Run({"delete", kJob}).exit_code, 102);
}

// The job runs on until its ranks have saved: the answer says so, and --wait waits for it.
TEST_F(CliTest, SuspendTellsThatTheJobStillSavesAndCanWaitForIt) {
  v1::Job job = CliRunner::ExampleJob(v1::JOB_STATE_RUNNING);
  job.mutable_spec()->mutable_spec()->mutable_checkpoint()->set_dir("/ckpt");
  runner_.service.PutJob(job);
  runner_.service.SuspendSlowly();
  EXPECT_EQ(Run({"suspend", kJob}).out, "job a-00000001: RUNNING, suspending, saves first\n");
  std::thread ranks([this] {
    runner_.service.WaitForStreams(1);
    runner_.service.SetState(kJob, v1::JOB_STATE_SUSPENDED);
  });
  const CliResult waited = Run({"suspend", "--wait", kJob});
  ranks.join();
  EXPECT_EQ(waited.exit_code, 0) << waited.err;
  EXPECT_EQ(waited.out, "job a-00000001: SUSPENDED\n");
}

TEST_F(CliTest, SuspendWaitFailsWhenTheJobEndsFirst) {
  PutJob(v1::JOB_STATE_RUNNING);
  runner_.service.SuspendSlowly();
  std::thread ranks([this] {
    runner_.service.WaitForStreams(1);
    runner_.service.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  });
  const CliResult waited = Run({"suspend", "-w", kJob});
  ranks.join();
  EXPECT_EQ(waited.exit_code, 2);
  EXPECT_THAT(waited.err, HasSubstr("ended as SUCCEEDED before it was suspended"));
}

TEST_F(CliTest, SuspendOfWhatIsSuspendedOrOverSaysWhatToDo) {
  PutJob(v1::JOB_STATE_SUSPENDED);
  const CliResult again = Run({"suspend", kJob});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("job a-00000001 is SUSPENDED already; `fsdpctl resume "
                                   "a-00000001` takes it back [JOB_STATE_CONFLICT]"));
  PutJob(v1::JOB_STATE_SUCCEEDED);
  const CliResult late = Run({"suspend", kJob});
  EXPECT_EQ(late.exit_code, 2);
  EXPECT_THAT(late.err, HasSubstr("is SUCCEEDED and has nothing left to suspend"));
}

TEST_F(CliTest, HelpSaysWhatIsSavedAndWhatIsNot) {
  EXPECT_THAT(Run({"cancel", "--help"}).out, HasSubstr("Saves nothing"));
  EXPECT_THAT(Run({"restart", "--help"}).out, HasSubstr("a running job saves first"));
}

// On standard error, so that what programs read stays what it was.
TEST_F(CliTest, WhatAVerbCostsIsAWarning) {
  PutJob(v1::JOB_STATE_RUNNING);
  v1::Worker worker;
  worker.set_name("workers/host-0");
  runner_.service.PutWorker(worker);
  runner_.service.Warn("what it has trained is lost\x1b[2J");
  for (const auto& line : std::vector<std::vector<std::string>>{
           {"suspend", kJob}, {"restart", kJob}, {"drain", "host-0", "--stop-ranks"}}) {
    const CliResult result = Run(line);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("warning: what it has trained is lost"));
    EXPECT_THAT(result.err, Not(HasSubstr("\x1b")));
    EXPECT_THAT(result.out, Not(HasSubstr("lost")));
  }
  PutJob(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Run({"suspend", kJob, "-o", "name"}).out, "a-00000001\n");
}

TEST_F(CliTest, Workers) {
  EXPECT_THAT(Run({"workers"}).err, HasSubstr("fsdp-worker --coordinator"));
  v1::Worker worker;
  worker.set_name("workers/host-0");
  worker.set_state(v1::WORKER_STATE_BUSY);
  worker.mutable_device()->set_type(v1::DEVICE_TYPE_CPU);
  worker.set_job(kJob);
  worker.set_rank(1);
  worker.mutable_heartbeat_time()->set_seconds(1767323043);
  runner_.service.PutWorker(worker);
  EXPECT_EQ(Run({"workers"}).out,
            "WORKER  STATE  DEVICE  JOB         RANK  HEARTBEAT\n"
            "host-0  BUSY   CPU:0   a-00000001     1         2s\n");
  EXPECT_EQ(Run({"drain", "host-0"}).out,
            "worker host-0: cordoned, runs rank 1 of a-00000001 to its end\n");
  EXPECT_THAT(Run({"workers"}).out, HasSubstr("BUSY,CORDONED"));
  EXPECT_EQ(Run({"uncordon", "host-0"}).out, "worker host-0: BUSY\n");
}

TEST_F(CliTest, TopPrintsOneSnapshotWhenPiped) {
  PutJob(v1::JOB_STATE_RUNNING);
  const CliResult result = Run({"top"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("coordinator 9.9.9"));
  EXPECT_THAT(result.out, HasSubstr("step 40/100  loss 2.3457  12.3K tok/s  ETA 1m15s"));
  EXPECT_THAT(result.out, HasSubstr("host-1"));
}

TEST_F(CliTest, TopRefreshesOnATerminalUntilInterrupted) {
  runner_.terminal = true;
  runner_.interrupt.Cancel();
  EXPECT_EQ(Run({"top"}).exit_code, 0);
}

TEST_F(CliTest, Version) {
  EXPECT_THAT(Run({"version"}).out, HasSubstr("fsdpctl 0."));
  EXPECT_EQ(Run({"version"}).out, Run({"--version"}).out);
  EXPECT_THAT(Run({"version", "--remote"}).out, HasSubstr("coordinator 9.9.9"));
}

TEST_F(CliTest, DescribeShowsRanksRootCauseAndEvents) {
  v1::Job job = CliRunner::ExampleJob(v1::JOB_STATE_RECOVERING);
  job.set_cause(v1::FAILURE_CAUSE_RANK_DIED);
  auto& cause = *job.mutable_root_cause();
  cause.set_cause(v1::FAILURE_CAUSE_RANK_DIED);
  cause.set_rank(1);
  cause.set_worker("workers/host-1");
  cause.set_signal(9);
  cause.set_step(39);
  cause.set_message("the trainer was killed");
  cause.set_collective("all_gather layers.3, sequence 4711");
  cause.add_last_lines("boom \x1b[2J");
  auto& attempt = *job.add_attempts();
  attempt.set_attempt(1);
  attempt.set_epoch(2);
  attempt.set_state(v1::ATTEMPT_STATE_FAILED);
  attempt.set_cause(v1::FAILURE_CAUSE_RANK_DIED);
  attempt.set_last_step(39);
  runner_.service.PutJob(job);
  for (int i = 1; i <= 3; ++i) {
    v1::JobEvent event;
    event.set_type("EVENT_" + std::to_string(i));
    event.set_severity(v1::EVENT_SEVERITY_WARNING);
    event.mutable_time()->set_seconds(1767323000);
    runner_.service.AddEvent(kJob, event);
  }
  const std::string page = Run({"describe", "a-00000001", "--events", "2"}).out;
  EXPECT_THAT(page, HasSubstr("State:        RECOVERING\n"));
  EXPECT_THAT(page, HasSubstr("Root cause\n"));
  EXPECT_THAT(page, HasSubstr("RANK_DIED (rank 1 on worker host-1, signal 9, at step 39): the "
                              "trainer was killed\n"));
  EXPECT_THAT(page, HasSubstr("in collective: all_gather layers.3, sequence 4711"));
  EXPECT_THAT(page, HasSubstr("| boom ?[2J\n"));
  EXPECT_THAT(page, HasSubstr("3.0 MiB of 4.0 MiB"));
  EXPECT_THAT(page, Not(HasSubstr("EVENT_1")));
  EXPECT_THAT(page, HasSubstr("2026-01-02T03:03:20Z  WARNING EVENT_3\n"));
}

TEST_F(CliTest, DescribeTellsAFailureThatIsOverFromTheCauseOfTheState) {
  v1::Job job = CliRunner::ExampleJob(v1::JOB_STATE_CANCELLED);
  job.mutable_root_cause()->set_cause(v1::FAILURE_CAUSE_RANK_DIED);
  runner_.service.PutJob(job);
  const std::string page = Run({"describe", "a-00000001"}).out;
  EXPECT_THAT(page, Not(HasSubstr("Cause:")));
  EXPECT_THAT(page, Not(HasSubstr("Root cause")));
  EXPECT_THAT(page, HasSubstr("Last failure\n  RANK_DIED"));
}

TEST_F(CliTest, ReportWritesTheCurve) {
  v1::Job job = CliRunner::ExampleJob(v1::JOB_STATE_SUCCEEDED);
  auto& result = *job.mutable_result();
  result.set_steps(3);
  result.set_train_loss(2.0794415);
  result.set_validation_loss(2.1);
  result.set_bigram_conditional_entropy(2.4);
  result.set_unigram_entropy(3.1);
  result.set_bytes_per_token(1);
  result.add_memory_peak_bytes_by_rank(3 << 20);
  auto& family = *result.add_families();
  family.set_family("matmul");
  family.set_bound(v1::BOUND_COMPUTE);
  family.set_source(v1::METRIC_SOURCE_ANALYTIC);
  family.set_seconds(2);
  family.set_remedy("use bf16");
  auto& source = *result.add_data_sources();
  source.set_name("web");
  source.set_tokens(12288);
  source.set_passes(0.25);
  job.mutable_checkpoint()->set_path("/tmp/ckpt/step-3");
  runner_.service.PutJob(job);
  for (int i = 1; i <= 3; ++i) {
    v1::StepMetrics metrics;
    metrics.set_step(i);
    metrics.set_loss(5.0 - i);
    if (i == 3) metrics.set_validation_loss(2.1);
    runner_.service.AddMetrics(kJob, metrics);
  }
  const auto svg = std::filesystem::path(::testing::TempDir()) / "cli_report.svg";
  const CliResult report = Run({"describe", "a-00000001", "--report", "--plot", svg.string()});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  // ln 8 nats are 3 bits.
  EXPECT_THAT(report.out, HasSubstr("train loss                      2.0794     3.0000\n"));
  EXPECT_THAT(report.out, HasSubstr("better than byte pairs do, by 0.300 nats"));
  EXPECT_THAT(report.out, HasSubstr("use bf16"));
  EXPECT_THAT(report.out, testing::ContainsRegex("web +12,?288 +100.0% +0.25"));
  EXPECT_THAT(report.out, HasSubstr("/tmp/ckpt/step-3"));
  EXPECT_THAT(report.out, HasSubstr("http://127.0.0.1:9464/metrics"));
  EXPECT_THAT(report.out, HasSubstr("Loss of a-00000001"));
  std::ifstream file(svg);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("<polyline"));
  EXPECT_THAT(text, HasSubstr("</svg>"));
  const CliResult nowhere = Run({"describe", "a-00000001", "--plot", "/nowhere/x.svg"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("there is no folder /nowhere"));
  const auto png = std::filesystem::path(::testing::TempDir()) / "cli_report.png";
  const CliResult bitmap = Run({"describe", "a-00000001", "--plot", png.string()});
  EXPECT_EQ(bitmap.exit_code, 2);
  EXPECT_THAT(bitmap.err, HasSubstr("the curve is written as SVG; name a file that ends in .svg"));
  EXPECT_FALSE(std::filesystem::exists(png));
  EXPECT_EQ(Run({"describe", "a-00000001", "--plot", "/proc/x.svg"}).exit_code, 2);
  std::filesystem::remove(svg);
}

// The scripts are handed to the shells themselves where they are installed;
// tests/e2e/shells_test.py presses the key.
TEST_F(CliTest, CompletionScriptsParse) {
  const auto check = [this](const std::string& shell, const std::string& checker) {
    const CliResult result = Run({"completion", shell});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("__complete"));
    if (std::system(("command -v " + shell + " >/dev/null 2>&1").c_str()) != 0) return;
    FILE* pipe = popen((checker + " 2>&1").c_str(), "w");
    ASSERT_NE(pipe, nullptr);
    std::fwrite(result.out.data(), 1, result.out.size(), pipe);
    EXPECT_EQ(pclose(pipe), 0) << shell;
  };
  check("bash", "bash -n");
  check("zsh", "zsh -n");
  check("fish", "fish -n");
  EXPECT_EQ(Run({"completion", "tcsh"}).exit_code, 2);
}

TEST_F(CliTest, CompletionKnowsVerbsFlagsAndValues) {
  const auto complete = [this](std::vector<std::string> words) {
    words.insert(words.begin(), {"__complete", "--"});
    const CliResult result = Run(words);
    EXPECT_EQ(result.exit_code, 0);
    return result.out;
  };
  EXPECT_THAT(complete({"sub"}), testing::StartsWith(":words\nsubmit\t"));
  EXPECT_THAT(complete({"--ver"}), HasSubstr("\n--version\n"));
  EXPECT_THAT(complete({"logs", "--fo"}), testing::StartsWith(":words\n--follow\t"));
  EXPECT_EQ(complete({"list", "-o", "js"}), ":words\njson\njsonpath=\n");
  EXPECT_EQ(complete({"list", "--output=js"}), ":words\n--output=json\n--output=jsonpath=\n");
  EXPECT_EQ(complete({"ls", "--state", "RUN"}), ":words\nRUNNING\n");
  EXPECT_EQ(complete({"submit", "-f", ""}), ":files\n");
  EXPECT_EQ(complete({"submit", "dep"}), ":files\n");
  EXPECT_EQ(complete({"completion", "z"}), ":words\nzsh\n");
  EXPECT_EQ(complete({"checkpoint", "re"}), ":words\nreshard\n");
  EXPECT_EQ(complete({"context", "set", "lab", "serv"}), ":words\nserver=\n");
  EXPECT_EQ(complete({"nonsense", "x"}), ":words\n");
  EXPECT_EQ(complete({"describe", "a", "b"}), ":words\n");
  EXPECT_EQ(complete({}), ":words\n");
}

TEST_F(CliTest, CompletionAsksForNames) {
  v1::Job other = CliRunner::ExampleJob(v1::JOB_STATE_QUEUED);
  other.set_name("jobs/b-00000002");
  other.mutable_spec()->mutable_spec()->set_queue("night");
  runner_.service.PutJob(CliRunner::ExampleJob(v1::JOB_STATE_RUNNING));
  runner_.service.PutJob(other);
  const auto complete = [this](std::vector<std::string> words) {
    words.insert(words.begin(), {"__complete", "--"});
    return Run(words).out;
  };
  EXPECT_EQ(complete({"get", "a"}), ":words\na-00000001\tRUNNING\n");
  // The one that is there already is not offered again.
  EXPECT_EQ(complete({"get", "a-00000001", ""}), ":words\nb-00000002\tQUEUED\n");
  EXPECT_EQ(complete({"checkpoint", "list", "b"}), ":words\nb-00000002\tQUEUED\n");
  EXPECT_EQ(complete({"list", "--queue", "n"}), ":words\nnight\n");
  // The server that is typed is the one that is asked; one that is away offers nothing.
  const std::string server = runner_.variables["FSDPCTL_SERVER"];
  runner_.variables["FSDPCTL_SERVER"] = "127.0.0.1:1";
  EXPECT_EQ(complete({"get", "--server", server, "a"}), ":words\na-00000001\tRUNNING\n");
  EXPECT_EQ(complete({"get", "a"}), ":words\n");
}

TEST_F(CliTest, JsonPathTakesFields) {
  runner_.service.PutJob(CliRunner::ExampleJob(v1::JOB_STATE_RUNNING));
  EXPECT_EQ(Run({"get", "a-00000001", "-o", "jsonpath={.state} {.progress.step}"}).out,
            "RUNNING 40\n");
  EXPECT_EQ(Run({"list", "-o", "jsonpath={.jobs[*].name}"}).out, "jobs/a-00000001\n");
  EXPECT_EQ(Run({"describe", "a-00000001", "-o", "jsonpath={.ranks[1].worker}"}).out,
            "workers/host-1\n");
  EXPECT_EQ(Run({"get", "a-00000001", "a-00000001", "-o", "jsonpath={.jobs[*].epoch}"}).out,
            "3 3\n");
  // Judged before anything is asked.
  const CliResult typo = Run({"list", "-o", "jsonpath={.jobs[*].stat}"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.err, HasSubstr("jsonpath at 10: there is no field stat; did you mean state?"));
  EXPECT_EQ(Run({"cancel", "a-00000001", "-o", "jsonpath={.stat}"}).exit_code, 2);
  EXPECT_EQ(Run({"list", "-o", "jsonpath"}).exit_code, 2);
  // Fits several jobs, not one.
  const CliResult list = Run({"get", "a-00000001", "-o", "jsonpath={.jobs[*].name}"});
  EXPECT_EQ(list.exit_code, 2);
  EXPECT_THAT(list.err, HasSubstr("there is no field jobs"));
}

TEST_F(CliTest, ContextsChooseTheServer) {
  const TemporaryFolder folder;
  const std::string server = runner_.variables["FSDPCTL_SERVER"];
  runner_.variables = {{"HOME", folder.path()}};
  EXPECT_EQ(Run({"context", "set", "here", "server=" + server}).exit_code, 0);
  EXPECT_EQ(Run({"context", "set", "away", "server=127.0.0.1:1", "--use"}).exit_code, 0);
  EXPECT_THAT(Run({"context", "list"}).out, HasSubstr("*        away  127.0.0.1:1"));
  EXPECT_EQ(Run({"context", "list", "-o", "name"}).out, "away\nhere\n");
  // Flag > environment > context > default.
  EXPECT_EQ(Run({"list", "--call-timeout", "1s"}).exit_code, 4);
  EXPECT_EQ(Run({"list", "--context", "here"}).exit_code, 0);
  runner_.variables["FSDPCTL_CONTEXT"] = "here";
  EXPECT_EQ(Run({"list"}).exit_code, 0);
  EXPECT_EQ(Run({"list", "--context", "away", "--call-timeout", "1s"}).exit_code, 4);
  runner_.variables["FSDPCTL_SERVER"] = "127.0.0.1:1";
  EXPECT_EQ(Run({"list", "--call-timeout", "1s"}).exit_code, 4);
  EXPECT_EQ(Run({"list", "--server", server}).exit_code, 0);
  runner_.variables.erase("FSDPCTL_SERVER");
  EXPECT_THAT(Run({"context", "show"}).out,
              testing::ContainsRegex("server +" + server + " +context here of .*config.yaml"));
  EXPECT_THAT(Run({"context", "use", "away"}).err, HasSubstr("FSDPCTL_CONTEXT=here"));
  runner_.variables.erase("FSDPCTL_CONTEXT");
  EXPECT_EQ(Run({"context", "show", "-o", "name"}).out, "away\n");
}

TEST_F(CliTest, ContextMistakesAreNamed) {
  const TemporaryFolder folder;
  runner_.variables["HOME"] = folder.path();
  EXPECT_EQ(Run({"context", "set", "lab", "server=lab:7070"}).exit_code, 0);
  const auto error = [this](const std::vector<std::string>& words, int exit_code) {
    const CliResult result = Run(words);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    return result.err;
  };
  EXPECT_THAT(error({"list", "--context", "la"}, 2),
              HasSubstr("no context \"la\" (--context); did you mean lab?"));
  EXPECT_THAT(error({"context", "use", "prod"}, 102), HasSubstr("there is lab"));
  EXPECT_THAT(error({"context", "set", "lab", "sever=x:1"}, 2), HasSubstr("did you mean server?"));
  EXPECT_THAT(error({"context", "set", "lab", "server=nonsense"}, 2), HasSubstr("host:port"));
  EXPECT_THAT(error({"context", "set", "lab", "callTimeout=soon"}, 2), HasSubstr("callTimeout"));
  EXPECT_THAT(error({"context", "set", "a/b", "server=x:1"}, 2), HasSubstr("\"a/b\""));
  EXPECT_THAT(error({"context", "forget", "lab"}, 2), HasSubstr("list, use, set, delete, show"));
  EXPECT_THAT(error({"context", "set", "lab", "tlsCa=" + folder.Path("ca.pem")}, 0),
              HasSubstr("there is no "));
  // Works also where the settings do not: it is how they are mended.
  runner_.variables["FSDPCTL_CONTEXT"] = "gone";
  EXPECT_EQ(Run({"list"}).exit_code, 2);
  EXPECT_EQ(Run({"context", "delete", "lab"}).exit_code, 0);
}

}  // namespace
}  // namespace fsdp
