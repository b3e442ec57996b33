#include "proto/support/tls/tls_reloader.h"

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "proto/support/log.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/proto/tls/test_pki.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

class TlsReloaderTest : public ::testing::Test {
 protected:
  TlsReloaderTest() : authority_(NewAuthority("a", clock_.WallNow())) {
    SetLogLevel(LogLevel::kError);
    Put(IssueServer(*authority_, clock_.WallNow()));
    reloader_ = TlsReloader::Create(
                    "server",
                    {.certificate = folder_.Path("server.crt"), .key = folder_.Path("server.key")},
                    {}, clock_)
                    .value();
  }
  void Put(const tls::KeyPair& pair) {
    folder_.Write("server.crt", pair.certificate);
    folder_.Write("server.key", pair.key);
    chmod(folder_.Path("server.key").c_str(), 0600);
  }
  std::string Serial() { return reloader_->current()->chain.front().serial; }

  FakeClock clock_;
  const TemporaryFolder folder_;
  const std::unique_ptr<tls::Authority> authority_;
  std::unique_ptr<TlsReloader> reloader_;
};

TEST_F(TlsReloaderTest, FilesThatStayAreNoChange) {
  const auto before = reloader_->current();
  EXPECT_FALSE(reloader_->Reload());
  EXPECT_EQ(reloader_->current(), before);
}

TEST_F(TlsReloaderTest, AReplacedPairIsServed) {
  const std::string before = Serial();
  Put(IssueServer(*authority_, clock_.WallNow()));
  EXPECT_TRUE(reloader_->Reload());
  EXPECT_NE(Serial(), before);
  EXPECT_TRUE(reloader_->problem().ok());
}

TEST_F(TlsReloaderTest, APairThatDoesNotFitLeavesTheOldOne) {
  const std::string before = Serial();
  const tls::KeyPair next = IssueServer(*authority_, clock_.WallNow());
  folder_.Write("server.crt", next.certificate);
  EXPECT_FALSE(reloader_->Reload());
  EXPECT_EQ(Serial(), before);
  EXPECT_THAT(std::string(reloader_->problem().message()), HasSubstr("is not the key of"));
  folder_.Write("server.key", next.key);
  EXPECT_TRUE(reloader_->Reload());
  EXPECT_NE(Serial(), before);
  EXPECT_TRUE(reloader_->problem().ok());
}

TEST_F(TlsReloaderTest, AHalfWrittenOrMissingFileLeavesTheOldOne) {
  const std::string before = Serial();
  const std::string whole = folder_.Read("server.crt");
  folder_.Write("server.crt", whole.substr(0, whole.size() / 3));
  EXPECT_FALSE(reloader_->Reload());
  EXPECT_FALSE(reloader_->problem().ok());
  std::filesystem::remove(folder_.Path("server.crt"));
  EXPECT_FALSE(reloader_->Reload());
  EXPECT_TRUE(absl::IsNotFound(reloader_->problem()));
  EXPECT_EQ(Serial(), before);
  // Back as it was: no change, no problem.
  folder_.Write("server.crt", whole);
  EXPECT_FALSE(reloader_->Reload());
  EXPECT_TRUE(reloader_->problem().ok());
}

TEST_F(TlsReloaderTest, ACertificateThatIsOverIsAProblem) {
  Put(IssueServer(*authority_, clock_.WallNow(), -absl::Hours(1)));
  EXPECT_FALSE(reloader_->Reload());
  EXPECT_THAT(std::string(reloader_->problem().message()), HasSubstr("ended"));
  // The one in use ends as well, and nothing better came.
  clock_.Advance(absl::Hours(25));
  EXPECT_FALSE(reloader_->Reload());
  EXPECT_FALSE(reloader_->problem().ok());
}

}  // namespace
}  // namespace fsdp
