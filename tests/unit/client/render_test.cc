#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/render/curve.h"
#include "client/render/encode.h"
#include "client/render/table.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(TextTest, Enums) {
  EXPECT_EQ(EnumText(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(EnumText(v1::PRECISION_D_TYPE_BF16), "BF16");
  EXPECT_EQ(EnumText(v1::JOB_STATE_UNSPECIFIED), "-");
  EXPECT_EQ(EnumText(static_cast<v1::JobState>(99)), "99");
}

TEST(TextTest, Steps) {
  EXPECT_EQ(StepSecondsText(0), "0.000ms");
  EXPECT_EQ(StepSecondsText(0.0009124), "0.912ms");
  EXPECT_EQ(StepSecondsText(0.0649), "64.9ms");
  EXPECT_EQ(StepSecondsText(0.3771), "377ms");
  EXPECT_EQ(StepSecondsText(0.99951), "1.00s");
  EXPECT_EQ(StepSecondsText(1.838), "1.84s");
  EXPECT_EQ(StepSecondsText(99.94), "99.9s");
  EXPECT_EQ(StepSecondsText(190), "3m10s");
  EXPECT_EQ(StepSecondsText(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(TextTest, Numbers) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1.0 KiB");
  EXPECT_EQ(BytesText(std::int64_t{141} << 30), "141 GiB");
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1574912), "1,574,912");
  EXPECT_EQ(CountText(-1000), "-1,000");
  EXPECT_EQ(CountText(-100), "-100");
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(12), "12");
  EXPECT_EQ(ShortNumber(999.6), "1.00K");
  EXPECT_EQ(ShortNumber(12345), "12.3K");
  EXPECT_EQ(ShortNumber(124e6), "124M");
  EXPECT_EQ(LossText(2.34567), "2.3457");
  EXPECT_EQ(LossText(std::nan("")), "-");
}

TEST(TextTest, Durations) {
  EXPECT_EQ(SecondsText(0.0504), "50ms");
  EXPECT_EQ(SecondsText(59.9), "59s");
  EXPECT_EQ(SecondsText(190), "3m10s");
  EXPECT_EQ(SecondsText(7500), "2h05m");
  EXPECT_EQ(SecondsText(360000), "4d04h");
  EXPECT_EQ(SecondsText(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(AgeText({}, absl::UnixEpoch()), "-");
}

TEST(TextTest, WidthsAndControlCharacters) {
  EXPECT_EQ(DisplayWidth("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(DisplayWidth("größe"), 5);
  EXPECT_EQ(Printable("a\x1b]0;title\x07\tb\r"), "a?]0;title?\tb?");
  EXPECT_EQ(IdOf("jobs/a-1"), "a-1");
  EXPECT_EQ(IdOf("a-1"), "a-1");
}

TEST(TableTest, AlignsByWhatIsSeen) {
  Table table({{"NAME"}, {"N", true}, {"LAST"}});
  table.AddRow({"a", "1", ""});
  table.AddRow({"\x1b[31mlong\x1b[0m", "1000", "x"});
  EXPECT_EQ(table.Render("> "),
            "> NAME     N  LAST\n"
            "> a        1\n"
            "> \x1b[31mlong\x1b[0m  1000  x\n");
}

TEST(EncodeTest, YamlReadsBackAsTheSame) {
  v1::TrainingJob job;
  job.set_api_version("fsdp.v1");
  auto& labels = *job.mutable_metadata()->mutable_labels();
  labels["yes"] = "no";
  labels["number"] = "1e3";
  labels["colon: #"] = "two\nlines \"quoted\" ünï";
  labels["empty"] = "";
  auto& rule = *job.mutable_spec()->mutable_failure_policy()->add_rules();
  rule.add_exit_codes(1);
  rule.add_exit_codes(2);
  rule.set_log_regex("- not: a list");
  job.mutable_spec()->mutable_failure_policy()->add_rules();
  const YAML::Node root = YAML::Load(ToYaml(job));
  EXPECT_EQ(root["apiVersion"].as<std::string>(), "fsdp.v1");
  for (const auto& [key, value] : labels) {
    EXPECT_EQ(root["metadata"]["labels"][key].as<std::string>(), value) << key;
  }
  const YAML::Node rules = root["spec"]["failurePolicy"]["rules"];
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0]["exitCodes"][1].as<int>(), 2);
  EXPECT_EQ(rules[0]["logRegex"].as<std::string>(), "- not: a list");
  EXPECT_TRUE(rules[1].IsMap());
}

TEST(EncodeTest, Lists) {
  v1::Metadata data;
  data.set_name("a");
  EXPECT_EQ(nlohmann::json::parse(ListToJson("jobs", {&data}))["jobs"][0]["name"], "a");
  EXPECT_EQ(ListToYaml("jobs", {&data}), "jobs:\n- name: a\n");
  EXPECT_EQ(ListToYaml("jobs", {}), "jobs: []\n");
  EXPECT_EQ(ToJsonLine(data), "{\"name\":\"a\"}\n");
}

// A zero is a value, an absent `optional` is none, and a spec holds what was given.
TEST(EncodeTest, ZerosAreThereAndNamesAreShort) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_progress();
  job.mutable_create_time()->set_seconds(1767323045);
  auto& spec = *job.mutable_spec()->mutable_spec();
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_LLAMA);
  spec.mutable_train()->set_seed(std::uint64_t{1} << 60);
  auto& rank = *job.add_ranks();
  rank.set_state(v1::RANK_STATE_RUNNING);
  const auto json = nlohmann::json::parse(ToJson(job));
  EXPECT_EQ(json["state"], "RUNNING");
  EXPECT_EQ(json["createTime"], "2026-01-02T03:04:05Z");
  EXPECT_EQ(json["attempt"], 0);
  EXPECT_EQ(json["progress"]["step"], 0);
  EXPECT_EQ(json["progress"]["loss"], 0.0);
  EXPECT_FALSE(json["progress"].contains("validationLoss"));
  EXPECT_EQ(json["ranks"][0]["rank"], 0);
  EXPECT_EQ(json["ranks"][0]["state"], "RUNNING");
  EXPECT_EQ(json["spec"]["spec"]["model"]["family"], "llama");
  EXPECT_EQ(json["spec"]["spec"]["train"]["seed"], "1152921504606846976");
  EXPECT_FALSE(json["spec"]["spec"]["train"].contains("globalBatch"));
  EXPECT_FALSE(json.contains("rootCause"));
  EXPECT_FALSE(json.contains("cause"));
}

// JSON has no words for these; a diverged loss must not break every reader after it.
TEST(EncodeTest, WhatIsNoNumberIsAName) {
  v1::StepMetrics step;
  step.set_loss(std::nan(""));
  step.set_grad_norm(std::numeric_limits<double>::infinity());
  const auto json = nlohmann::json::parse(ToJsonLine(step));
  EXPECT_EQ(json["loss"], "NaN");
  EXPECT_EQ(json["gradNorm"], "Infinity");
}

TEST(EncodeTest, TextThatIsNotUtf8IsPrintedAnyhow) {
  v1::LogEntry entry;
  entry.set_text("a\xff");
  EXPECT_EQ(nlohmann::json::parse(ToJsonLine(entry))["text"], "a\xEF\xBF\xBD");
}

std::vector<CurveSeries> FallingCurve() {
  CurveSeries series{"train <loss>", {}};
  for (int i = 1; i <= 50; ++i) series.points.push_back({double(i), 5.0 / i});
  return {series};
}

TEST(CurveTest, TerminalCurveFallsFromLeftToRight) {
  CurveOptions options;
  options.levels = {{"bigram", 2.5}};
  const std::string text = TerminalCurve(FallingCurve(), options, 40, 8, Style());
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 11U);
  for (const auto& line : lines) EXPECT_LE(DisplayWidth(line), 40) << line;
  // The top row is used at the left only, the bottom row reaches the right edge.
  EXPECT_LT(DisplayWidth(lines[0]), 15);
  EXPECT_GT(DisplayWidth(lines[7]), 35);
  EXPECT_THAT(lines[9], HasSubstr("step 1"));
  EXPECT_THAT(lines[10], HasSubstr("bigram 2.500"));
}

TEST(CurveTest, OddInput) {
  EXPECT_THAT(TerminalCurve({}, {}, 40, 8, Style()), IsEmpty());
  EXPECT_THAT(SvgCurve({{"a", {{1, 1}}}}, {}), IsEmpty());
  const double nan = std::nan("");
  EXPECT_THAT(TerminalCurve({{"a", {{1, nan}, {2, nan}}}}, {}, 40, 8, Style()), IsEmpty());
  // A flat line and a huge range still draw.
  EXPECT_THAT(TerminalCurve({{"a", {{1, 2}, {2, 2}}}}, {}, 40, 8, Style()), Not(IsEmpty()));
  EXPECT_THAT(SvgCurve({{"a", {{1, -1e300}, {2, 1e300}}}}, {}), Not(HasSubstr("nan")));
}

TEST(CurveTest, SvgEscapesAndCloses) {
  CurveOptions options;
  options.title = "a & b";
  const std::string svg = SvgCurve(FallingCurve(), options);
  EXPECT_THAT(svg, HasSubstr("a &amp; b"));
  EXPECT_THAT(svg, HasSubstr("train &lt;loss&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<loss>")));
}

}  // namespace
}  // namespace fsdp
