#include "client/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/temporary_folder.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

constexpr char kCommented[] = R"(# mine
server: here:1   # at home

currentContext: lab
contexts:
  # The lab's, ask Ada.
  lab:
    server: lab:7070  # moved in May
    tlsCa: /etc/lab.pem
  # Production.
  prod:
    server: "prod:7070"
color: never
)";

ConfigFile Parsed(const std::string& text) {
  const auto file = ParseConfig("c.yaml", text);
  EXPECT_TRUE(file.ok()) << file.status();
  return *file;
}

std::string With(const std::string& text, const std::string& name, const ConfigChanges& changes) {
  const auto edited = WithContext(Parsed(text), text, name, changes);
  return edited.ok() ? *edited : std::string(edited.status().message());
}

std::string Without(const std::string& text, const std::string& name) {
  const auto edited = WithoutContext(Parsed(text), text, name);
  return edited.ok() ? *edited : std::string(edited.status().message());
}

std::string Using(const std::string& text, const std::string& name) {
  const auto edited = WithCurrentContext(Parsed(text), text, name);
  return edited.ok() ? *edited : std::string(edited.status().message());
}

TEST(ConfigFileTest, ContextsAreRead) {
  const ConfigFile file = Parsed(kCommented);
  EXPECT_EQ(file.current_context, "lab");
  EXPECT_EQ(file.values.at("server"), "here:1");
  EXPECT_EQ(file.contexts.at("lab").at("server"), "lab:7070");
  EXPECT_EQ(file.contexts.at("lab").at("tlsCa"), "/etc/lab.pem");
  EXPECT_EQ(file.contexts.at("prod").size(), 1U);
  EXPECT_TRUE(Parsed("contexts:\n  empty:\n").contexts.at("empty").empty());
  EXPECT_EQ(Parsed("contexts: {a: {server: 'x:1'}}\n").contexts.at("a").at("server"), "x:1");
}

TEST(ConfigFileTest, MistakesNameTheirLine) {
  const auto error = [](const std::string& text) {
    return std::string(ParseConfig("c.yaml", text).status().message());
  };
  EXPECT_EQ(error("contexts:\n  a:\n    sever: x:1\n"),
            "c.yaml:3: unknown key \"sever\"; did you mean server?");
  EXPECT_EQ(error("contexts: [a]\n"), "c.yaml:1: contexts must be `name:` entries");
  EXPECT_EQ(error("contexts:\n  a: x:1\n"), "c.yaml:2: context \"a\" must be `key: value` lines");
  EXPECT_THAT(error("contexts:\n  a:\n    server: [1]\n"), HasSubstr("c.yaml:3: server must be"));
  EXPECT_THAT(error("contexts:\n  -bad: {}\n"), HasSubstr("c.yaml:2: context name \"-bad\""));
  EXPECT_THAT(error("contexts:\n  a:\n    contexts: x\n"), HasSubstr("unknown key \"contexts\""));
}

TEST(ConfigFileTest, AnEditTouchesItsLinesAlone) {
  std::string wanted = kCommented;
  wanted.replace(wanted.find("lab:7070  # moved"), 8, "new:7071");
  EXPECT_EQ(With(kCommented, "lab", {{"server", "new:7071"}}), wanted);

  wanted = kCommented;
  wanted.erase(wanted.find("    tlsCa: /etc/lab.pem\n"), 24);
  EXPECT_EQ(With(kCommented, "lab", {{"tlsCa", std::nullopt}}), wanted);

  wanted = kCommented;
  wanted.insert(wanted.find("  # Production."), "    tokenFile: /run/token\n");
  EXPECT_EQ(With(kCommented, "lab", {{"tokenFile", "/run/token"}}), wanted);

  wanted = kCommented;
  wanted.insert(wanted.find("color: never"), "  new:\n    server: n:1\n");
  EXPECT_EQ(With(kCommented, "new", {{"server", "n:1"}}), wanted);

  wanted = kCommented;
  wanted.replace(wanted.find("Context: lab"), 12, "Context: prod");
  EXPECT_EQ(Using(kCommented, "prod"), wanted);
}

TEST(ConfigFileTest, DeletingTheCurrentOneUsesNone) {
  const std::string text = Without(kCommented, "lab");
  EXPECT_EQ(Parsed(text).current_context, "");
  EXPECT_EQ(Parsed(text).contexts.count("lab"), 0U);
  EXPECT_THAT(text, HasSubstr("# mine\nserver: here:1   # at home\n"));
  EXPECT_THAT(text, HasSubstr("  # Production.\n  prod:\n"));
  EXPECT_EQ(Parsed(Without(kCommented, "prod")).current_context, "lab");
}

TEST(ConfigFileTest, AnEmptyFileGrows) {
  std::string text = With("", "a", {{"server", "a:1"}});
  EXPECT_EQ(text, "contexts:\n  a:\n    server: a:1\n");
  text = Using(text, "a");
  EXPECT_EQ(text, "currentContext: a\ncontexts:\n  a:\n    server: a:1\n");
  EXPECT_EQ(Using(text, ""), "contexts:\n  a:\n    server: a:1\n");
  EXPECT_EQ(With("contexts: {}  # none yet\n", "a", {{"server", "a:1"}}),
            "contexts:  # none yet\n  a:\n    server: a:1\n");
}

TEST(ConfigFileTest, ValuesComeBackAsTheyAre) {
  for (const char* value : {"[::1]:7070", "unix:/run/fsdp.sock", "a b", "x#y", "x # y", "\"q\"",
                            "back\\slash", "true", "0x10", "~", "name:", "- x", "1e3", "'"}) {
    const std::string text = With(kCommented, "lab", {{"server", value}});
    EXPECT_EQ(Parsed(text).contexts.at("lab").at("server"), value) << text;
    // And may be replaced again.
    EXPECT_EQ(Parsed(With(text, "lab", {{"server", "z:1"}})).contexts.at("lab").at("server"),
              "z:1");
  }
}

TEST(ConfigFileTest, WhatCannotBeEditedByLinesIsRefused) {
  EXPECT_THAT(With("contexts: {a: {server: 'a:1'}}\n", "a", {{"server", "b:1"}}),
              HasSubstr("c.yaml:1: contexts is written as {a: {server: 'a:1'}}"));
  EXPECT_THAT(With("contexts:\n  a: {server: 'a:1'}\n", "a", {{"server", "b:1"}}),
              HasSubstr("c.yaml:2: a is written as"));
  EXPECT_THAT(With("{server: 'a:1'}\n", "a", {{"server", "b:1"}}),
              HasSubstr("cannot be changed by lines"));
  EXPECT_THAT(With("contexts:\n  a: &x\n    server: a:1\n  b: *x\n", "a", {{"server", "b:1"}}),
              HasSubstr("is written as &x"));
}

TEST(ConfigFileTest, TheFileIsItsOwnersAlone) {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  const auto path = root / "new" / "fsdpctl" / "config.yaml";
  ASSERT_TRUE(WriteConfig(path.string(), "server: a:1\n").ok());
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  ASSERT_EQ(stat(path.parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  // One that others could read, through a link.
  const auto real = root / "real.yaml";
  std::ofstream(real) << "server: b:1\n";
  std::filesystem::permissions(real, std::filesystem::perms(0644));
  const auto link = root / "link.yaml";
  std::filesystem::create_symlink(real, link);
  ASSERT_TRUE(WriteConfig(link.string(), "server: c:1\n").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  ASSERT_EQ(stat(real.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  std::ifstream in(real);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "server: c:1\n");
  // No temporary file is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root), {}), 3);
}

}  // namespace
}  // namespace fsdp
