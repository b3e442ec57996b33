#include "worker/tokenize/job_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JobModeTest, NamesMayHoldAnythingButNul) {
  std::istringstream in(std::string("a b\nc\0-x\0", 9));
  EXPECT_THAT(ReadNames(in).value(), ElementsAre("a b\nc", "-x"));
  std::istringstream none("");
  EXPECT_THAT(ReadNames(none).value(), IsEmpty());
  std::istringstream cut(std::string("a\0b", 3));
  const auto names = ReadNames(cut);
  EXPECT_TRUE(absl::IsInvalidArgument(names.status()));
  EXPECT_THAT(std::string(names.status().message()), HasSubstr("cut at \"b\""));
}

TEST(JobModeTest, ReportsAreLinesOfJson) {
  std::ostringstream out;
  JobReporter reporter(&out);
  reporter.Progress({.done_bytes = 5, .total_bytes = 9, .tokens = 2, .shards = 0});
  // Right after the first: too soon.
  reporter.Progress({.done_bytes = 6, .total_bytes = 9, .tokens = 3, .shards = 0});
  reporter.Failed(absl::ResourceExhaustedError("write(/x\xff): \"full\"\n"));
  std::istringstream lines(out.str());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(nlohmann::json::parse(line),
            nlohmann::json({{"doneBytes", 5}, {"totalBytes", 9}, {"tokens", 2}}));
  ASSERT_TRUE(std::getline(lines, line));
  const auto error = nlohmann::json::parse(line)["error"];
  EXPECT_EQ(error["code"], static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(": \"full\"\n"));
  EXPECT_FALSE(std::getline(lines, line));
}

}  // namespace
}  // namespace fsdp
