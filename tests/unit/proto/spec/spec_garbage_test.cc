// Damaged and random specs: whatever the bytes, there is a verdict, its places lie in the text, and
// what is accepted survives a round trip. Deterministic: the seeds are the loop's counter.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "proto/support/spec.h"
#include "tests/unit/proto/spec/base_spec.h"
#include "worker/plan/plan.h"

namespace fsdp {
namespace {

using Random = std::mt19937_64;

std::size_t Below(std::size_t limit, Random* random) { return (*random)() % limit; }

// Bits of YAML that reach odd corners of a reader.
const std::string& Token(Random* random) {
  static const std::vector<std::string> tokens = {
      "\n",         "  ",         "\t",      ": ",          "- ",
      "? ",         "{",          "}",       "[",           "]",
      ",",          "\"",         "'",       "#",           "&a ",
      "*a",         "!!",         "!<",      "|",           ">",
      "|-\n",       "---\n",      "...",     "%",           "@",
      "`",          "\\x",        "\\u",     "~",           "null",
      "<<: ",       "spec:",      "dim: ",   "1e9",         "-0",
      "0x1",        ".nan",       "\xC3",    "\r\n",        "\xEF\xBB\xBF",
      "kind: ",     "metadata: ", "  - {",   "\"\\ud83d\"", "%YAML 1.2\n",
      "%TAG ! x\n", "a: b: c",    "? - ? -", ">9\n",        "|+1\n"};
  return tokens[Below(tokens.size(), random)];
}

void Damage(std::string* text, Random* random) {
  const std::size_t at = Below(text->size() + 1, random);
  switch (Below(6, random)) {
    case 0:
      text->insert(at, 1, static_cast<char>(Below(256, random)));
      break;
    case 1:
      text->insert(at, Token(random));
      break;
    case 2:
      text->erase(at, 1 + Below(8, random));
      break;
    case 3:
      text->insert(at, text->substr(Below(text->size() + 1, random), Below(60, random)));
      break;
    case 4:
      if (at < text->size()) (*text)[at] = static_cast<char>(Below(128, random));
      break;
    default:
      if (Below(20, random) == 0) text->resize(at);
  }
}

void ExpectVerdict(const std::string& text, std::uint64_t seed) {
  const SpecResult result = LoadJob(text);
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  for (const SpecIssue& issue : result.issues) {
    EXPECT_FALSE(issue.message.empty()) << seed;
    EXPECT_GE(issue.line, 1) << seed << "\n" << text;
    EXPECT_LE(issue.line, lines) << seed;
    EXPECT_GE(issue.column, 1) << seed;
  }
  if (!result.ok()) return;
  const SpecResult again = LoadJob(JobToYaml(result.job));
  EXPECT_TRUE(again.ok()) << seed << FormatIssues(again.issues, "again");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(result.job, again.job)) << seed;
  // What was accepted can be planned: admission has nothing of its own to refuse.
  const absl::StatusOr<Plan> plan = PlanFromJob(result.job, JobWorldSize(result.job), 0);
  EXPECT_TRUE(plan.ok()) << seed << plan.status() << JobToYaml(result.job);
}

TEST(GarbageTest, DamagedSpecsGetAVerdict) {
  const std::string yaml = spec_testing::BaseSpec();
  const std::string json = JobToJson(LoadJob(yaml).job);
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    std::string text = seed % 3 == 0 ? json : yaml;
    const std::size_t wounds = 1 + Below(6, &random);
    for (std::size_t i = 0; i < wounds; ++i) Damage(&text, &random);
    ExpectVerdict(text, seed);
  }
}

TEST(GarbageTest, TokenSoupGetsAVerdict) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed + 1'000'000);
    std::string text;
    const std::size_t length = 1 + Below(40, &random);
    for (std::size_t i = 0; i < length; ++i) text += Token(&random);
    ExpectVerdict(text, seed);
  }
}

TEST(GarbageTest, RandomBytesGetAVerdict) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed + 2'000'000);
    std::string text(1 + Below(200, &random), ' ');
    // Mostly ASCII, or the first malformed byte would end every case.
    for (char& c : text) c = static_cast<char>(Below(seed % 4 == 0 ? 256 : 128, &random));
    ExpectVerdict(text, seed);
  }
}

}  // namespace
}  // namespace fsdp
