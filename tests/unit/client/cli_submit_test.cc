#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/cli.h"
#include "tests/unit/client/cli_fixture.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kJob[] = "jobs/tiny-00000001";

class SubmitTest : public ::testing::Test {
 protected:
  SubmitTest() { runner_.input = kGoodSpec; }
  CliResult Run(const std::vector<std::string>& arguments) { return runner_.Run(arguments); }
  // Runs `submit --wait` while the job goes to `state`.
  CliResult SubmitAndEnd(v1::JobState state) {
    std::thread trainer([this, state] {
      runner_.service.WaitForStreams(1);
      runner_.service.UpdateJob(kJob, [](v1::Job& job) {
        job.set_state(v1::JOB_STATE_RUNNING);
        job.mutable_progress()->set_step(1);
        job.mutable_progress()->set_total_steps(3);
        job.mutable_progress()->set_loss(5.5);
      });
      runner_.service.UpdateJob(kJob, [state](v1::Job& job) {
        job.set_state(state);
        if (state != v1::JOB_STATE_FAILED) return;
        job.set_cause(v1::FAILURE_CAUSE_RANK_FAILED);
        job.mutable_root_cause()->set_cause(v1::FAILURE_CAUSE_RANK_FAILED);
        job.mutable_root_cause()->set_exit_code(3);
      });
    });
    const CliResult result = Run({"submit", "-f", "-", "--wait"});
    trainer.join();
    return result;
  }
  CliRunner runner_;
};

TEST_F(SubmitTest, PrintsTheJobAndWhatToDoNext) {
  const CliResult result = Run({"submit", "-f", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "job tiny-00000001 submitted: QUEUED, 2 ranks, 1.23M parameters, 3.0 MiB per rank\n");
  EXPECT_THAT(result.err, HasSubstr("fsdpctl wait tiny-00000001"));
  EXPECT_THAT(result.err, HasSubstr("fsdpctl logs -f tiny-00000001"));
  EXPECT_THAT(result.err, HasSubstr("fsdpctl cancel tiny-00000001"));
  EXPECT_EQ(runner_.service.last_create().request_id().size(), 36U);
}

TEST_F(SubmitTest, NameIsAllThatScriptsSee) {
  EXPECT_EQ(Run({"submit", "-", "-o", "name"}).out, "tiny-00000001\n");
}

TEST_F(SubmitTest, SetAndNameOverrideTheSpec) {
  const CliResult result = Run({"submit", "-", "--name", "other", "--set", "train.globalBatch=6",
                                "--set=spec.limits.maxSteps=9"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const v1::TrainingJob job = runner_.service.last_create().job();
  EXPECT_EQ(job.metadata().name(), "other");
  EXPECT_EQ(job.spec().train().global_batch(), 6);
  EXPECT_EQ(job.spec().limits().max_steps(), 9);
}

TEST_F(SubmitTest, TheSameRequestIdFindsTheSameJob) {
  EXPECT_THAT(Run({"submit", "-", "--request-id", "r-1"}).out, HasSubstr("submitted"));
  EXPECT_THAT(Run({"submit", "-", "--request-id", "r-1"}).out, HasSubstr("existed already"));
  EXPECT_EQ(runner_.service.num_created(), 1);
}

TEST_F(SubmitTest, ALostAnswerDoesNotMakeTwoJobs) {
  runner_.service.LoseAnswers(1);
  EXPECT_EQ(Run({"submit", "-"}).exit_code, 0);
  EXPECT_EQ(runner_.service.num_created(), 1);
}

TEST_F(SubmitTest, DryRunStoresNothing) {
  const CliResult result = Run({"submit", "-", "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("would accept"));
  EXPECT_EQ(runner_.service.num_created(), 0);
}

TEST_F(SubmitTest, WaitExitsByTheJob) {
  const CliResult result = SubmitAndEnd(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("step 1/3  loss 5.5000\n"));
  EXPECT_THAT(result.err, HasSubstr("SUCCEEDED"));
  EXPECT_THAT(result.err, HasSubstr("describe --report tiny-00000001"));
}

TEST_F(SubmitTest, WaitPrintsTheEndedJobToPrograms) {
  std::thread trainer([this] {
    runner_.service.WaitForStreams(1);
    runner_.service.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  });
  const CliResult result = Run({"submit", "-", "--wait", "-o", "json"});
  trainer.join();
  EXPECT_EQ(nlohmann::json::parse(result.out)["state"], "SUCCEEDED");
}

TEST_F(SubmitTest, WaitOfAFailedJobIs100AndSaysWhy) {
  const CliResult result = SubmitAndEnd(v1::JOB_STATE_FAILED);
  EXPECT_EQ(result.exit_code, 100);
  EXPECT_THAT(result.err, HasSubstr("RANK_FAILED (rank 0, exit code 3)"));
}

TEST_F(SubmitTest, WaitOfACancelledJobIs103) {
  EXPECT_EQ(SubmitAndEnd(v1::JOB_STATE_CANCELLED).exit_code, 103);
}

TEST_F(SubmitTest, CtrlCStopsWaitingNotTheJob) {
  std::thread user([this] {
    runner_.service.WaitForStreams(1);
    runner_.interrupt.Cancel();
  });
  const CliResult result = Run({"submit", "-", "--wait"});
  user.join();
  EXPECT_EQ(result.exit_code, 101);
  EXPECT_THAT(result.err, HasSubstr("the job goes on"));
  EXPECT_EQ(runner_.service.job(kJob).state(), v1::JOB_STATE_QUEUED);
}

TEST_F(SubmitTest, ABadSpecIsThreeAndNeverSent) {
  runner_.input = "apiVersion: fsdp.v1\nkind: TrainingJob\nspec:\n  modle: {}\n";
  for (const char* verb : {"submit", "validate", "plan"}) {
    const CliResult result = Run({verb, "-"});
    EXPECT_EQ(result.exit_code, 3) << verb;
    EXPECT_THAT(result.err, HasSubstr("<stdin>:4:3: error: spec.modle")) << verb;
    EXPECT_THAT(result.err, HasSubstr("did you mean model?")) << verb;
  }
  EXPECT_THAT(runner_.service.calls(), IsEmpty());
}

TEST_F(SubmitTest, TheCoordinatorsVerdictIsShownByField) {
  runner_.service.FailUnary(ServiceError(grpc::StatusCode::INVALID_ARGUMENT, "the spec is wrong",
                                         "INVALID_SPEC", {{"spec.queue", "no such queue"}}));
  const CliResult result = Run({"submit", "-"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("\n  spec.queue: no such queue\n"));
}

TEST_F(SubmitTest, UnschedulableIsSix) {
  runner_.service.FailUnary(
      ServiceError(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full", "QUEUE_FULL"));
  EXPECT_EQ(Run({"submit", "-"}).exit_code, 6);
}

// The spec's own stand above with their places, from the check here.
TEST_F(SubmitTest, WarningsOfTheCoordinatorAreToldOnce) {
  runner_.service.Warn("the cluster as it is cannot hold this job");
  for (const char* dry : {"--dry-run", "--set=limits.maxSteps=9"}) {
    const CliResult result = Run({"submit", "-", dry});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("warning: the cluster as it is cannot hold this job\n"))
        << dry;
  }
  const std::string of_spec =
      "spec.data.targets = next_token: with mask full every position sees the token it must "
      "predict: the loss will mean nothing; allowed: targets independent, or mask causal";
  runner_.service.Warn(of_spec);
  const CliResult masked = Run({"submit", "-", "--set=model.mask=full"});
  EXPECT_THAT(masked.err, HasSubstr("<stdin>:7:3: warning: " + of_spec));
  EXPECT_EQ(masked.err.find(of_spec), masked.err.rfind(of_spec));
}

TEST_F(SubmitTest, UnreachableTellsHowToAskAgain) {
  runner_.service.Stop();
  runner_.variables["FSDPCTL_CALL_TIMEOUT"] = "50ms";
  const CliResult result = Run({"submit", "-", "--request-id", "r-7"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("--request-id r-7"));
}

TEST_F(SubmitTest, WhatIsNoRequestIdIsRefused) {
  for (const std::string& id :
       {std::string(), std::string("bad id!"), std::string("\xff\xfe"), std::string(37, 'a')}) {
    const CliResult result = Run({"submit", "-", "--request-id", id});
    EXPECT_EQ(result.exit_code, 2) << id;
    EXPECT_THAT(result.err, HasSubstr("give 1 to 36 letters, digits and dashes"));
  }
  EXPECT_EQ(runner_.service.num_created(), 0);
}

TEST_F(SubmitTest, FilesThatCannotBeRead) {
  EXPECT_EQ(Run({"submit", "/nowhere/job.yaml"}).exit_code, 2);
  EXPECT_THAT(Run({"submit", "/nowhere/job.yaml"}).err, HasSubstr("/nowhere/job.yaml"));
  EXPECT_EQ(Run({"submit", "/tmp"}).exit_code, 2);
  EXPECT_EQ(Run({"submit"}).exit_code, 2);
  EXPECT_EQ(Run({"submit", "a.yaml", "-f", "b.yaml"}).exit_code, 2);
  runner_.input.assign(2 << 20, 'x');
  EXPECT_EQ(Run({"submit", "-"}).exit_code, 2);
}

TEST_F(SubmitTest, ValidateWorksOffline) {
  runner_.service.Stop();
  const CliResult result = Run({"validate", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("valid: tiny"));
  const std::string yaml = Run({"validate", "-", "-o", "yaml"}).out;
  runner_.input = yaml;
  EXPECT_EQ(Run({"validate", "-", "-o", "yaml"}).out, yaml);
}

TEST_F(SubmitTest, ValidateTellsProgramsWhatIsWrong) {
  runner_.input = "apiVersion: fsdp.v1\nkind: Job\nspec:\n  modle: {}\n";
  const CliResult result = Run({"validate", "-", "-o", "json", "--set", "trian.x=1"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, IsEmpty());
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report["valid"], false);
  EXPECT_EQ(report["file"], "<stdin>");
  const auto find = [&](const std::string& field) {
    for (const auto& violation : report["violations"]) {
      if (violation["field"] == field) return violation;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(find("kind")["value"], "\"Job\"");
  EXPECT_EQ(find("kind")["line"], 2);
  EXPECT_EQ(find("kind")["column"], 1);
  EXPECT_EQ(find("kind")["suggestion"], "TrainingJob");
  EXPECT_EQ(find("spec.modle")["message"], "unknown key");
  EXPECT_EQ(find("spec.modle")["severity"], "error");
  EXPECT_EQ(find("spec.trian")["set"], "trian.x=1");
  EXPECT_EQ(find("metadata")["message"], "is required");
  EXPECT_THAT(Run({"validate", "-", "-o", "yaml"}).out, HasSubstr("valid: false\n"));
  EXPECT_EQ(Run({"validate", "-", "-o", "yaml"}).exit_code, 3);
}

TEST_F(SubmitTest, PlanWorksOffline) {
  runner_.service.Stop();
  const CliResult result = Run({"plan", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("World size:   2\n"));
  EXPECT_THAT(result.out, HasSubstr("master weights"));
  EXPECT_THAT(Run({"plan", "-", "--world-size", "3"}).out, HasSubstr("World size:   3\n"));
  EXPECT_THAT(Run({"plan", "-", "-o", "wide"}).out, HasSubstr("layers.0"));
  EXPECT_THAT(Run({"plan", "-", "--policies"}).out, HasSubstr("SELECTIVE"));
  EXPECT_THAT(Run({"plan", "-", "-o", "json"}).out, HasSubstr("\"worldSize\": 2"));
  EXPECT_EQ(Run({"plan", "-", "--device-memory", "1KiB"}).exit_code, 6);
  EXPECT_THAT(Run({"plan", "-", "--device-memory", "1KiB"}).err,
              HasSubstr("remedies: no number of ranks up to 1024 is enough"));
  // A host's memory is nobody's guess.
  EXPECT_THAT(result.out, Not(HasSubstr("Would fit")));
  EXPECT_THAT(Run({"plan", "-", "--device-memory", "1GiB"}).out,
              HasSubstr("Would fit:    1.0 GiB: 1 rank (recompute none)\n"));
  EXPECT_THAT(Run({"plan", "-", "--device-memory", "1GiB", "-o", "json"}).out,
              HasSubstr("\"deviceMemoryBytes\": 1073741824,"));
  EXPECT_EQ(Run({"plan", "-", "--device-memory", "lots"}).exit_code, 2);
  // 80 what?
  EXPECT_EQ(Run({"plan", "-", "--device-memory", "80"}).exit_code, 2);
  EXPECT_EQ(Run({"plan", "-", "--world-size", "0"}).exit_code, 2);
  EXPECT_THAT(Run({"plan", "--list-presets"}).out, HasSubstr("llama-tiny"));
}

TEST_F(SubmitTest, PlanOfAModelSpeaksOfWhatWasTyped) {
  const CliResult unknown = Run({"plan", "--model", "gpt22"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--model=gpt22: is neither a preset nor a readable "
                                     "config.json or its folder; presets: "));
  EXPECT_THAT(unknown.err, HasSubstr("llama8b"));
  EXPECT_THAT(unknown.err, HasSubstr("; did you mean gpt2?\n"));
  // 64 positions.
  EXPECT_THAT(Run({"plan", "--model", "gpt2-tiny"}).out, HasSubstr("Step:         64 tokens"));
  EXPECT_THAT(Run({"plan", "--model", "llama-tiny"}).out, HasSubstr("Step:         1,024 tokens"));
  EXPECT_THAT(Run({"plan", "--model", "llama8b", "--set", "data.sequenceLength=8192", "--set",
                   "train.globalBatch=8"})
                  .out,
              HasSubstr("Would fit:    NVIDIA H200 (139 GiB): 3 ranks (recompute none), 2 ranks "
                        "(selective), 1 rank (full)\n"));
  const CliResult huge = Run({"plan", "--model", "gpt2", "--world-size", "100000000"});
  EXPECT_EQ(huge.exit_code, 2);
  EXPECT_THAT(huge.err, HasSubstr("--world-size=100000000: must be a whole number of at most"));
  EXPECT_THAT(huge.err, Not(HasSubstr("globalBatch")));
  // There is no text that a line and a column would be of.
  EXPECT_THAT(Run({"plan", "--model", "minillm-tiny"}).err,
              HasSubstr("--model minillm-tiny: warning: spec.data.targets"));
  const CliResult folder = Run({"plan", "--model", ::testing::TempDir()});
  EXPECT_EQ(folder.exit_code, 3);
  EXPECT_THAT(folder.err, HasSubstr(": error: stat("));
}

TEST_F(SubmitTest, OneWarningIsOne) {
  runner_.input = Run({"validate", "-", "-o", "yaml", "--set", "model.mask=full"}).out;
  EXPECT_THAT(Run({"validate", "-"}).out, HasSubstr("(1 warning)\n"));
}

}  // namespace
}  // namespace fsdp
