#include "client/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "client/cli.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<FlagSpec> Specs() {
  return {{.name = "follow", .short_name = 'f', .help = "Follow"},
          {.name = "output",
           .short_name = 'o',
           .kind = FlagKind::kChoice,
           .help = "Format",
           .default_value = "table",
           .choices = {"table", "json"}},
          {.name = "set",
           .kind = FlagKind::kString,
           .value_name = "K=V",
           .help = "Set",
           .repeated = true},
          {.name = "tail",
           .kind = FlagKind::kInt,
           .value_name = "N",
           .help = "Lines",
           .default_value = "0"},
          {.name = "rank", .kind = FlagKind::kInt, .help = "One", .max_value = FlagSpec::kMaxInt},
          {.name = "timeout", .kind = FlagKind::kDuration, .help = "Time", .default_value = "2s"}};
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  return std::string(ParseFlags(Specs(), arguments).status().message());
}

TEST(FlagsTest, TakesEverySpelling) {
  const auto flags =
      ParseFlags(Specs(), {"job", "-f", "-ojson", "--set", "a=1", "--set=b=2", "--tail=5", "more"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_TRUE(flags->GetBool("follow"));
  EXPECT_EQ(flags->GetString("output"), "json");
  EXPECT_THAT(flags->GetStrings("set"), ElementsAre("a=1", "b=2"));
  EXPECT_EQ(flags->GetInt("tail"), 5);
  EXPECT_THAT(flags->positional(), ElementsAre("job", "more"));
  EXPECT_FALSE(flags->after_dashes().has_value());
}

TEST(FlagsTest, AbsentFlagsHaveTheirDefaults) {
  const auto flags = ParseFlags(Specs(), {});
  ASSERT_TRUE(flags.ok());
  EXPECT_FALSE(flags->Has("output"));
  EXPECT_EQ(flags->GetString("output"), "table");
  EXPECT_FALSE(flags->GetBool("follow"));
  EXPECT_EQ(flags->GetDuration("timeout"), absl::Seconds(2));
  EXPECT_THAT(flags->GetStrings("set"), IsEmpty());
}

TEST(FlagsTest, DashesEndTheFlags) {
  const auto flags = ParseFlags(Specs(), {"-f", "--", "cmd", "--unknown", "-x"});
  ASSERT_TRUE(flags.ok());
  EXPECT_THAT(*flags->after_dashes(), ElementsAre("cmd", "--unknown", "-x"));
  EXPECT_THAT(flags->positional(), IsEmpty());
}

TEST(FlagsTest, ALoneDashIsAnArgument) {
  const auto flags = ParseFlags(Specs(), {"-"});
  ASSERT_TRUE(flags.ok());
  EXPECT_THAT(flags->positional(), ElementsAre("-"));
}

TEST(FlagsTest, BoolsCanBeSwitchedOff) {
  const auto flags = ParseFlags(Specs(), {"--follow=false"});
  ASSERT_TRUE(flags.ok());
  EXPECT_FALSE(flags->GetBool("follow"));
  EXPECT_THAT(ErrorOf({"--follow=maybe"}), HasSubstr("true or false"));
}

TEST(FlagsTest, ErrorsSayWhatWasMeant) {
  EXPECT_EQ(ErrorOf({"--folow"}), "unknown flag --folow; did you mean --follow?");
  EXPECT_EQ(ErrorOf({"--zzzzzz"}), "unknown flag --zzzzzz");
  EXPECT_EQ(ErrorOf({"-z"}), "unknown flag -z");
  EXPECT_EQ(ErrorOf({"-o", "jsn"}), "--output=jsn: must be one of table, json; did you mean json?");
  EXPECT_EQ(ErrorOf({"--tail=-1"}), "--tail=-1: must be a whole number of at least 0");
  EXPECT_EQ(ErrorOf({"--rank=4294967296"}),
            "--rank=4294967296: must be a whole number of at most 2147483647");
  EXPECT_EQ(ErrorOf({"--tail=1e3"}), "--tail=1e3: must be a whole number of at least 0");
  EXPECT_EQ(ErrorOf({"--tail=99999999999999999999"}),
            "--tail=99999999999999999999: must be a whole number of at least 0");
  EXPECT_EQ(ErrorOf({"--tail", "1", "--tail", "2"}), "--tail is given twice");
  EXPECT_EQ(ErrorOf({"--timeout=soon"}),
            "--timeout=soon: must be a duration such as 30s, 2m or 1h");
  EXPECT_THAT(ErrorOf({"--set"}), HasSubstr("--set needs a value: K=V"));
}

TEST(FlagsTest, Durations) {
  EXPECT_EQ(*ParseDurationText("1.5"), absl::Milliseconds(1500));
  EXPECT_EQ(*ParseDurationText("2m"), absl::Minutes(2));
  EXPECT_EQ(*ParseDurationText("500ms"), absl::Milliseconds(500));
  for (const char* bad : {"", "-1s", "nan", "inf", "1 day", "-5"}) {
    EXPECT_FALSE(ParseDurationText(bad).ok()) << bad;
  }
}

TEST(FlagsTest, HelpListsFlagsAligned) {
  EXPECT_EQ(FlagsHelp(Specs()),
            "  -f, --follow             Follow\n"
            "  -o, --output table|json  Format (default table)\n"
            "      --set K=V            Set (repeatable)\n"
            "      --tail N             Lines (default 0)\n"
            "      --rank VALUE         One\n"
            "      --timeout VALUE      Time (default 2s)\n");
}

TEST(SuggestTest, FindsSlipsAndCompletions) {
  const std::vector<std::string> verbs = {"submit", "suspend", "list", "logs", "events", "top"};
  EXPECT_EQ(Suggest("submti", verbs), "submit");
  EXPECT_EQ(Suggest("even", verbs), "events");
  EXPECT_EQ(Suggest("lst", verbs), "list");
  EXPECT_EQ(Suggest("xyzzy", verbs), "");
  EXPECT_EQ(Suggest("", verbs), "");
  EXPECT_EQ(Suggest(std::string(10000, 'a'), verbs), "");
}

// The table that everything is made from must not contradict itself.
TEST(CommandTableTest, NamesAndFlagsAreUnique) {
  std::set<std::string> names;
  for (const auto& command : Commands()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    for (const auto& alias : command.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    EXPECT_LT(command.name.size(), 12U);
    EXPECT_FALSE(command.summary.empty()) << command.name;
    EXPECT_FALSE(command.examples.empty()) << command.name;
    std::set<std::string> flags;
    std::vector<FlagSpec> all = command.flags;
    all.insert(all.end(), GlobalFlags().begin(), GlobalFlags().end());
    for (const auto& flag : all) {
      EXPECT_TRUE(flags.insert(flag.name).second) << command.name << " --" << flag.name;
      if (flag.short_name != 0) {
        EXPECT_TRUE(flags.insert(std::string(1, flag.short_name)).second)
            << command.name << " -" << flag.short_name;
      }
      EXPECT_FALSE(flag.help.empty()) << command.name << " --" << flag.name;
      EXPECT_EQ(flag.kind == FlagKind::kChoice, !flag.choices.empty()) << flag.name;
    }
  }
}

TEST(FlagsTest, ChoicesAreTakenInAnyCase) {
  const std::vector<FlagSpec> specs = {
      {.name = "state", .kind = FlagKind::kChoice, .choices = {"RUNNING", "QUEUED"}},
      {.name = "output", .kind = FlagKind::kChoice, .choices = {"json", "yaml"}}};
  const auto flags = ParseFlags(specs, {"--state=running", "--output", "JSON"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->GetString("state"), "RUNNING");
  EXPECT_EQ(flags->GetString("output"), "json");
  EXPECT_THAT(std::string(ParseFlags(specs, {"--state=queud"}).status().message()),
              HasSubstr("one of RUNNING, QUEUED; did you mean QUEUED?"));
  EXPECT_THAT(std::string(ParseFlags(specs, {"--output=YML"}).status().message()),
              HasSubstr("; did you mean yaml?"));
}

}  // namespace
}  // namespace fsdp
