// The queues' file: what it may say, and what is told of what it may not.

#include "proto/support/queue_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(apiVersion: fsdp.v1
kind: QueueConfig
queues:
  - name: prod
    weight: 3
    devices:
      - {device: cuda, quota: 8, max: 16}
      - {device: cpu, quota: 4}
    preemption:
      reclaim: lower_priority
      withinQueue: lower_priority
      graceSeconds: 120
      minRunSeconds: 600
      withoutCheckpoint: true
  - name: batch
)";

TEST(QueueConfigTest, EverythingThatCanBeSaidIsRead) {
  const QueueConfigResult result = LoadQueueConfig(kGood);
  ASSERT_TRUE(result.ok()) << FormatIssues(result.issues, "q.yaml");
  ASSERT_EQ(result.config.queues_size(), 2);
  const v1::QueueSpec& prod = result.config.queues(0);
  EXPECT_EQ(prod.weight(), 3);
  EXPECT_EQ(prod.devices(0).device(), v1::DEVICE_TYPE_CUDA);
  EXPECT_EQ(prod.devices(0).quota(), 8);
  EXPECT_EQ(prod.devices(0).max(), 16);
  EXPECT_FALSE(prod.devices(1).has_max());
  EXPECT_EQ(prod.preemption().reclaim(), v1::RECLAIM_POLICY_LOWER_PRIORITY);
  EXPECT_EQ(prod.preemption().within_queue(), v1::WITHIN_QUEUE_POLICY_LOWER_PRIORITY);
  EXPECT_EQ(prod.preemption().grace_seconds(), 120);
  EXPECT_TRUE(prod.preemption().without_checkpoint());
  // Defaults.
  const v1::QueueSpec& batch = result.config.queues(1);
  EXPECT_EQ(batch.weight(), 1);
  EXPECT_EQ(batch.preemption().reclaim(), v1::RECLAIM_POLICY_ANY);
  EXPECT_EQ(batch.preemption().within_queue(), v1::WITHIN_QUEUE_POLICY_NEVER);
  EXPECT_FALSE(batch.preemption().has_grace_seconds());
}

struct BadConfig {
  const char* name;
  std::string tail;  // behind "queues:"
  const char* place;
  const char* field;
  const char* words;
};

const std::vector<BadConfig>& BadConfigs() {
  static const std::vector<BadConfig> configs = {
      {"unknown_key", "\n  - name: a\n    wieght: 2", "5:5", "queues[0].wieght",
       "unknown key; did you mean weight?"},
      {"given_twice", "\n  - name: a\n  - name: a", "5:5", "queues[1].name",
       "is the name of an earlier queue"},
      {"bad_name", "\n  - name: My-Queue", "4:5", "queues[0].name", "1-63 of a-z"},
      {"no_name", "\n  - weight: 2", "4:5", "queues[0].name", "is required"},
      {"no_queues", " []", "3:1", "queues", "is required"},
      {"zero_weight", "\n  - {name: a, weight: 0}", "4:15", "queues[0].weight", "is too small"},
      {"no_weight", "\n  - {name: a, weight: heavy}", "4:15", "queues[0].weight",
       "must be a number"},
      {"negative_quota", "\n  - name: a\n    devices: [{device: cpu, quota: -1}]", "5:29",
       "queues[0].devices[0].quota", "is too small"},
      {"unknown_device", "\n  - name: a\n    devices: [{device: gpu, quota: 1}]", "5:16",
       "queues[0].devices[0].device", "is not a known name; allowed: cpu, cuda"},
      {"no_device", "\n  - name: a\n    devices: [{quota: 1}]", "5:15",
       "queues[0].devices[0].device", "is required"},
      {"device_twice", "\n  - name: a\n    devices: [{device: cpu}, {device: cpu}]", "5:31",
       "queues[0].devices[1].device", "has an entry already"},
      {"max_below_quota", "\n  - name: a\n    devices: [{device: cpu, quota: 4, max: 2}]", "5:39",
       "queues[0].devices[0].max", "is below the quota of 4; allowed: at least 4, or no max"},
      {"unknown_policy", "\n  - name: a\n    preemption: {reclaim: all}", "5:18",
       "queues[0].preemption.reclaim", "allowed: any, lower_priority, never"},
      {"long_grace", "\n  - name: a\n    preemption: {graceSeconds: 90000}", "5:18",
       "queues[0].preemption.graceSeconds", "is too large; allowed: 0..86400"},
      {"a_map", "\n  a: {}", "3:1", "queues", "must be a list"},
  };
  return configs;
}

TEST(QueueConfigTest, EveryMistakeIsToldOnceWithItsPlace) {
  for (const BadConfig& bad : BadConfigs()) {
    SCOPED_TRACE(bad.name);
    const QueueConfigResult result = LoadQueueConfig(
        absl::StrCat("apiVersion: fsdp.v1\nkind: QueueConfig\nqueues:", bad.tail, "\n"));
    ASSERT_EQ(result.issues.size(), 1u) << FormatIssues(result.issues, "q.yaml");
    const SpecIssue& issue = result.issues[0];
    EXPECT_EQ(absl::StrCat(issue.line, ":", issue.column), bad.place);
    EXPECT_EQ(issue.field, bad.field);
    EXPECT_THAT(DescribeIssue(issue), HasSubstr(bad.words));
  }
}

TEST(QueueConfigTest, OtherDocumentsAreRefused) {
  EXPECT_THAT(FormatIssues(LoadQueueConfig("").issues, "q.yaml"),
              HasSubstr("q.yaml:1:1: error: the document is empty"));
  EXPECT_THAT(FormatIssues(LoadQueueConfig("queues: [").issues, "q.yaml"), HasSubstr("syntax"));
  EXPECT_THAT(
      FormatIssues(LoadQueueConfig("apiVersion: fsdp.v1\nkind: TrainingJob\n").issues, "q.yaml"),
      HasSubstr("kind"));
}

}  // namespace
}  // namespace fsdp
