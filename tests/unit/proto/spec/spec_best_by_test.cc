// checkpoint.bestBy: which evaluation set the best checkpoint is by, and what is none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "proto/support/spec.h"
#include "tests/unit/proto/spec/base_spec.h"

namespace fsdp {
namespace {

using ::testing::IsEmpty;

SpecResult LoadWithSets(std::vector<std::string> sets) {
  SpecOptions options;
  options.sets = std::move(sets);
  return LoadJob(spec_testing::BaseSpec(), options);
}

// What keepBest goes by, when nobody says it.
TEST(BestBySetTest, IsTheValidationDataElseTheFirstSet) {
  v1::JobSpec spec;
  EXPECT_EQ(BestBySet(spec), "");
  spec.mutable_data()->add_evaluation_sets()->set_path("/code");
  EXPECT_EQ(BestBySet(spec), "/code");
  spec.mutable_data()->mutable_evaluation_sets(0)->set_name("code");
  spec.mutable_data()->add_evaluation_sets()->set_name("prose");
  EXPECT_EQ(BestBySet(spec), "code");
  spec.mutable_data()->set_validation_path("/v");
  EXPECT_EQ(BestBySet(spec), "");
  spec.mutable_checkpoint()->set_best_by("prose");
  EXPECT_EQ(BestBySet(spec), "prose");
}

TEST(BestBySetTest, SetsAreEnoughToKeepTheBestBy) {
  const SpecResult result =
      LoadWithSets({"data.source=text", "data.path=/x", "data.evaluationSets=[{name: c, path: /y}]",
                    "checkpoint.dir=/c", "checkpoint.keepBest=true", "checkpoint.bestBy=c"});
  EXPECT_THAT(result.issues, IsEmpty()) << FormatIssues(result.issues, "job");
}

TEST(BestBySetTest, AnUnknownOneIsToldTheKnownOnes) {
  const auto issue_of = [](std::vector<std::string> more) {
    std::vector<std::string> sets = {"data.source=text", "data.path=/x", "data.validationPath=/v",
                                     "checkpoint.dir=/c"};
    sets.insert(sets.end(), more.begin(), more.end());
    const std::vector<SpecIssue> issues = LoadWithSets(sets).issues;
    return issues.size() == 1 ? DescribeIssue(issues[0]) : FormatIssues(issues, "not one");
  };
  const std::string sets = "data.evaluationSets=[{name: code, path: /y}, {path: /z}]";
  EXPECT_EQ(issue_of({sets, "checkpoint.keepBest=true", "checkpoint.bestBy=cod"}),
            "spec.checkpoint.bestBy = \"cod\": is none of data.evaluationSets; allowed: code, /z; "
            "did you mean code?");
  EXPECT_EQ(
      issue_of({"checkpoint.keepBest=true", "checkpoint.bestBy=code"}),
      "spec.checkpoint.bestBy = \"code\": is none of data.evaluationSets; allowed: a set that "
      "data.evaluationSets has");
  EXPECT_EQ(issue_of({sets, "checkpoint.bestBy=/z"}),
            "spec.checkpoint.bestBy = \"/z\": says nothing without keepBest: give both");
}

}  // namespace
}  // namespace fsdp
