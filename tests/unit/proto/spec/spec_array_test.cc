// Arrays: the job of each task, and what is told of specs that make none.
#include "proto/support/spec_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/support/spec.h"
#include "tests/unit/proto/spec/base_spec.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string WithArray(const std::string& array) {
  return absl::StrCat(spec_testing::BaseSpec(), "  array: ", array, "\n");
}

TEST(SpecArrayTest, TasksDifferByWhatIsSet) {
  const SpecResult result = LoadJob(
      WithArray("{count: 3, maxParallel: 2, set: [\"train.seed={index}\", \"optimizer.lr={lr}\", "
                "\"failurePolicy.rules=[{signals: [9], action: fail}]\"], "
                "parameters: [{name: lr, values: [1e-3, 3e-4, \"1e-4\"]}]}"));
  ASSERT_TRUE(result.ok()) << FormatIssues(result.issues, "job.yaml");
  const ArrayTasks tasks(result.job);
  for (int index = 0; index < 3; ++index) {
    const SpecResult task = tasks.Job(index);
    ASSERT_THAT(task.issues, IsEmpty()) << FormatIssues(task.issues, "");
    const v1::JobSpec& spec = task.job.spec();
    EXPECT_FALSE(spec.has_array());
    EXPECT_EQ(spec.train().seed(), static_cast<std::uint64_t>(index));
    EXPECT_DOUBLE_EQ(spec.optimizer().lr(), index == 0 ? 1e-3 : index == 1 ? 3e-4 : 1e-4);
    EXPECT_EQ(spec.failure_policy().rules(0).signals(0), 9);
    EXPECT_EQ(spec.env().at("FSDP_ARRAY_INDEX"), absl::StrCat(index));
    EXPECT_EQ(spec.env().at("FSDP_ARRAY_COUNT"), "3");
    // And all else is the array's.
    EXPECT_EQ(spec.model().dim(), 64);
    EXPECT_EQ(task.job.metadata().name(), "job");
  }
}

TEST(SpecArrayTest, WithoutSetsTasksAreTheSameButForTheirIndex) {
  const SpecResult result = LoadJob(WithArray("{count: 2}"));
  ASSERT_TRUE(result.ok()) << FormatIssues(result.issues, "job.yaml");
  v1::TrainingJob first = ArrayTask(result.job, 0).job;
  v1::TrainingJob second = ArrayTask(result.job, 1).job;
  EXPECT_NE(first.SerializeAsString(), second.SerializeAsString());
  first.mutable_spec()->clear_env();
  second.mutable_spec()->clear_env();
  EXPECT_EQ(JobToYaml(first), JobToYaml(second));
}

// Text beyond the limits of a spec, as only a message brings it.
TEST(SpecArrayTest, AnArrayThatCannotBeReadBackHasIssuesInEveryTask) {
  SpecResult result = LoadJob(WithArray("{count: 2, set: [\"train.seed={index}\"]}"));
  ASSERT_TRUE(result.ok()) << FormatIssues(result.issues, "job.yaml");
  result.job.mutable_spec()->mutable_data()->set_path(std::string(SpecOptions().max_bytes, 'x'));
  const ArrayTasks tasks(result.job);
  EXPECT_FALSE(tasks.Job(0).ok());
  EXPECT_FALSE(tasks.Job(1).ok());
}

struct BadArray {
  const char* name;
  const char* array;
  const char* field;
  const char* words;
};

TEST(SpecArrayTest, MistakesAreTold) {
  const std::vector<BadArray> arrays = {
      {"no_count", "{maxParallel: 2}", "spec.array.count", "is required; allowed: 1..1000"},
      {"too_many", "{count: 1001}", "spec.array.count", "is too large"},
      {"negative", "{count: 2, maxParallel: -1}", "spec.array.maxParallel", "is too small"},
      {"unknown_key", "{count: 2, maxParalel: 1}", "spec.array.maxParalel",
       "did you mean maxParallel?"},
      {"unknown_parameter", "{count: 2, set: [\"train.seed={indx}\"]}", "spec.array.set[0]",
       "no parameter is called {indx}; allowed: {index}; did you mean index?"},
      {"shared_field", "{count: 2, set: [\"queue=q{index}\"]}", "spec.array.set[0]",
       "spec.queue is the same for all tasks of an array"},
      {"too_few_values",
       "{count: 3, set: [\"optimizer.lr={lr}\"], parameters: [{name: lr, values: [1, 2]}]}",
       "spec.array.parameters[0].values", "has 2 values for 3 tasks"},
      {"name_twice", "{count: 1, parameters: [{name: x, values: [1]}, {name: x, values: [1]}]}",
       "spec.array.parameters[1].name", "is the name of an earlier parameter"},
      {"index_is_taken", "{count: 1, parameters: [{name: index, values: [1]}]}",
       "spec.array.parameters[0].name", "is the task's index; take another name"},
      {"unknown_field", "{count: 2, set: [\"train.sed={index}\"]}", "spec.array.set",
       "makes a wrong job of task 0: spec.train.sed"},
      {"wrong_in_one_task",
       "{count: 2, set: [\"model.numHeads={h}\"], parameters: [{name: h, values: [4, 7]}]}",
       "spec.array.set", "makes a wrong job of task 1: spec.model.numHeads = 7: must divide dim"},
  };
  for (const BadArray& bad : arrays) {
    SCOPED_TRACE(bad.name);
    const SpecResult result = LoadJob(WithArray(bad.array));
    ASSERT_EQ(result.issues.size(), 1u) << FormatIssues(result.issues, "job.yaml");
    EXPECT_EQ(result.issues[0].field, bad.field);
    EXPECT_THAT(DescribeIssue(result.issues[0]), HasSubstr(bad.words));
    EXPECT_GT(result.issues[0].line, 0);
  }
}

}  // namespace
}  // namespace fsdp
