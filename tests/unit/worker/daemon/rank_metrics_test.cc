#include "worker/daemon/rank_metrics.h"

#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "tests/fakes/fake_clock.h"
#include "worker/daemon/worker_families.h"

namespace fsdp::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::EpochKey Key(int rank, std::int64_t epoch = 1, const std::string& job = "jobs/a-1") {
  v1::EpochKey key;
  key.set_job(job);
  key.set_epoch(epoch);
  key.set_rank(rank);
  return key;
}

v1::StepReport Step(int step, double matmul_seconds, v1::Bound bound = v1::BOUND_COMPUTE) {
  v1::StepReport report;
  v1::StepMetrics& metrics = *report.mutable_metrics();
  metrics.set_step(step);
  metrics.set_loss(8.0 / step);
  metrics.set_tokens(100);
  metrics.set_flops(1e9);
  metrics.set_step_seconds(2);
  metrics.mutable_phases()->set_compute_seconds(1.5);
  metrics.mutable_phases()->set_exposed_gather_seconds(0.5);
  report.set_memory_peak_bytes(1000 * step);
  v1::MemoryKind& memory = *report.add_memory();
  memory.set_kind("weights");
  memory.set_now_bytes(64);
  memory.set_peak_bytes(65);
  v1::FamilyVerdict& family = *report.add_families();
  family.set_family("matmul");
  family.set_bound(bound);
  family.set_source(v1::METRIC_SOURCE_ANALYTIC);
  family.set_seconds(matmul_seconds);
  family.set_launches(10 * step);
  family.set_compute_ratio(0.75);
  return report;
}

class RankMetricsTest : public ::testing::Test {
 protected:
  std::string Scrape() {
    DeviceSnapshot device;
    device.set_worker("w");
    for (RankSeries& series : metrics_.Snapshot()) *device.add_ranks() = std::move(series);
    return prometheus::TextSerializer().Serialize(WorkerFamilies({device}, 0));
  }

  FakeClock clock_;
  RankMetrics metrics_{{.linger = absl::Seconds(60)}, clock_};
};

TEST_F(RankMetricsTest, TheLastStepIsShownAndTotalsAddUp) {
  metrics_.Begin(Key(2));
  metrics_.SetState(Key(2), v1::RANK_STATE_RUNNING);
  metrics_.AddStep(Key(2), Step(1, 3));
  metrics_.AddStep(Key(2), Step(2, 7));
  const std::string text = Scrape();
  const std::string labels = "{job_id=\"a-1\",rank=\"2\"";
  EXPECT_THAT(text, HasSubstr("fsdp_loss" + labels + "} 4\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_memory_peak_bytes" + labels + "} 2000\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_memory_bytes" + labels + ",kind=\"weights\"} 64\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_tokens_total" + labels + "} 200\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_steps_total" + labels + "} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("fsdp_step_phase_seconds_total" + labels + ",phase=\"compute\"} 3\n"));
  EXPECT_THAT(text,
              HasSubstr("fsdp_kernel_seconds_total" + labels +
                        ",kernel_family=\"matmul\",bound=\"compute\",source=\"analytic\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_rank_state" + labels + ",state=\"running\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("fsdp_mfu_ratio")));
  EXPECT_THAT(text, Not(HasSubstr("fsdp_validation_loss")));
}

TEST_F(RankMetricsTest, EvaluationsStayUntilTheNext) {
  metrics_.Begin(Key(0));
  v1::StepReport step = Step(1, 3);
  v1::EvaluationLoss& set = *step.mutable_metrics()->add_evaluations();
  set.set_name("code");
  set.set_loss(2.5);
  metrics_.AddStep(Key(0), step);
  metrics_.AddStep(Key(0), Step(2, 3));
  EXPECT_THAT(Scrape(),
              HasSubstr("fsdp_evaluation_loss{job_id=\"a-1\",rank=\"0\",kind=\"code\"} 2.5\n"));
}

TEST_F(RankMetricsTest, SkipsAndRollbacksAreCounted) {
  metrics_.Begin(Key(0));
  v1::StepReport step = Step(1, 3);
  metrics_.AddStep(Key(0), step);
  step.mutable_metrics()->set_skipped(true);
  metrics_.AddStep(Key(0), step);
  step.mutable_metrics()->set_rolled_back(true);
  metrics_.AddStep(Key(0), step);
  EXPECT_THAT(Scrape(), HasSubstr("fsdp_steps_skipped_total{job_id=\"a-1\",rank=\"0\"} 2\n"));
  EXPECT_THAT(Scrape(), HasSubstr("fsdp_rollbacks_total{job_id=\"a-1\",rank=\"0\"} 1\n"));
}

TEST_F(RankMetricsTest, AChangedVerdictGetsOnlyTheNewSeconds) {
  metrics_.Begin(Key(0));
  metrics_.AddStep(Key(0), Step(1, 3, v1::BOUND_COMPUTE));
  metrics_.AddStep(Key(0), Step(2, 5, v1::BOUND_MEMORY));
  const std::string text = Scrape();
  EXPECT_THAT(text, HasSubstr("bound=\"compute\",source=\"analytic\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("bound=\"memory\",source=\"analytic\"} 2\n"));
}

TEST_F(RankMetricsTest, TotalsGoOnOverEpochsThoughTheTrainerCountsAnew) {
  metrics_.Begin(Key(0, 1));
  metrics_.AddStep(Key(0, 1), Step(1, 3));
  metrics_.End(Key(0, 1));
  metrics_.Begin(Key(0, 2));
  metrics_.AddStep(Key(0, 2), Step(1, 4));
  EXPECT_THAT(Scrape(), HasSubstr("source=\"analytic\"} 7\n"));
  EXPECT_THAT(Scrape(), HasSubstr("fsdp_steps_total{job_id=\"a-1\",rank=\"0\"} 2\n"));
}

TEST_F(RankMetricsTest, TheFinalReportOfAStepIsNotAnotherStep) {
  metrics_.Begin(Key(0));
  metrics_.AddStep(Key(0), Step(4, 3));
  v1::StepReport final_report = Step(4, 3);
  final_report.set_final(true);
  final_report.mutable_metrics()->set_validation_loss(1.5);
  metrics_.AddStep(Key(0), final_report);
  EXPECT_THAT(Scrape(), HasSubstr("fsdp_steps_total{job_id=\"a-1\",rank=\"0\"} 1\n"));
  EXPECT_THAT(Scrape(), HasSubstr("fsdp_validation_loss{job_id=\"a-1\",rank=\"0\"} 1.5\n"));
}

TEST_F(RankMetricsTest, SeriesLingerAfterTheEndAndThenGo) {
  metrics_.Begin(Key(0));
  metrics_.AddStep(Key(0), Step(1, 3));
  metrics_.End(Key(0));
  clock_.Advance(absl::Seconds(59));
  EXPECT_THAT(Scrape(), HasSubstr("fsdp_loss"));
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(metrics_.Snapshot(), IsEmpty());
  EXPECT_THAT(Scrape(), Not(HasSubstr("fsdp_loss")));
}

TEST_F(RankMetricsTest, AnotherRankOfTheSameJobReplacesTheOld) {
  metrics_.Begin(Key(0));
  metrics_.End(Key(0));
  metrics_.Begin(Key(1, 2));
  ASSERT_EQ(metrics_.Snapshot().size(), 1u);
  EXPECT_EQ(metrics_.Snapshot()[0].key().rank(), 1);
}

TEST_F(RankMetricsTest, ReportsOfNobodyAreIgnored) {
  metrics_.AddStep(Key(0), Step(1, 1));
  metrics_.End(Key(0));
  EXPECT_THAT(metrics_.Snapshot(), IsEmpty());
}

TEST(WorkerFamiliesTest, ARankOnTwoDevicesIsShownOnceByItsNewestEpoch) {
  DeviceSnapshot one;
  one.set_worker("w0");
  *one.add_ranks()->mutable_key() = Key(0, 1);
  DeviceSnapshot two;
  two.set_worker("w1");
  *two.add_ranks()->mutable_key() = Key(0, 2);
  two.mutable_ranks(0)->set_state(v1::RANK_STATE_RUNNING);
  const std::string text = prometheus::TextSerializer().Serialize(WorkerFamilies({two, one}, 0));
  EXPECT_THAT(text, HasSubstr("fsdp_rank_state{job_id=\"a-1\",rank=\"0\",state=\"running\"} 1\n"));
  EXPECT_EQ(text.find("fsdp_rank_state{"), text.rfind("fsdp_rank_state{"));
}

TEST(MetricsServerTest, BadAddressesAreErrors) {
  const auto none = [] { return std::vector<DeviceSnapshot>(); };
  EXPECT_TRUE(absl::IsInvalidArgument(MetricsServer::Start("nothing", none).status()));
  const auto first = MetricsServer::Start("127.0.0.1:0", none).value();
  EXPECT_GT(first->port(), 0);
  const absl::Status taken = MetricsServer::Start(first->address(), none).status();
  EXPECT_TRUE(absl::IsUnavailable(taken));
  EXPECT_THAT(std::string(taken.message()), HasSubstr(first->address()));
}

TEST_F(RankMetricsTest, CollectivesAndTheProfilersCountsAddUpOverTrainers) {
  v1::StepReport report = Step(1, 3);
  v1::CollectiveTotals& totals = *report.add_collectives();
  totals.set_operation("all_gather");
  totals.set_count(5);
  totals.set_bytes(500);
  totals.set_seconds(0.25);
  v1::ProfilerHealth& profiler = *report.mutable_profiler();
  profiler.set_state("sampling");
  profiler.set_windows(2);
  (*profiler.mutable_dropped())["edge"] = 3;
  (*profiler.mutable_overhead_seconds())["decode"] = 0.5;
  report.mutable_families(0)->set_savable_seconds(1);
  report.mutable_metrics()->set_hfu(0.5);
  metrics_.Begin(Key(0, 1));
  metrics_.AddStep(Key(0, 1), report);
  metrics_.End(Key(0, 1));
  // The next trainer counts from zero.
  metrics_.Begin(Key(0, 2));
  metrics_.AddStep(Key(0, 2), report);
  report.mutable_metrics()->set_step(2);
  report.mutable_collectives(0)->set_count(6);
  report.mutable_families(0)->set_savable_seconds(1.75);
  metrics_.AddStep(Key(0, 2), report);
  const std::string text = Scrape();
  const std::string labels = "{job_id=\"a-1\",rank=\"0\"";
  EXPECT_THAT(text,
              HasSubstr("fsdp_collectives_total" + labels + ",collective=\"all_gather\"} 11\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_collective_bytes_total" + labels +
                              ",collective=\"all_gather\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_collective_seconds_total" + labels +
                              ",collective=\"all_gather\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_profiler_state" + labels + ",state=\"sampling\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_profiler_windows_total" + labels + "} 4\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_profiler_dropped_total" + labels + ",reason=\"edge\"} 6\n"));
  EXPECT_THAT(text,
              HasSubstr("fsdp_profiler_overhead_seconds_total" + labels + ",kind=\"decode\"} 1\n"));
  // Of the last step, not a total.
  EXPECT_THAT(text, HasSubstr("fsdp_kernel_savable_seconds" + labels +
                              ",kernel_family=\"matmul\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("fsdp_hfu_ratio" + labels + "} 0.5\n"));
}

// A job of eight GPUs with everything that a rank can tell: its series stay within their budget,
// and all of them go when it is over.
TEST_F(RankMetricsTest, EightRanksStayBelowTwoThousandSeriesAndLeaveNone) {
  const std::vector<std::string> families = {
      "embedding", "norm",          "matmul.qkv",    "matmul.attn_out", "matmul.mlp", "matmul.head",
      "rope",      "attention.fwd", "attention.bwd", "activation",      "loss",       "optimizer",
      "reduce",    "copy",          "gather",        "scatter"};
  v1::DeviceCeilings ceilings;
  ceilings.set_fp32_flops_per_second(1);
  ceilings.set_bf16_flops_per_second(1);
  ceilings.set_fp8_flops_per_second(1);
  ceilings.set_copy_bytes_per_second(1);
  ceilings.set_collective_bytes_per_second(1);
  for (int rank = 0; rank < 8; ++rank) {
    const v1::EpochKey key = Key(rank, 1, "jobs/a-" + std::to_string(rank));
    metrics_.Begin(key);
    metrics_.SetState(key, v1::RANK_STATE_RUNNING);
    metrics_.SetCeilings(key, ceilings);
    for (int step = 1; step <= 3; ++step) {
      v1::StepReport report = Step(step, step);
      report.clear_families();
      report.clear_memory();
      v1::StepMetrics& metrics = *report.mutable_metrics();
      metrics.set_mfu(0.5);
      metrics.set_hfu(0.5);
      metrics.set_validation_loss(1);
      for (const char* set : {"code", "web"}) metrics.add_evaluations()->set_name(set);
      for (const std::string& name : families) {
        v1::FamilyVerdict& family = *report.add_families();
        family.set_family(name);
        // The first is analytic; then counters say it, and change their mind once.
        family.set_source(step == 1 ? v1::METRIC_SOURCE_ANALYTIC : v1::METRIC_SOURCE_PM_SAMPLING);
        family.set_bound(step == 3 ? v1::BOUND_BALANCED : v1::BOUND_MEMORY);
        family.set_seconds(step);
      }
      for (const char* kind :
           {"weights", "gradients", "optimizer", "activations", "buffers", "snapshot", "context"}) {
        report.add_memory()->set_kind(kind);
      }
      for (const char* operation :
           {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier"}) {
        report.add_collectives()->set_operation(operation);
      }
      v1::ProfilerHealth& profiler = *report.mutable_profiler();
      profiler.set_state("sampling");
      for (const char* reason : {"overflow", "edge", "span_limit", "late"}) {
        (*profiler.mutable_dropped())[reason] = 1;
      }
      for (const char* kind : {"enable", "decode", "evaluate", "write"}) {
        (*profiler.mutable_overhead_seconds())[kind] = 1;
      }
      metrics_.AddStep(key, report);
    }
  }
  const auto series = [&] {
    int count = 0;
    std::istringstream lines(Scrape());
    for (std::string line; std::getline(lines, line);) {
      count += line.find("job_id=") != std::string::npos && line[0] != '#' ? 1 : 0;
    }
    return count;
  };
  // The coordinator has two more of each rank and a handful of the job.
  EXPECT_GT(series(), 1000);
  EXPECT_LE(series() + 8 * 2 + 6, 2000);
  for (int rank = 0; rank < 8; ++rank) {
    metrics_.End(Key(rank, 1, "jobs/a-" + std::to_string(rank)));
  }
  clock_.Advance(absl::Seconds(60));
  EXPECT_EQ(series(), 0);
}

}  // namespace
}  // namespace fsdp::daemon
