// Join tokens and the certificates that they give, with a store in memory or on disk.

#include "coordinator/security/enrollment.h"

#include <future>

#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "proto/support/log.h"
#include "proto/support/tls/authority_folder.h"
#include "proto/support/tls/certificate.h"
#include "proto/support/tls/join_token.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/proto/tls/test_pki.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class EnrollmentTest : public ::testing::Test {
 protected:
  EnrollmentTest() {
    SetLogLevel(LogLevel::kError);
    const auto pair = tls::Authority::New("ca", clock_.WallNow() - absl::Hours(1),
                                          clock_.WallNow() + absl::Hours(24 * 365));
    pair_ = pair.value();
    Start();
  }

  // Also a restart of the coordinator on the same store.
  void Start() {
    enrollment_.reset();
    enrollment_ =
        Enrollment::Create({}, tls::Authority::Create(pair_).value(), *store_, clock_).value();
  }

  absl::StatusOr<v1::CreateJoinTokenResponse> Token(const std::string& worker = "",
                                                    std::int64_t expires_seconds = 0) {
    v1::CreateJoinTokenRequest request;
    request.set_worker(worker);
    if (expires_seconds != 0) request.mutable_expires_after()->set_seconds(expires_seconds);
    std::promise<absl::StatusOr<v1::CreateJoinTokenResponse>> reply;
    enrollment_->CreateJoinToken("alice", request,
                                 [&](auto response) { reply.set_value(std::move(response)); });
    return reply.get_future().get();
  }

  absl::StatusOr<v1::EnrollWorkerResponse> EnrollUris(const std::string& token,
                                                      const std::vector<std::string>& uris) {
    v1::EnrollWorkerRequest request;
    request.set_token(token);
    request.set_signing_request(tls::NewSigningRequest(key_, "host", uris).value());
    std::promise<absl::StatusOr<v1::EnrollWorkerResponse>> reply;
    enrollment_->EnrollWorker("ipv4:10.0.0.7:1234", request,
                              [&](auto response) { reply.set_value(std::move(response)); });
    return reply.get_future().get();
  }

  absl::StatusOr<v1::EnrollWorkerResponse> Enroll(const std::string& token,
                                                  const std::vector<std::string>& workers) {
    std::vector<std::string> uris;
    uris.reserve(workers.size());
    for (const std::string& worker : workers) uris.push_back("fsdp://worker/" + worker);
    return EnrollUris(token, uris);
  }

  absl::Status Revoke(const std::string& name) {
    std::promise<absl::Status> reply;
    enrollment_->RevokeJoinToken(name, [&](auto response) { reply.set_value(response.status()); });
    return reply.get_future().get();
  }

  FakeClock clock_;
  tls::KeyPair pair_;
  const std::string key_ = tls::NewKey().value();
  std::unique_ptr<JobStore> store_ = std::make_unique<MemoryStore>();
  std::unique_ptr<Enrollment> enrollment_;
};

TEST_F(EnrollmentTest, ATokenGivesACertificateForTheKeyAndTheWorkers) {
  const std::string token = Token()->token();
  const auto response = Enroll(token, {"n1-cuda-0", "n1-cuda-1"});
  ASSERT_TRUE(response.ok()) << response.status();
  const auto chain = tls::ReadCertificates(response->certificate()).value();
  EXPECT_THAT(chain[0].uris, ElementsAre("fsdp://worker/n1-cuda-0", "fsdp://worker/n1-cuda-1"));
  EXPECT_EQ(chain[0].not_after, clock_.WallNow() + absl::Hours(24 * 30));
  EXPECT_TRUE(tls::CheckKeyMatches(response->certificate(), key_).ok());
  // The token pins the authority that comes with it.
  const auto authority = tls::ReadCertificates(response->authority()).value();
  EXPECT_EQ(tls::ParseJoinToken(token)->authority_fingerprint, authority[0].fingerprint);
}

TEST_F(EnrollmentTest, ATokenIsGoodOnce) {
  const std::string token = Token()->token();
  ASSERT_TRUE(Enroll(token, {"a"}).ok());
  const absl::Status again = Enroll(token, {"b"}).status();
  EXPECT_TRUE(absl::IsUnauthenticated(again));
  EXPECT_THAT(std::string(again.message()),
              AllOf(HasSubstr("was used"), HasSubstr("10.0.0.7"), HasSubstr("for a")));
}

TEST_F(EnrollmentTest, AReplayIsRefusedAfterARestartToo) {
  const TemporaryFolder folder;
  const auto reopen = [&] {
    enrollment_.reset();
    store_.reset();
    store_ = SqliteStore::Open({.directory = folder.path()}, {}).value();
    Start();
  };
  reopen();
  const std::string used = Token()->token();
  const std::string waiting = Token()->token();
  ASSERT_TRUE(Enroll(used, {"a"}).ok());
  reopen();
  EXPECT_THAT(std::string(Enroll(used, {"a"}).status().message()), HasSubstr("was used"));
  EXPECT_TRUE(Enroll(waiting, {"b"}).ok());
  // Hashes lie on disk, no secret does.
  const std::string secret = tls::ParseJoinToken(used)->secret;
  for (const char* file : {"jobs.db", "jobs.db-wal"}) {
    EXPECT_THAT(folder.Read(file), Not(HasSubstr(secret))) << file;
  }
  enrollment_.reset();
  store_.reset();
}

TEST_F(EnrollmentTest, ATokenExpires) {
  const std::string token = Token("", 60)->token();
  clock_.Advance(absl::Seconds(60));
  const absl::Status late = Enroll(token, {"a"}).status();
  EXPECT_TRUE(absl::IsUnauthenticated(late));
  EXPECT_THAT(std::string(late.message()), HasSubstr("expired"));
  // Long after, it is forgotten.
  clock_.Advance(absl::Hours(24 * 8));
  ASSERT_TRUE(Token().ok());
  EXPECT_THAT(std::string(Enroll(token, {"a"}).status().message()), HasSubstr("is unknown"));
}

TEST_F(EnrollmentTest, TokensAreListedNewestFirstWithoutTheirSecrets) {
  EXPECT_THAT(enrollment_->ListJoinTokens(), IsEmpty());
  const std::string used = Token("n1")->token();
  clock_.Advance(absl::Seconds(1));
  const std::string over = Token("", 60)->token();
  clock_.Advance(absl::Seconds(60));
  const std::string waiting = Token()->token();
  ASSERT_TRUE(Enroll(used, {"n1-cuda-0", "n1-cuda-1"}).ok());
  const auto check = [&] {
    const auto list = enrollment_->ListJoinTokens();
    ASSERT_EQ(list.size(), 3u);
    const auto name = [](const std::string& text) {
      return "joinTokens/" + tls::ParseJoinToken(text)->id;
    };
    EXPECT_EQ(list[0].name(), name(waiting));
    EXPECT_EQ(list[0].state(), v1::JOIN_TOKEN_STATE_WAITING);
    EXPECT_EQ(list[0].creator(), "alice");
    EXPECT_FALSE(list[0].has_use_time());
    EXPECT_EQ(list[1].name(), name(over));
    EXPECT_EQ(list[1].state(), v1::JOIN_TOKEN_STATE_EXPIRED);
    EXPECT_EQ(list[2].name(), name(used));
    EXPECT_EQ(list[2].state(), v1::JOIN_TOKEN_STATE_USED);
    EXPECT_EQ(list[2].worker(), "n1");
    EXPECT_EQ(list[2].peer(), "ipv4:10.0.0.7:1234");
    EXPECT_THAT(list[2].enrolled_workers(), ElementsAre("n1-cuda-0", "n1-cuda-1"));
    for (const v1::JoinToken& token : list) {
      for (const std::string& text : {used, over, waiting}) {
        EXPECT_THAT(token.SerializeAsString(), Not(HasSubstr(tls::ParseJoinToken(text)->secret)));
      }
    }
  };
  check();
  Start();
  check();
}

TEST_F(EnrollmentTest, ARevokedTokenLetsNobodyInAlsoAfterARestart) {
  const std::string token = Token()->token();
  const std::string name = "joinTokens/" + tls::ParseJoinToken(token)->id;
  ASSERT_TRUE(Revoke(name).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Enroll(token, {"a"}).status()));
  Start();
  EXPECT_THAT(std::string(Enroll(token, {"a"}).status().message()), HasSubstr("was revoked"));
  EXPECT_THAT(enrollment_->ListJoinTokens(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(Revoke(name)));
}

TEST_F(EnrollmentTest, AUsedTokenIsNotRevokedAndStaysKnown) {
  const std::string token = Token()->token();
  ASSERT_TRUE(Enroll(token, {"a"}).ok());
  const absl::Status refused = Revoke("joinTokens/" + tls::ParseJoinToken(token)->id);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("for a:"), HasSubstr("`revoked`")));
  EXPECT_THAT(std::string(Enroll(token, {"b"}).status().message()), HasSubstr("was used"));
  for (const char* name : {"", "joinTokens/", "tokens/x", "0123456789ab"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Revoke(name))) << name;
  }
}

TEST_F(EnrollmentTest, NoMessageHelpsToGuess) {
  const std::string token = Token()->token();
  tls::JoinToken guess = tls::ParseJoinToken(token).value();
  const std::string secret = guess.secret;
  guess.secret[5] = guess.secret[5] == 'A' ? 'B' : 'A';
  const absl::Status wrong_secret = Enroll(tls::JoinTokenText(guess), {"a"}).status();
  guess.id = "000000000000";
  const absl::Status wrong_id = Enroll(tls::JoinTokenText(guess), {"a"}).status();
  EXPECT_EQ(wrong_secret.message(), wrong_id.message());
  for (const char* text : {"", "x", "fsdpjoin1...", "fsdpjoin1.0.0.0"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(Enroll(text, {"a"}).status())) << text;
  }
  // A wrong guess uses nothing up.
  EXPECT_TRUE(Enroll(token, {"a"}).ok());
  EXPECT_THAT(std::string(Enroll(token, {"a"}).status().message()), Not(HasSubstr(secret)));
}

TEST_F(EnrollmentTest, ATokenForAWorkerIsForNoOther) {
  const std::string token = Token("n1")->token();
  const absl::Status other = Enroll(token, {"n1-cuda-0", "n2"}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(other));
  EXPECT_THAT(std::string(other.message()), HasSubstr("not for worker n2"));
  EXPECT_TRUE(absl::IsPermissionDenied(Enroll(token, {"n10"}).status()));
  EXPECT_TRUE(Enroll(token, {"n1", "n1-cuda-0"}).ok());
}

TEST_F(EnrollmentTest, AnEnrolledWorkerIsReplacedOnPurposeOnly) {
  ASSERT_TRUE(Enroll(Token()->token(), {"a", "b"}).ok());
  const std::string any = Token()->token();
  const absl::Status taken = Enroll(any, {"b"}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken));
  EXPECT_THAT(std::string(taken.message()), HasSubstr("join-token --worker b"));
  EXPECT_TRUE(Enroll(any, {"c"}).ok());
  EXPECT_TRUE(Enroll(Token("b")->token(), {"b"}).ok());
}

TEST_F(EnrollmentTest, OnlyWorkersGetCertificates) {
  const std::string token = Token()->token();
  for (const std::vector<std::string>& uris : {std::vector<std::string>{"fsdp://user/root"},
                                               {"fsdp://worker/a", "fsdp://user/root"},
                                               {"fsdp://worker/*"},
                                               {"fsdp://worker/"},
                                               {"fsdp://worker/a/b"},
                                               {"https://example.org"}}) {
    const absl::Status refused = EnrollUris(token, uris).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
  v1::EnrollWorkerRequest request;
  request.set_token(token);
  request.set_signing_request("no request");
  enrollment_->EnrollWorker("peer", request, [](const auto& response) {
    EXPECT_TRUE(absl::IsInvalidArgument(response.status())) << response.status();
  });
  EXPECT_TRUE(Enroll(token, {"a"}).ok());
}

TEST_F(EnrollmentTest, BadRequestsForTokensNameTheField) {
  EXPECT_THAT(std::string(Token("a/b").status().message()), HasSubstr("worker"));
  for (const std::int64_t seconds : {-1, 721 * 3600}) {
    EXPECT_THAT(std::string(Token("", seconds).status().message()), HasSubstr("want 1s to 720h"));
  }
}

TEST_F(EnrollmentTest, ARenewalKeepsIdentityAndKey) {
  ASSERT_TRUE(Enroll(Token()->token(), {"a"}).ok());
  clock_.Advance(absl::Hours(24 * 20));
  v1::RenewCertificateRequest request;
  request.set_signing_request(tls::NewSigningRequest(key_, "a", {"fsdp://worker/a"}).value());
  const auto renewed = enrollment_->RenewCertificate({"fsdp://worker/a"}, request);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  const auto chain = tls::ReadCertificates(renewed->certificate()).value();
  EXPECT_THAT(chain[0].uris, ElementsAre("fsdp://worker/a"));
  EXPECT_EQ(chain[0].not_after, clock_.WallNow() + absl::Hours(24 * 30));
  const absl::Status other = enrollment_->RenewCertificate({"fsdp://worker/b"}, request).status();
  EXPECT_TRUE(absl::IsPermissionDenied(other));
  EXPECT_THAT(std::string(other.message()), HasSubstr("not of fsdp://worker/a"));
  EXPECT_TRUE(absl::IsPermissionDenied(enrollment_->RenewCertificate({}, request).status()));
  EXPECT_TRUE(
      absl::IsPermissionDenied(enrollment_->RenewCertificate({"fsdp://user/a"}, request).status()));
}

TEST_F(EnrollmentTest, NothingOutlivesTheAuthority) {
  clock_.Advance(absl::Hours(24 * 360));
  const auto response = Enroll(Token()->token(), {"a"});
  ASSERT_TRUE(response.ok()) << response.status();
  const auto chain = tls::ReadCertificates(response->certificate()).value();
  EXPECT_EQ(chain[0].not_after, chain[1].not_after);
}

}  // namespace
}  // namespace fsdp::coordinator
