// Who may do what, decided without a wire: rules, access files, identities.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/security/identity.h"
#include "coordinator/security/rpc_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/access_file.h"
#include "proto/support/access_token.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Identity With(std::vector<Grant> grants, std::string subject = "alice") {
  return {.subject = std::move(subject), .grants = std::move(grants), .credential = "x"};
}

absl::Status Ask(const std::string& method, const Identity& identity, const JobTarget* target) {
  const RpcRule* rule = FindRpcRule("fsdp.v1." + method);
  EXPECT_NE(rule, nullptr) << method;
  return Authorize(*rule, identity, target);
}

const JobTarget kBobs{.name = "jobs/b-1", .queue = "research", .owner = "bob"};
const JobTarget kAlices{.name = "jobs/a-1", .queue = "research", .owner = "alice"};

TEST(RulesTest, NoMethodHasTwoRules) {
  std::set<std::string_view> methods;
  for (const RpcRule& rule : RpcRules()) {
    EXPECT_TRUE(methods.insert(rule.method).second) << rule.method;
    EXPECT_FALSE(rule.right.empty()) << rule.method;
  }
}

TEST(RulesTest, AViewerLooksAndChangesNothing) {
  const Identity viewer = With({{.role = Role::kViewer, .queues = {}}});
  EXPECT_TRUE(Ask("JobService/GetJob", viewer, &kBobs).ok());
  EXPECT_TRUE(Ask("JobService/StreamLogs", viewer, &kBobs).ok());
  for (const char* method : {"JobService/CancelJob", "JobService/DeleteJob",
                             "JobService/ReadCheckpoint", "ClusterService/DrainWorker"}) {
    const absl::Status status = Ask(method, viewer, &kAlices);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << method;
    EXPECT_EQ(ReasonOf(status), "ROLE_INSUFFICIENT") << method;
  }
}

TEST(RulesTest, ASubmitterChangesItsOwnJobsOnly) {
  const Identity alice = With({{.role = Role::kSubmitter, .queues = {}}});
  EXPECT_TRUE(Ask("JobService/CancelJob", alice, &kAlices).ok());
  EXPECT_TRUE(Ask("JobService/ReadCheckpoint", alice, &kAlices).ok());
  const absl::Status status = Ask("JobService/CancelJob", alice, &kBobs);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(status), "NOT_OWNER");
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("alice may not cancel the job: that takes its owner, bob, or an operator of "
                "queue research, and alice has submitter; an administrator can grant it"));
}

TEST(RulesTest, AnOwnerWhoLostTheRoleMayOnlyLook) {
  const Identity alice = With(
      {{.role = Role::kViewer, .queues = {}}, {.role = Role::kSubmitter, .queues = {"other"}}});
  EXPECT_TRUE(Ask("JobService/GetJob", alice, &kAlices).ok());
  EXPECT_EQ(ReasonOf(Ask("JobService/CancelJob", alice, &kAlices)), "QUEUE_FORBIDDEN");
}

TEST(RulesTest, AnOperatorActsOnItsQueuesJobs) {
  const Identity ours = With({{.role = Role::kOperator, .queues = {"research"}}});
  EXPECT_TRUE(Ask("JobService/CancelJob", ours, &kBobs).ok());
  // Of other queues' jobs it does not even learn that they exist.
  const Identity others = With({{.role = Role::kOperator, .queues = {"prod"}}});
  const absl::Status status = Ask("JobService/CancelJob", others, &kBobs);
  EXPECT_EQ(status, NoSuchJob("b-1"));
}

TEST(RulesTest, WhatConcernsAllQueuesTakesARoleInAll) {
  const Identity some = With({{.role = Role::kOperator, .queues = {"research"}}});
  EXPECT_EQ(ReasonOf(Ask("ClusterService/DrainWorker", some, nullptr)), "QUEUE_FORBIDDEN");
  EXPECT_TRUE(Ask("ClusterService/ListWorkers", some, nullptr).ok());
  const Identity all = With({{.role = Role::kOperator, .queues = {}}});
  EXPECT_TRUE(Ask("ClusterService/DrainWorker", all, nullptr).ok());
}

TEST(RulesTest, SubmittingTakesARightInThatQueue) {
  const Identity alice = With(
      {{.role = Role::kSubmitter, .queues = {"research"}}, {.role = Role::kViewer, .queues = {}}});
  const JobTarget research{.name = "", .queue = "research", .owner = ""};
  const JobTarget prod{.name = "", .queue = "prod", .owner = ""};
  EXPECT_TRUE(Ask("JobService/CreateJob", alice, &research).ok());
  const absl::Status status = Ask("JobService/CreateJob", alice, &prod);
  EXPECT_EQ(ReasonOf(status), "QUEUE_FORBIDDEN");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("takes the role submitter in queue prod, and alice has submitter in "
                        "research; viewer"));
}

TEST(RulesTest, WorkersAndPeopleAreApart) {
  const Identity admin = With({{.role = Role::kAdmin, .queues = {}}});
  const Identity worker = With({{.role = Role::kWorker, .queues = {}}}, "w0");
  EXPECT_EQ(ReasonOf(Ask("WorkerService/Connect", admin, nullptr)), "ROLE_INSUFFICIENT");
  EXPECT_TRUE(Ask("WorkerService/Connect", worker, nullptr).ok());
  EXPECT_EQ(ReasonOf(Ask("JobService/ListJobs", worker, nullptr)), "ROLE_INSUFFICIENT");
  EXPECT_FALSE(CanSee(worker, "research"));
}

TEST(RulesTest, WithoutAnAccessFileEverybodyMayEverything) {
  const Identity anyone = Unrestricted({});
  EXPECT_EQ(anyone.subject, "anonymous");
  for (const RpcRule& rule : RpcRules()) {
    EXPECT_TRUE(Authorize(rule, anyone, &kBobs).ok()) << rule.method;
  }
  EXPECT_EQ(Unrestricted({.authorization = {}, .certificate = "CN"}).subject, "CN");
}

// --- The file

absl::StatusOr<AccessFile> Parse(const std::string& text) {
  return ParseAccessFile(text, "a.yaml");
}

const std::string kHash = TokenHash("fsdp_0123456789abcdef0123");

TEST(AccessFileTest, WhatIsRenderedParses) {
  const AccessEntry entry{.name = "alice",
                          .token_sha256 = kHash,
                          .certificate = "",
                          .expires = absl::FromUnixSeconds(1'800'000'000),
                          .grants = {{.role = Role::kSubmitter, .queues = {"research", "dev"}},
                                     {.role = Role::kViewer, .queues = {}}}};
  const auto file = Parse("identities:\n" + RenderAccessEntry(entry));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->entries.size(), 1u);
  const AccessEntry& read = file->entries[0];
  EXPECT_EQ(read.name, "alice");
  EXPECT_EQ(read.token_sha256, kHash);
  EXPECT_EQ(read.expires, entry.expires);
  ASSERT_EQ(read.grants.size(), 2u);
  EXPECT_EQ(read.grants[0].role, Role::kSubmitter);
  EXPECT_THAT(read.grants[0].queues, ::testing::ElementsAre("research", "dev"));
  EXPECT_TRUE(read.grants[1].queues.empty());
}

TEST(AccessFileTest, ErrorsSayWhereAndWhatToDo) {
  const std::string entry = "identities:\n  - name: alice\n    tokenSha256: \"" + kHash + "\"\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"identities: 3\n", "a.yaml:1:13: identities: must be a list"},
      {"identites: []\n",
       "a.yaml:1:1: identites: unknown key; known are identities, revoked; did you mean "
       "identities?"},
      {"identities:\n  - name: \"a b\"\n    certificate: x\n",
       "a.yaml:2:11: name: 'a b': want 1-63"},
      {"identities:\n  - name: anonymous\n    certificate: x\n", "other than anonymous"},
      {"identities:\n  - name: a\n    grants: [{role: viewer}]\n",
       "a: wants tokenSha256 or certificate, one of the two"},
      {"identities:\n  - name: a\n    tokenSha256: fsdp_secret\n    grants: [{role: viewer}]\n",
       "a.yaml:3:18: tokenSha256: is no hash (11 characters)"},
      {entry, "grants: of alice: want a list such as [{role: viewer}]"},
      {entry + "    grants: [{role: veiwer}]\n",
       "'veiwer' is none of viewer, submitter, operator, "
       "admin, worker; did you mean viewer?"},
      {entry + "    grants: [{role: admin, queues: [a]}]\n", "a grant of admin is for all queues"},
      {entry + "    grants: [{role: viewer, queues: []}]\n", "or no key for every queue"},
      {entry + "    grants: [{role: viewer, queues: [A]}]\n", "'A' is no queue's name"},
      {entry + "    expires: tomorrow\n    grants: [{role: viewer}]\n",
       "expires: 'tomorrow': want a time with its zone, such as 2027-01-01T00:00:00Z"},
      {entry + "    grants: [{role: viewer}]\n    grants: [{role: admin}]\n", "is given twice"},
      {entry + "    grants: [{role: viewer}]\n  - name: bob\n    tokenSha256: \"" + kHash +
           "\"\n    grants: [{role: viewer}]\n",
       "tokenSha256: of bob is that of alice too"},
      {"identities: [\n", "a.yaml:"},
  };
  for (const auto& [text, problem] : cases) {
    const auto file = Parse(text);
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(problem)) << text;
    // Whoever pasted a token where its hash belongs does not find it in a log.
    EXPECT_THAT(std::string(file.status().message()), Not(HasSubstr("fsdp_secret"))) << text;
  }
}

// --- Identities

class IdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AccessFile file;
    file.entries.push_back({.name = "alice",
                            .token_sha256 = TokenHash(token_),
                            .certificate = "",
                            .expires = now_ + absl::Hours(1),
                            .grants = {{.role = Role::kViewer, .queues = {}}}});
    file.entries.push_back({.name = "carol",
                            .token_sha256 = "",
                            .certificate = "fsdp://user/carol",
                            .grants = {{.role = Role::kAdmin, .queues = {}}}});
    policy_ = std::make_unique<AccessPolicy>(file);
  }
  std::string Refusal(const Credentials& credentials, absl::Time now) const {
    const auto identity = policy_->Identify(credentials, now);
    EXPECT_TRUE(absl::IsUnauthenticated(identity.status())) << identity.status();
    EXPECT_THAT(std::string(identity.status().message()), Not(HasSubstr(token_)));
    return ReasonOf(identity.status());
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  const std::string token_ = NewToken();
  std::unique_ptr<AccessPolicy> policy_;
};

TEST_F(IdentityTest, ATokenNamesItsSubject) {
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER  "}) {
    const auto identity =
        policy_->Identify({.authorization = scheme + token_, .certificate = ""}, now_);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ(identity->subject, "alice");
  }
}

TEST_F(IdentityTest, RefusalsSayWhy) {
  EXPECT_EQ(Refusal({}, now_), "TOKEN_MISSING");
  EXPECT_EQ(Refusal({.authorization = "Bearer " + NewToken(), .certificate = ""}, now_),
            "TOKEN_UNKNOWN");
  const std::vector<std::string> malformed = {"",
                                              "Bearer ",
                                              "Basic " + token_,
                                              "Bearer " + std::string(600, 'x'),
                                              token_,
                                              "Bearer short",
                                              "Bearer " + token_ + " " + token_};
  for (const std::string& text : malformed) {
    EXPECT_EQ(Refusal({.authorization = text, .certificate = ""}, now_), "AUTHORIZATION_MALFORMED")
        << text;
  }
  const Credentials alice{.authorization = "Bearer " + token_, .certificate = ""};
  EXPECT_EQ(Refusal(alice, now_ + absl::Hours(1)), "CREDENTIAL_EXPIRED");
  EXPECT_TRUE(policy_->Identify(alice, now_ + absl::Minutes(59)).ok());
  EXPECT_EQ(Refusal({.authorization = {}, .certificate = "fsdp://user/mallory"}, now_),
            "CERTIFICATE_UNKNOWN");
}

TEST_F(IdentityTest, ACertificateNamesItsSubjectAndAWorkersNeedsNoEntry) {
  const auto carol =
      policy_->Identify({.authorization = {}, .certificate = "fsdp://user/carol"}, now_);
  ASSERT_TRUE(carol.ok());
  EXPECT_EQ(carol->subject, "carol");
  const auto worker =
      policy_->Identify({.authorization = {}, .certificate = "fsdp://worker/w0"}, now_);
  ASSERT_TRUE(worker.ok());
  ASSERT_EQ(worker->grants.size(), 1u);
  EXPECT_EQ(worker->grants[0].role, Role::kWorker);
}

TEST_F(IdentityTest, ATokenCountsBeforeACertificate) {
  const auto identity = policy_->Identify(
      {.authorization = "Bearer " + token_, .certificate = "fsdp://user/carol"}, now_);
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->subject, "alice");
  // A wrong token does not fall back to the certificate.
  EXPECT_EQ(
      Refusal({.authorization = "Bearer " + NewToken(), .certificate = "fsdp://user/carol"}, now_),
      "TOKEN_UNKNOWN");
}

TEST_F(IdentityTest, ARecheckSeesExpiryAndRevocation) {
  const auto alice =
      policy_->Identify({.authorization = "Bearer " + token_, .certificate = ""}, now_);
  ASSERT_TRUE(alice.ok());
  EXPECT_TRUE(policy_->Recheck(*alice, now_).ok());
  EXPECT_EQ(ReasonOf(policy_->Recheck(*alice, now_ + absl::Hours(2)).status()),
            "CREDENTIAL_EXPIRED");
  EXPECT_EQ(ReasonOf(AccessPolicy(AccessFile{}).Recheck(*alice, now_).status()), "TOKEN_UNKNOWN");
}

TEST(TokenTest, TokensDifferAndAreWellFormed) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) {
    const std::string token = NewToken();
    EXPECT_EQ(token.size(), 48u);
    EXPECT_TRUE(IsTokenText(token)) << token;
    EXPECT_TRUE(tokens.insert(token).second);
  }
  // The published test vector of SHA-256.
  EXPECT_EQ(TokenHash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace fsdp::coordinator
