// `fsdpctl admin`, and what a token does to calls.

#include <sys/stat.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/access_file.h"
#include "proto/support/access_token.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/client/cli_fixture.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AdminTest : public ::testing::Test {
 protected:
  CliResult Run(const std::vector<std::string>& arguments) { return runner_.Run(arguments); }
  // The entries of the access file.
  [[nodiscard]] std::vector<AccessEntry> Entries() const {
    const auto file = ParseAccessFile(folder_.Read("access.yaml"), "access.yaml");
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->entries : std::vector<AccessEntry>();
  }

  CliRunner runner_;
  const TemporaryFolder folder_;
  const std::string access_ = folder_.Path("access.yaml");
};

TEST_F(AdminTest, ATokenIsPrintedOnceAndItsEntryHasTheHash) {
  const CliResult result = Run(
      {"admin", "create-token", "--name", "alice", "--role", "submitter", "--queue", "research"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string token = result.out.substr(0, result.out.size() - 1);
  EXPECT_TRUE(IsTokenText(token)) << result.out;
  EXPECT_THAT(result.err, HasSubstr("tokenSha256: \"" + TokenHash(token) + "\""));
  EXPECT_THAT(result.err, HasSubstr("- {role: submitter, queues: [research]}"));
  EXPECT_THAT(result.err, Not(HasSubstr(token)));
}

TEST_F(AdminTest, EntriesAreAddedToTheFile) {
  const CliResult first =
      Run({"admin", "create-token", "--name=alice", "--role=viewer", "--access", access_});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.err, "");
  const CliResult second = Run({"admin", "create-token", "--name=bob", "--role=admin", "--expires",
                                "24h", "--access", access_, "--to", folder_.Path("bob.token")});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out, "");
  const auto entries = Entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "alice");
  EXPECT_EQ(entries[0].token_sha256, TokenHash(first.out.substr(0, first.out.size() - 1)));
  EXPECT_EQ(entries[1].token_sha256, TokenHash(*ReadTokenFile(folder_.Path("bob.token"))));
  EXPECT_EQ(entries[1].expires, absl::FromUnixSeconds(1767323045 + 86400));
  // Nobody else reads a token.
  struct stat info{};
  ASSERT_EQ(::stat(folder_.Path("bob.token").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AdminTest, AnEmptyFileTakesTheFirstEntry) {
  folder_.Write("access.yaml", "\n");
  const CliResult result =
      Run({"admin", "create-token", "--name=alice", "--role=viewer", "--access", access_});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Entries().size(), 1u);
}

TEST_F(AdminTest, NothingIsOverwritten) {
  folder_.Write("access.yaml", "identities: [\n");
  const CliResult broken = Run({"admin", "create-token", "--name=a", "--role=viewer", "--access",
                                access_, "--to", folder_.Path("a.token")});
  EXPECT_NE(broken.exit_code, 0);
  EXPECT_EQ(folder_.Read("access.yaml"), "identities: [\n");
  // No token that nobody knows stays behind.
  EXPECT_FALSE(ReadTokenFile(folder_.Path("a.token")).ok());
  folder_.Write("a.token", "mine");
  const CliResult taken =
      Run({"admin", "create-token", "--name=a", "--role=viewer", "--to", folder_.Path("a.token")});
  EXPECT_NE(taken.exit_code, 0);
  EXPECT_EQ(folder_.Read("a.token"), "mine");
}

TEST_F(AdminTest, MistakesAreNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--role=viewer"}, "--name '': want 1-63 characters"},
      {{"--name=a b", "--role=viewer"}, "--name 'a b'"},
      {{"--name=a"}, "give --role: viewer, submitter, operator, admin, or worker"},
      {{"--name=a", "--role=boss"}, "boss"},
      {{"--name=a", "--role=viewer", "--queue=A"}, "--queue A is no queue's name"},
      {{"--name=a", "--role=worker", "--queue=a"}, "the role worker is for all queues"},
      {{"--name=a", "--role=viewer", "--expires=soon"}, "--expires soon: want a duration"},
      {{"--name=a", "--role=viewer", "--expires=2020-01-01T00:00:00Z"}, "is over already"}};
  for (const auto& [flags, problem] : cases) {
    std::vector<std::string> arguments = {"admin", "create-token"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const CliResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << problem;
    EXPECT_THAT(result.err, HasSubstr(problem));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(Run({"admin", "drop-token"}).exit_code, 2);
  EXPECT_EQ(Run({"admin", "check-access"}).exit_code, 2);
}

TEST_F(AdminTest, AnAccessFileIsCheckedAndShown) {
  ASSERT_EQ(Run({"admin", "create-token", "--name=alice", "--role=submitter", "--queue=research",
                 "--queue=dev", "--access", access_})
                .exit_code,
            0);
  const CliResult shown = Run({"admin", "check-access", access_});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("submitter in research, dev"));
  EXPECT_THAT(shown.out, HasSubstr("never"));
  EXPECT_THAT(shown.out, Not(HasSubstr("REVOKED")));
  folder_.Write("access.yaml",
                "identities: []\nrevoked:\n  - {certificate: \"fsdp://worker/n7-*\", issuedBefore: "
                "\"2026-12-01T10:00:00Z\"}\n  - serial: \"3F:9A\"\n");
  const CliResult revoked = Run({"admin", "check-access", access_});
  EXPECT_THAT(revoked.out, HasSubstr("REVOKED             ISSUED BEFORE\n"
                                     "fsdp://worker/n7-*  2026-12-01T10:00:00+00:00\n"
                                     "serial 3f9a         any time\n"));
  folder_.Write("access.yaml", "identities:\n  - nme: alice\n");
  const CliResult broken = Run({"admin", "check-access", access_});
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, HasSubstr("access.yaml:2:5: nme: unknown key"));
  EXPECT_EQ(Run({"admin", "check-access", folder_.Path("none")}).exit_code, 102);
}

TEST_F(AdminTest, JoinTokensAreRevokedByTheirIds) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"revoke"}, "takes the IDs of `join-token list`"},
      {{"list", "x"}, "join-token list takes no arguments"},
      {{"-o", "json"}, "--output goes with join-token list alone"},
      {{"forget"}, "no action join-token forget; use list, revoke"},
      {{"revoke", "fsdpjoin1.3f9a.SECRET.0"}, "takes a token's ID"}};
  for (const auto& [words, problem] : cases) {
    std::vector<std::string> arguments = {"ca", "join-token"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const CliResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << problem;
    EXPECT_THAT(result.err, HasSubstr(problem));
    EXPECT_THAT(result.err, Not(HasSubstr("SECRET")));
  }
}

TEST_F(AdminTest, ATokenThatCannotBeReadOrIsNoneStopsTheCall) {
  const CliResult missing = Run({"list", "--token-file", folder_.Path("none")});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("cannot read the token file"));
  const std::string path = folder_.Write("short", "secret");
  const CliResult none = Run({"list", "--token-file", path});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("holds no token (6 bytes)"));
  EXPECT_THAT(none.err, Not(HasSubstr("secret")));
}

TEST_F(AdminTest, ATokenDoesNotGoToOtherMachinesInTheClear) {
  const std::string path = folder_.Write("token", NewToken() + "\n");
  const CliResult refused = Run({"list", "--token-file", path, "--server", "192.0.2.1:7070"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("would travel in the clear to 192.0.2.1:7070: use TLS"));
  // Here it may.
  EXPECT_EQ(Run({"list", "--token-file", path}).exit_code, 0);
}

}  // namespace
}  // namespace fsdp
