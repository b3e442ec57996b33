// Limits, the audit log, and the access file as it changes on disk.

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/errors/api_error.h"
#include "coordinator/security/access_control.h"
#include "coordinator/security/audit_log.h"
#include "coordinator/security/call_limiter.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "proto/support/access_token.h"
#include "proto/support/log.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temporary_folder.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

// --- Limits

TEST(TokenBucketTest, FillsUpAtItsRateToItsBurst) {
  const MonotonicTime start = MonotonicTime::FromSinceStart(absl::Seconds(100));
  TokenBucket bucket(3, start);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(2, 3, start), std::nullopt) << i;
  EXPECT_EQ(bucket.Take(2, 3, start), absl::Milliseconds(500));
  EXPECT_EQ(bucket.Take(2, 3, start + absl::Milliseconds(500)), std::nullopt);
  EXPECT_NE(bucket.Take(2, 3, start + absl::Milliseconds(500)), std::nullopt);
  EXPECT_TRUE(bucket.Full(2, 3, start + absl::Seconds(60)));
  // Time does not run backwards for it.
  EXPECT_NE(bucket.Take(2, 3, start), std::nullopt);
}

TEST(CallLimiterTest, SaysWhenToTryAgain) {
  FakeClock clock;
  CallLimiter limiter({.requests_per_second = 10, .burst = 2}, clock);
  EXPECT_TRUE(limiter.Request("alice").ok());
  EXPECT_TRUE(limiter.Request("alice").ok());
  const absl::Status status = limiter.Request("alice");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(ReasonOf(status), "RATE_LIMITED");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(retry.ParseFromString(std::string(*status.GetPayload(kRetryInfoUrl))));
  EXPECT_EQ(retry.retry_delay().seconds(), 0);
  EXPECT_EQ(retry.retry_delay().nanos(), 100'000'000);
  // Others are not held up by it, and neither is it for long.
  EXPECT_TRUE(limiter.Request("bob").ok());
  clock.Advance(absl::Milliseconds(100));
  EXPECT_TRUE(limiter.Request("alice").ok());
}

TEST(CallLimiterTest, ForgetsWhoIsIdle) {
  FakeClock clock;
  CallLimiter limiter({.requests_per_second = 10, .burst = 10}, clock);
  for (int i = 0; i < 20'000; ++i) {
    EXPECT_TRUE(limiter.Request(std::to_string(i)).ok());
    clock.Advance(absl::Milliseconds(1));
  }
  EXPECT_LE(limiter.num_callers(), 4096u);
}

TEST(CallLimiterTest, CountsOpenStreams) {
  FakeClock clock;
  CallLimiter limiter({.streams = 2}, clock);
  EXPECT_TRUE(limiter.OpenStream("alice").ok());
  EXPECT_TRUE(limiter.OpenStream("alice").ok());
  EXPECT_EQ(ReasonOf(limiter.OpenStream("alice")), "STREAM_LIMIT");
  EXPECT_TRUE(limiter.OpenStream("bob").ok());
  limiter.CloseStream("alice");
  EXPECT_TRUE(limiter.OpenStream("alice").ok());
}

TEST(CallLimiterTest, RefusesLargeSpecs) {
  FakeClock clock;
  const CallLimiter limiter({.spec_bytes = 1000}, clock);
  EXPECT_TRUE(limiter.CheckSpecBytes(1000).ok());
  EXPECT_EQ(ReasonOf(limiter.CheckSpecBytes(1001)), "SPEC_TOO_LARGE");
}

// --- Audit

AuditLine Line(const std::string& id) {
  return {.time = absl::FromUnixSeconds(1'700'000'000),
          .id = id,
          .request_id = "r-1",
          .subject = "alice",
          .method = "JobService.CancelJob",
          .resource = "jobs/x-1",
          .peer = "ipv4:10.0.0.7:40312",
          .code = "OK",
          .reason = "",
          .latency = absl::Milliseconds(12)};
}

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class AuditLogTest : public ::testing::Test {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kError); }
  const TemporaryFolder folder_;
  const std::string path_ = folder_.Path("audit.jsonl");
  Counters counters_;
};

TEST_F(AuditLogTest, ALineSaysWhoWhatWhenFromWhereAndHowItEnded) {
  {
    auto log = AuditLog::Open(path_, counters_);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE((*log)->Reserve().ok());
    (*log)->Write(Line("a"), /*reserved=*/true);
    (*log)->Write(Line("b"), /*reserved=*/false);
  }
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["time"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(lines[0]["id"], "a");
  EXPECT_EQ(lines[0]["request_id"], "r-1");
  EXPECT_EQ(lines[0]["subject"], "alice");
  EXPECT_EQ(lines[0]["method"], "JobService.CancelJob");
  EXPECT_EQ(lines[0]["resource"], "jobs/x-1");
  EXPECT_EQ(lines[0]["peer"], "ipv4:10.0.0.7:40312");
  EXPECT_EQ(lines[0]["code"], "OK");
  EXPECT_EQ(lines[0]["latency_seconds"], 0.012);
  // The room that was set aside is given back, and others may not read.
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 16 << 10);
  EXPECT_EQ(info.st_mode & 0007, 0u);
}

TEST_F(AuditLogTest, ACallWithoutALineGivesItsRoomBack) {
  auto log = AuditLog::Open(path_, counters_);
  ASSERT_TRUE(log.ok()) << log.status();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE((*log)->Reserve().ok());
    (*log)->Release();
  }
  // Room for one call and what is asked for ahead, not for a hundred.
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 20 * kMaxAuditLineBytes);
  EXPECT_EQ(info.st_size, 0);
}

TEST_F(AuditLogTest, GoesOnBehindWhatIsThere) {
  for (const char* id : {"a", "b"}) {
    auto log = AuditLog::Open(path_, counters_);
    ASSERT_TRUE(log.ok());
    (*log)->Write(Line(id), /*reserved=*/false);
  }
  EXPECT_EQ(Lines(path_).size(), 2u);
}

TEST_F(AuditLogTest, NothingACallerSendsMakesASecondLineOrALongOne) {
  auto log = AuditLog::Open(path_, counters_);
  ASSERT_TRUE(log.ok());
  AuditLine line = Line("a");
  line.subject = std::string(5000, '\n');
  line.resource = "jobs/\"}\n{\"subject\":\"admin\"";
  line.request_id = "\xff\xfe\x01";
  line.peer = std::string(5000, '"');
  line.reason = std::string(5000, '\x01');
  EXPECT_LT(RenderAuditLine(line).size(), static_cast<std::size_t>(kMaxAuditLineBytes));
  (*log)->Write(line, /*reserved=*/false);
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["resource"], line.resource);
}

TEST_F(AuditLogTest, AFileThatWasMovedAwayIsFollowedByANewOne) {
  auto log = AuditLog::Open(path_, counters_);
  ASSERT_TRUE(log.ok());
  (*log)->Write(Line("a"), /*reserved=*/false);
  std::filesystem::rename(path_, path_ + ".1");
  (*log)->Write(Line("b"), /*reserved=*/false);
  (*log)->ReopenIfMoved();
  (*log)->Write(Line("c"), /*reserved=*/false);
  (*log)->ReopenIfMoved();
  (*log)->Write(Line("d"), /*reserved=*/false);
  EXPECT_EQ(Lines(path_ + ".1").size(), 2u);
  EXPECT_EQ(Lines(path_).size(), 2u);
  (*log)->Reopen();
  (*log)->Write(Line("e"), /*reserved=*/false);
  EXPECT_EQ(Lines(path_).size(), 3u);
}

// /dev/full takes no byte and cannot set room aside.
TEST_F(AuditLogTest, OnAFullDiskNothingIsLetInAndTheLineIsKept) {
  std::filesystem::create_symlink("/dev/full", path_);
  auto log = AuditLog::Open(path_, counters_);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE((*log)->Reserve().ok());
  (*log)->Write(Line("a"), /*reserved=*/true);
  EXPECT_EQ(counters_.Value("fsdp_audit_errors_total"), 1);
  const absl::Status refused = (*log)->Reserve();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_EQ(ReasonOf(refused), "AUDIT_FAILED");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("No space left on device"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("make room on that disk"));
  // Room again, as after a rotation to another disk: the kept line comes first.
  std::filesystem::remove(path_);
  (*log)->ReopenIfMoved();
  ASSERT_TRUE((*log)->Reserve().ok());
  (*log)->Write(Line("b"), /*reserved=*/true);
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["id"], "a");
  EXPECT_EQ(lines[1]["id"], "b");
}

TEST_F(AuditLogTest, APathThatCannotBeIsAnError) {
  const auto log = AuditLog::Open(folder_.Path("none/audit.jsonl"), counters_);
  EXPECT_TRUE(absl::IsNotFound(log.status())) << log.status();
}

// --- The access file on disk

class AccessControlTest : public AuditLogTest {
 protected:
  void WriteFile(const std::string& text) const { std::ofstream(file_) << text; }
  static std::string Entry(const std::string& name, const std::string& token) {
    return "identities:\n" + RenderAccessEntry({.name = name,
                                                .token_sha256 = TokenHash(token),
                                                .certificate = "",
                                                .grants = {{.role = Role::kViewer, .queues = {}}}});
  }
  absl::StatusOr<Identity> Identify(const AccessControl& access, const std::string& token) const {
    return access.Identify({.authorization = "Bearer " + token, .certificate = ""});
  }

  const std::string file_ = folder_.Path("access.yaml");
  const std::string token_ = NewToken();
  FakeClock clock_;
};

TEST_F(AccessControlTest, AChangedFileCountsAndABrokenOneDoesNot) {
  WriteFile(Entry("alice", token_));
  auto access = AccessControl::Open(file_, clock_, counters_);
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_TRUE(Identify(**access, token_).ok());

  WriteFile("identities: [broken\n");
  (*access)->Refresh(/*always=*/false);
  EXPECT_TRUE(Identify(**access, token_).ok());
  EXPECT_EQ(counters_.Value("fsdp_access_reload_errors_total"), 1);
  // Told once, not at every look.
  (*access)->Refresh(/*always=*/false);
  EXPECT_EQ(counters_.Value("fsdp_access_reload_errors_total"), 1);

  const std::string other = NewToken();
  WriteFile(Entry("robert", other));
  (*access)->Refresh(/*always=*/false);
  EXPECT_EQ(ReasonOf(Identify(**access, token_).status()), "TOKEN_UNKNOWN");
  EXPECT_EQ(Identify(**access, other)->subject, "robert");

  std::filesystem::remove(file_);
  (*access)->Refresh(/*always=*/false);
  EXPECT_TRUE(Identify(**access, other).ok());
  EXPECT_EQ(counters_.Value("fsdp_access_reload_errors_total"), 2);
}

TEST_F(AccessControlTest, AMissingOrBrokenFileIsNoStart) {
  EXPECT_TRUE(absl::IsNotFound(AccessControl::Open(file_, clock_, counters_).status()));
  WriteFile("nothing: here\n");
  EXPECT_TRUE(absl::IsInvalidArgument(AccessControl::Open(file_, clock_, counters_).status()));
}

TEST_F(AccessControlTest, WithoutAFileNobodyIsAsked) {
  const auto access = AccessControl::Open("", clock_, counters_);
  ASSERT_TRUE(access.ok());
  EXPECT_TRUE((*access)->unrestricted());
  EXPECT_EQ(Identify(**access, token_)->subject, "anonymous");
}

}  // namespace
}  // namespace fsdp::coordinator
