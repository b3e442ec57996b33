#include "client/render/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "client/render/progress.h"
#include "client/render/report.h"
#include "proto/support/job_text.h"
#include "proto/support/text.h"
#include "tests/unit/client/cli_fixture.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanTextTest, Golden) {
  v1::Plan plan;
  plan.set_world_size(4);
  plan.set_parameters(3280000);
  plan.set_total_bytes(10 << 20);
  plan.set_recompute(v1::RECOMPUTE_POLICY_NONE);
  plan.set_schedule_hash(0xabc);
  plan.set_tokens_per_step(8192);
  plan.set_micro_batches_per_step(2);
  plan.set_model_flops_per_step(1.6e11);
  plan.set_parameter_dtype(v1::PRECISION_D_TYPE_BF16);
  plan.set_reduce_dtype(v1::PRECISION_D_TYPE_FP32);
  auto& row = *plan.add_memory();
  row.set_kind("master weights");
  row.set_bytes(3280000);
  row.set_detail("820,000 x fp32");
  plan.add_schedule("gather embed");
  plan.add_warnings("mask full leaks the answer");
  EXPECT_EQ(PlanText(plan, {}, Style()),
            "World size:   4\n"
            "Parameters:   3,280,000  (3.28M)\n"
            "Precision:    BF16, gradients in FP32\n"
            "Recompute:    NONE\n"
            "Step:         8,192 tokens in 2 micro-batches, 160 GFLOP\n"
            "Schedule:     0000000000000abc\n"
            "\n"
            "  MEMORY PER RANK       BYTES            DETAIL\n"
            "  master weights    3,280,000   3.1 MiB  820,000 x fp32\n"
            "  total            10,485,760  10.0 MiB  largest of any rank\n"
            "\n"
            "Schedule of one micro-batch\n"
            "  gather embed\n"
            "warning: mask full leaks the answer\n");
}

TEST(PlanTextTest, TellsHowManyBlocksAreRecomputed) {
  v1::Plan plan;
  plan.set_recompute(v1::RECOMPUTE_POLICY_SELECTIVE);
  plan.set_recomputed_blocks(7);
  plan.set_blocks(12);
  v1::PolicyEstimate& policy = *plan.add_policies();
  policy.set_recompute(v1::RECOMPUTE_POLICY_SELECTIVE);
  policy.set_recomputed_blocks(7);
  policy.set_total_bytes(1 << 20);
  policy.set_fits(true);
  const std::string text = PlanText(plan, {.policies = true}, Style());
  EXPECT_THAT(text, HasSubstr("Recompute:    SELECTIVE, 7 of 12 blocks\n"));
  EXPECT_THAT(text, HasSubstr("  RECOMPUTE   BLOCKS  PER RANK  STEP  FITS\n"
                              "  SELECTIVE  7 of 12   1.0 MiB     -  yes\n"));
}

TEST(PlanTextTest, TellsHowManyRanksWouldFit) {
  v1::Plan plan;
  v1::MemoryAdvice& advice = *plan.mutable_memory_advice();
  advice.set_device_memory_bytes(std::int64_t{80} << 30);
  advice.set_largest_world_size(1024);
  EXPECT_THAT(PlanText(plan, {}, Style()), Not(HasSubstr("Would fit")));
  v1::PolicyAdvice& none = *advice.add_policies();
  none.set_recompute(v1::RECOMPUTE_POLICY_NONE);
  EXPECT_THAT(PlanText(plan, {}, Style()),
              HasSubstr("Would fit:    80.0 GiB: on no number of ranks up to 1024\n"));
  none.mutable_as_is()->set_world_size(4);
  advice.set_assumed_device("NVIDIA H200");
  EXPECT_THAT(PlanText(plan, {}, Style()),
              HasSubstr("Would fit:    NVIDIA H200 (80.0 GiB): 4 ranks (recompute none)\n"));
}

TEST(JobDescriptionTest, AnAttemptWithoutAStepHasNoRange) {
  v1::Job job = CliRunner::ExampleJob(v1::JOB_STATE_RUNNING);
  job.add_attempts()->set_attempt(1);
  auto& resumed = *job.add_attempts();
  resumed.set_attempt(2);
  resumed.set_first_step(41);
  auto& trained = *job.add_attempts();
  trained.set_attempt(3);
  trained.set_first_step(41);
  trained.set_last_step(45);
  const std::string page = JobDescription(job, {}, absl::UnixEpoch(), Style());
  EXPECT_THAT(page, Not(HasSubstr("0-0")));
  EXPECT_THAT(page, Not(HasSubstr("41-0")));
  EXPECT_THAT(page, HasSubstr("41-45"));
}

TEST(LossTextTest, ANanHasNoSign) {
  EXPECT_EQ(LossText(-std::nan("")), "-");
  EXPECT_FALSE(std::signbit(UnsignedNan(-std::nan(""))));
  EXPECT_EQ(UnsignedNan(-1.5), -1.5);
}

TEST(ProgressTest, LeavesOutWhatIsUnknown) {
  v1::Progress progress;
  EXPECT_EQ(ProgressText(progress), "step 0");
  progress.set_step(7);
  progress.set_loss(1.5);
  EXPECT_EQ(ProgressText(progress), "step 7  loss 1.5000");
  progress.set_total_steps(10);
  progress.set_validation_loss(1.75);
  progress.set_mfu(0.412);
  progress.set_eta_seconds(61);
  EXPECT_EQ(ProgressText(progress), "step 7/10  loss 1.5000  val 1.7500  MFU 41.2%  ETA 1m01s");
}

// It started from a checkpoint beyond its limit.
TEST(ProgressTest, AStepBeyondTheLimitIsNoFraction) {
  v1::Progress progress;
  progress.set_step(200);
  progress.set_total_steps(100);
  progress.set_loss(std::nan(""));
  EXPECT_EQ(ProgressText(progress), "step 200 (limit 100)  loss -");
}

class SteppingClock final : public Clock {
 public:
  [[nodiscard]] MonotonicTime Now() const override { return now; }
  [[nodiscard]] absl::Time WallNow() const override { return absl::UnixEpoch(); }
  MonotonicTime now;
};

TEST(ProgressTest, PlainLinesAreRare) {
  std::ostringstream out;
  SteppingClock clock;
  ProgressLine line(&out, &clock, {});
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  for (int step = 1; step <= 100; ++step) {
    job.mutable_progress()->set_step(step);
    line.Show(job);
    clock.now = clock.now + absl::Milliseconds(100);
  }
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  line.Show(job);
  line.End();
  // 10 s at a line every 5 s.
  EXPECT_EQ(out.str(),
            "RUNNING\nstep 1  loss 0.0000\nstep 51  loss 0.0000\nSUCCEEDED\n"
            "step 100  loss 0.0000\n");
}

TEST(ProgressTest, OnATerminalOneLineIsRewritten) {
  std::ostringstream out;
  SteppingClock clock;
  ProgressLine line(&out, &clock, {.terminal = true, .columns = 60});
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_progress()->set_total_steps(2);
  for (int step = 1; step <= 2; ++step) {
    job.mutable_progress()->set_step(step);
    line.Show(job);
  }
  line.End();
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2);
  EXPECT_THAT(text, HasSubstr("step 2/2"));
}

TEST(ProgressTest, AReasonIsShownOnce) {
  std::ostringstream out;
  SteppingClock clock;
  ProgressLine line(&out, &clock, {});
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_queue_position(2);
  job.set_reason("asked 4, free 1");
  line.Show(job);
  line.Show(job);
  EXPECT_EQ(out.str(), "QUEUED (2 in line)  asked 4, free 1\n");
}

TEST(ReportTest, RepeatedStepsReplaceTheirFirstRun) {
  std::vector<v1::StepMetrics> metrics;
  for (const int step : {1, 2, 3, 2, 3, 4}) {
    v1::StepMetrics one;
    one.set_step(step);
    one.set_loss(static_cast<double>(metrics.size()));
    metrics.push_back(one);
  }
  const auto series = LossSeries(metrics);
  ASSERT_EQ(series.size(), 1U);
  std::vector<double> losses;
  for (const auto& point : series[0].points) losses.push_back(point.y);
  EXPECT_THAT(losses, ::testing::ElementsAre(0, 3, 4, 5));
}

TEST(ReportTest, AFailedJobShowsWhy) {
  ReportInput input;
  input.job = CliRunner::ExampleJob(v1::JOB_STATE_FAILED);
  input.job.set_cause(v1::FAILURE_CAUSE_HANG);
  input.job.mutable_root_cause()->set_cause(v1::FAILURE_CAUSE_HANG);
  input.job.mutable_root_cause()->set_worker("workers/host-0");
  const std::string page = ReportText(input, Style());
  EXPECT_THAT(page, HasSubstr("a-00000001  FAILED"));
  EXPECT_THAT(page, HasSubstr("HANG (rank 0 on worker host-0)"));
  EXPECT_THAT(page, Not(HasSubstr("Curve")));
}

TEST(ReportTest, ACancelledJobShowsNoFailureThatItGotOver) {
  ReportInput input;
  input.job = CliRunner::ExampleJob(v1::JOB_STATE_CANCELLED);
  input.job.mutable_root_cause()->set_cause(v1::FAILURE_CAUSE_HANG);
  EXPECT_THAT(ReportText(input, Style()), Not(HasSubstr("HANG")));
}

TEST(RootCauseTest, NamesTheRankOnce) {
  v1::RootCause cause;
  cause.set_cause(v1::FAILURE_CAUSE_JOIN_TIMEOUT);
  cause.set_message("2 of 4 ranks joined");
  EXPECT_EQ(RootCauseText(cause), "JOIN_TIMEOUT: 2 of 4 ranks joined");
  cause.set_cause(v1::FAILURE_CAUSE_DATA);
  cause.set_rank(1);
  cause.set_worker("workers/w");
  cause.set_exit_code(10);
  cause.set_message("no such file");
  EXPECT_EQ(RootCauseText(cause), "DATA (rank 1 on worker w, exit code 10): no such file");
  cause.set_message("rank 1 on w: no such file");
  EXPECT_EQ(RootCauseText(cause), "DATA (exit code 10): rank 1 on w: no such file");
}

TEST(ReportTest, EvaluationSetsHaveTheirRows) {
  ReportInput input;
  input.job = CliRunner::ExampleJob(v1::JOB_STATE_SUCCEEDED);
  v1::EvaluationLoss& set = *input.job.mutable_result()->add_evaluations();
  set.set_name("code");
  set.set_loss(2.25);
  EXPECT_THAT(ReportText(input, Style()), HasSubstr("loss of code      2.2500 "));
}

TEST(ReportTest, UnknownBytesPerTokenHaveNoBits) {
  ReportInput input;
  input.job = CliRunner::ExampleJob(v1::JOB_STATE_SUCCEEDED);
  input.job.mutable_result()->set_train_loss(2.5);
  EXPECT_THAT(ReportText(input, Style()), HasSubstr("train loss      2.5000          -\n"));
}

}  // namespace
}  // namespace fsdp
