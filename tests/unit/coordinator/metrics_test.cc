// What a scrape of the coordinator shows, through its real endpoint.

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "gmock/gmock.h"
#include "proto/support/metric_table.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

class MetricsTest : public ServiceTest {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    ServiceTest::SetUp();
    server_.reset();
    options_.metrics_listen = "127.0.0.1:0";
    StartServer();
  }

  std::string Scrape() {
    const std::string command =
        absl::StrCat("curl -s http://127.0.0.1:", server_->metrics_port(), "/metrics");
    std::FILE* const pipe = popen(command.c_str(), "r");
    std::string text;
    for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) {
      text.push_back(static_cast<char>(c));
    }
    EXPECT_EQ(pclose(pipe), 0);
    return text;
  }

  // By name with labels, without comments.
  static std::map<std::string, std::string> Samples(const std::string& text) {
    std::map<std::string, std::string> samples;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      const size_t space = line.rfind(' ');
      samples[line.substr(0, space)] = line.substr(space + 1);
    }
    return samples;
  }
};

TEST_F(MetricsTest, CountersStandAtZeroBeforeAnythingHappens) {
  const std::string text = Scrape();
  const auto samples = Samples(text);
  for (const MetricDescriptor& metric : MetricTable()) {
    const bool by_cause = metric.type == MetricType::kHistogram && !metric.labels.empty();
    // Their labels are known once queues are configured.
    const bool by_queue =
        std::find(metric.labels.begin(), metric.labels.end(), "queue") != metric.labels.end();
    if (metric.owner != MetricOwner::kCoordinator || metric.type == MetricType::kGauge ||
        by_cause || by_queue) {
      continue;
    }
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n# TYPE ", std::string(metric.name), " ")));
  }
  for (const char* series :
       {"fsdp_job_restarts_total{cause=\"worker_lost\"}",
        "fsdp_jobs_finished_total{state=\"cancelled\"}", "fsdp_reports_total{kind=\"manifest\"}",
        "fsdp_stale_messages_total{kind=\"hello\"}", "fsdp_worker_losses_total{reason=\"silent\"}",
        "fsdp_rpc_total{method=\"JobService.CreateJob\",code=\"OK\"}",
        "fsdp_rpc_total{method=\"WorkerService.Connect\",code=\"OK\"}",
        "fsdp_checkpoints_published_total", "fsdp_store_errors_total", "fsdp_submit_seconds_count",
        "fsdp_jobs{state=\"running\"}", "fsdp_workers{state=\"lost\"}"}) {
    ASSERT_THAT(samples, Contains(Key(std::string(series))));
    EXPECT_EQ(std::stod(samples.at(series)), 0) << series;
  }
}

TEST_F(MetricsTest, EveryFamilyOfAScrapeIsDocumented) {
  gate_.AllowUpTo(1);
  AddWorkers(2);
  WaitForStep(Submit(SmallJob(2, 3)), 1);
  // The library's own families are there from the second scrape on.
  Scrape();
  std::istringstream lines(Scrape());
  const std::string page = MetricsMarkdown();
  int num_families = 0;
  for (std::string word; lines >> word;) {
    if (word != "TYPE") continue;
    std::string name;
    std::string type;
    lines >> name >> type;
    ++num_families;
    EXPECT_THAT(page, HasSubstr(absl::StrCat("| `", name, "` | ", type, " |")));
  }
  EXPECT_GT(num_families, 20);
}

// What does happen is added to the declared series, not beside it.
TEST_F(MetricsTest, WhatHappensIsCountedInTheDeclaredSeries) {
  AddWorkers(1);
  WaitForState(Submit(SmallJob(1, 2)), v1::JOB_STATE_SUCCEEDED);
  const auto samples = Samples(Scrape());
  EXPECT_EQ(std::stod(samples.at("fsdp_jobs_finished_total{state=\"succeeded\"}")), 1);
  EXPECT_EQ(std::stod(samples.at("fsdp_rpc_total{method=\"JobService.CreateJob\",code=\"OK\"}")),
            1);
  EXPECT_GE(std::stod(samples.at("fsdp_reports_total{kind=\"step\"}")), 2);
  EXPECT_EQ(std::stod(samples.at("fsdp_jobs{state=\"succeeded\"}")), 1);
  EXPECT_EQ(std::stod(samples.at("fsdp_workers{state=\"ready\"}")), 1);
}

}  // namespace
}  // namespace fsdp::coordinator
