// queues, maintenance, and arrays in list: output and exit codes.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/client/cli_fixture.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

class CliQueuesTest : public ::testing::Test, public CliRunner {
 protected:
  // Not the test's own.
  using CliRunner::Run;
};

v1::Queue ExampleQueue() {
  v1::Queue queue;
  queue.set_name("queues/batch");
  queue.set_configured(true);
  queue.set_jobs_running(2);
  queue.set_jobs_waiting(1);
  queue.mutable_spec()->set_name("batch");
  queue.mutable_spec()->set_weight(2);
  queue.mutable_spec()->mutable_preemption()->set_reclaim(v1::RECLAIM_POLICY_ANY);
  queue.mutable_spec()->mutable_preemption()->set_within_queue(v1::WITHIN_QUEUE_POLICY_NEVER);
  queue.mutable_spec()->mutable_preemption()->set_grace_seconds(90);
  v1::QueueUsage& usage = *queue.add_usage();
  usage.set_device(v1::DEVICE_TYPE_CUDA);
  usage.set_total(8);
  usage.set_quota(2);
  usage.set_max(8);
  usage.set_used(6);
  usage.set_borrowed(4);
  usage.set_waiting(4);
  usage.set_share(1.5);
  return queue;
}

TEST_F(CliQueuesTest, QueuesShowWhoHasWhat) {
  service.PutQueue(ExampleQueue());
  const CliResult table = Run({"queues"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_EQ(table.out,
            "QUEUE  DEVICE  QUOTA  MAX  USED  BORROWED  WANTED  SHARE  RUN  WAIT\n"
            "batch  CUDA        2    8     6         4       4   1.50    2     1\n");
  EXPECT_EQ(Run({"queues", "-o", "name"}).out, "batch\n");
  const CliResult one = Run({"queues", "batch"});
  EXPECT_THAT(one.out, HasSubstr("Weight:       2\n"));
  EXPECT_THAT(one.out, HasSubstr("reclaims ANY, within the queue NEVER; its jobs: grace 90 s, none "
                                 "without checkpoint.dir"));
  const auto json = nlohmann::json::parse(Run({"queues", "-o", "json"}).out);
  EXPECT_EQ(json["queues"][0]["usage"][0]["borrowed"], 4);
  EXPECT_EQ(Run({"queues", "nope"}).exit_code, 102);
}

TEST_F(CliQueuesTest, WithoutAConfigurationItSaysSo) {
  EXPECT_THAT(Run({"queues"}).err, HasSubstr("no queues are configured"));
}

TEST_F(CliQueuesTest, AFileIsCheckedWithoutAServer) {
  variables["FSDPCTL_SERVER"] = "127.0.0.1:1";
  input = "apiVersion: fsdp.v1\nkind: QueueConfig\nqueues: [{name: a}, {name: b}]\n";
  EXPECT_EQ(Run({"queues", "--check", "-"}).out, "<stdin>: 2 queues\n");
  input = "apiVersion: fsdp.v1\nkind: QueueConfig\nqueues: [{nmae: a}]\n";
  const CliResult bad = Run({"queues", "--check", "-"});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, HasSubstr("<stdin>:3:11: error: queues[0].nmae: unknown key; did you mean"));
}

TEST_F(CliQueuesTest, MaintenanceIsSetShownAndCleared) {
  EXPECT_EQ(Run({"maintenance", "status"}).out, "maintenance: off\n");
  const CliResult on = Run({"maintenance", "on", "--closed", "--reason", "new switches"});
  EXPECT_EQ(on.exit_code, 0);
  EXPECT_THAT(on.out, HasSubstr("by ann: new switches (no jobs are taken, nothing is placed)"));
  EXPECT_THAT(Run({"workers"}).err, HasSubstr("maintenance: closed since"));
  EXPECT_THAT(Run({"top", "--once"}).out, HasSubstr("new switches"));
  EXPECT_EQ(Run({"maintenance", "off"}).out, "maintenance: off\n");
  EXPECT_EQ(Run({"maintenance", "pause"}).exit_code, 2);
  EXPECT_EQ(Run({"maintenance", "off", "--closed"}).exit_code, 2);
}

TEST_F(CliQueuesTest, DescribeTellsOfTheQueueAndOfMaintenance) {
  service.PutQueue(ExampleQueue());
  v1::Job job = ExampleJob(v1::JOB_STATE_QUEUED);
  job.mutable_spec()->mutable_spec()->set_queue("batch");
  service.PutJob(job);
  Run({"maintenance", "on", "--reason", "moving"});
  const std::string page = Run({"describe", "a-00000001"}).out;
  EXPECT_THAT(page, HasSubstr("Queue:        batch: CUDA 6 of quota 2 (max 8), 4 borrowed, 1.50 of "
                              "its fair share\n"));
  EXPECT_THAT(page, HasSubstr("Maintenance:  hold since"));
}

TEST_F(CliQueuesTest, AnArrayIsOneLineWithItsCounts) {
  v1::Job job = ExampleJob(v1::JOB_STATE_RUNNING);
  job.clear_ranks();
  job.mutable_array()->set_count(6);
  job.mutable_array()->set_active(2);
  job.mutable_array()->set_succeeded(2);
  job.mutable_array()->set_failed(1);
  service.PutJob(job);
  EXPECT_THAT(Run({"list"}).out, HasSubstr("3/6 done, 2 run, 1 failed"));
  const std::string page = Run({"describe", "a-00000001"}).out;
  EXPECT_THAT(page, HasSubstr("Array:        3/6 done, 2 run, 1 failed\n"));
  EXPECT_THAT(page, HasSubstr("Tasks:        fsdpctl list --array a-00000001\n"));
}

}  // namespace
}  // namespace fsdp
