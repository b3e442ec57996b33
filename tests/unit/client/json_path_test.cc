#include "client/render/json_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/v1/job_record.pb.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Json& Jobs() {
  static const auto& jobs = *new Json(Json::parse(R"({"jobs": [
    {"name": "jobs/a", "state": "RUNNING", "epoch": 3, "progress": {"step": 7, "loss": 2.5},
     "spec": {"metadata": {"labels": {"team.x": "red"}}},
     "ranks": [{"rank": 0, "worker": "w0", "pid": 10}, {"rank": 1, "worker": "w1", "pid": 11}]},
    {"name": "jobs/b", "state": "QUEUED", "epoch": 0, "progress": {"step": 0}, "ranks": []},
    {"name": "jobs/c", "state": "FAILED", "epoch": "9007199254740993", "ranks":
     [{"rank": 0, "worker": "w2", "pid": 12}]}]})"));
  return jobs;
}

// As -o prints it; an error's text otherwise.
std::string Of(const std::string& text, const Json& root = Jobs()) {
  const auto path = JsonPath::Parse(text);
  return path.ok() ? path->Render(root) : std::string(path.status().message());
}

std::string Checked(const std::string& text, const std::string& list_key = "jobs") {
  const auto path = JsonPath::Parse(text);
  if (!path.ok()) return std::string(path.status().message());
  return std::string(path->Check(*v1::Job::descriptor(), list_key).message());
}

TEST(JsonPathTest, FieldsAndItems) {
  EXPECT_EQ(Of("{.jobs[0].state}"), "RUNNING\n");
  EXPECT_EQ(Of("{$.jobs[0].progress.loss}"), "2.5\n");
  EXPECT_EQ(Of("{.jobs[-1].name}"), "jobs/c\n");
  EXPECT_EQ(Of("{.jobs[*].name}"), "jobs/a jobs/b jobs/c\n");
  EXPECT_EQ(Of("{.jobs[1:].name}"), "jobs/b jobs/c\n");
  EXPECT_EQ(Of("{.jobs[:-1].name}"), "jobs/a jobs/b\n");
  EXPECT_EQ(Of("{.jobs[0:2].name}"), "jobs/a jobs/b\n");
  EXPECT_EQ(Of("{.jobs[0].spec.metadata.labels['team.x']}"), "red\n");
  EXPECT_EQ(Of("{.jobs[0].progress.*}"), "7 2.5\n");
  EXPECT_EQ(Of("{.jobs[0].progress}"), "{\"step\":7,\"loss\":2.5}\n");
  EXPECT_EQ(Of("{.jobs[0].name, .jobs[1].name}"), "jobs/a jobs/b\n");
}

TEST(JsonPathTest, WhatIsAbsentIsNothing) {
  EXPECT_EQ(Of("loss={.jobs[1].progress.loss}."), "loss=.\n");
  EXPECT_EQ(Of("{.jobs[7].name}"), "\n");
  EXPECT_EQ(Of("{.jobs[-7].name}"), "\n");
  EXPECT_EQ(Of("{.jobs[1].ranks[*].worker}"), "\n");
}

TEST(JsonPathTest, TextAndRanges) {
  EXPECT_EQ(Of("{range .jobs[*]}{.name}{\"\\t\"}{.state}{'\\n'}{end}"),
            "jobs/a\tRUNNING\njobs/b\tQUEUED\njobs/c\tFAILED\n");
  EXPECT_EQ(Of("{range .jobs[*]}{range .ranks[*]}{@.worker};{end}|{end}"), "w0;w1;||w2;|\n");
  EXPECT_EQ(Of("first: {.jobs[0].name}"), "first: jobs/a\n");
  EXPECT_EQ(Of("{.}", Json(3)), "3\n");
}

TEST(JsonPathTest, Conditions) {
  EXPECT_EQ(Of("{.jobs[?(@.state==\"RUNNING\")].name}"), "jobs/a\n");
  EXPECT_EQ(Of("{.jobs[?(@.state != 'RUNNING')].name}"), "jobs/b jobs/c\n");
  EXPECT_EQ(Of("{.jobs[?(@.progress.step>=7)].name}"), "jobs/a\n");
  EXPECT_EQ(Of("{.jobs[?(@.progress.loss)].name}"), "jobs/a\n");
  EXPECT_EQ(Of("{.jobs[?(@.epoch>3)].name}"), "jobs/c\n");
  EXPECT_EQ(Of("{.jobs[*].ranks[?(@.rank<1)].worker}"), "w0 w2\n");
}

TEST(JsonPathTest, MistakesHaveTheirPlace) {
  EXPECT_THAT(Of(".state"), HasSubstr("'{.state}'"));
  EXPECT_THAT(Of("{state}"), HasSubstr("at 2, \"state}\": a path must begin with a dot"));
  EXPECT_THAT(Of("{.jobs[0}"), HasSubstr("at 9, \"}\": needs ] to close the ["));
  EXPECT_THAT(Of("{.jobs[x]}"), HasSubstr("at 8"));
  EXPECT_THAT(Of("{.state"), HasSubstr("the end: needs } after the path"));
  EXPECT_THAT(Of("{range .jobs[*]}{.name}"), HasSubstr("no {end}"));
  EXPECT_THAT(Of("{.a}{end}"), HasSubstr("{end} without {range ...}"));
  EXPECT_THAT(Of("{\"abc}"), HasSubstr("at 2, \"\"abc}\": this quote is not closed"));
  EXPECT_THAT(Of("{..name}"), HasSubstr("not in this subset"));
  EXPECT_THAT(Of("{.jobs[?(state==1)]}"), HasSubstr("begins with @"));
  EXPECT_THAT(Of("{.jobs[?(@.state==RUNNING)]}"), HasSubstr("a quoted text"));
  EXPECT_THAT(Of("{'\\q'}"), HasSubstr("is no escape"));
  EXPECT_THAT(Of("{.jobs[99999999999]}"), HasSubstr("position in a list"));
}

TEST(JsonPathTest, FieldsThatCannotBeThereAreNamed) {
  EXPECT_EQ(Checked("{.jobs[*].state}{.jobs[0].createTime}{.jobs[0].spec.spec.model.dim}"), "");
  EXPECT_EQ(Checked("{.jobs[*].stat}"),
            "jsonpath at 10: there is no field stat; did you mean state?");
  EXPECT_EQ(Checked("{.state}"), "jsonpath at 2: there is only .jobs; write {.jobs[*].state}");
  EXPECT_EQ(Checked("{.state}", ""), "");
  EXPECT_THAT(Checked("{.ranks.worker}", ""), HasSubstr("at 8: this is a list"));
  EXPECT_THAT(Checked("{.state.name}", ""), HasSubstr("at 8: this is one value"));
  EXPECT_THAT(Checked("{.state[0]}", ""), HasSubstr("at 8: this is not a list"));
  EXPECT_THAT(Checked("{.ranks[?(@.wrker==1)]}", ""), HasSubstr("did you mean worker?"));
  EXPECT_THAT(Checked("{range .ranks[*]}{.nme}{end}", ""), HasSubstr("there is no field nme"));
  EXPECT_EQ(Checked("{.spec.metadata.labels.team}{.createTime}", ""), "");
}

TEST(JsonPathTest, NoTemplateEndsTheProgram) {
  const std::string pieces[] = {"{",  "}", ".",     "[",   "]",  "*",  "?(", "@", "==",
                                "\"", "'", "range", "end", "\\", "-1", ":",  " ", "jobs"};
  unsigned seed = 12345;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      seed = seed * 1664525u + 1013904223u;
      text += pieces[(seed >> 16) % std::size(pieces)];
    }
    EXPECT_FALSE(Of(text).empty());
    Checked(text);
  }
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "{range .jobs}";
  EXPECT_THAT(Of(deep), HasSubstr("too deeply"));
  deep = "{.a";
  for (int i = 0; i < 10000; ++i) deep += "[?(@.a";
  EXPECT_THAT(Of(deep), HasSubstr("too deeply"));
}

}  // namespace
}  // namespace fsdp
