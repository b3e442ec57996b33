#include "proto/support/tls/tls_files.h"

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/proto/tls/test_pki.h"

namespace fsdp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() : authority_(NewAuthority("a", kNow)) {
    const tls::KeyPair pair = IssueServer(*authority_, kNow);
    files_ = {.certificate = Secret("server.crt", pair.certificate),
              .key = Secret("server.key", pair.key),
              .ca = Secret("ca.crt", authority_->certificate_pem())};
  }
  std::string Secret(const std::string& name, const std::string& text) {
    std::string path = folder_.Write(name, text);
    chmod(path.c_str(), 0600);
    return path;
  }
  [[nodiscard]] absl::Status Load(absl::Time now = kNow) const {
    return LoadTlsMaterial(files_, {}, now).status();
  }

  const TemporaryFolder folder_;
  const std::unique_ptr<tls::Authority> authority_;
  TlsFiles files_;
};

TEST_F(TlsFilesTest, WhatFitsIsRead) {
  const auto material = LoadTlsMaterial(files_, {}, kNow);
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_EQ(material->chain.front().common_name, "coordinator");
  EXPECT_EQ(material->authorities.size(), 1);
  EXPECT_EQ(CertificateExpiry(*material), kNow + absl::Hours(24));
}

TEST_F(TlsFilesTest, TheMessageNamesFlagFileAndRemedy) {
  const std::string certificate = files_.certificate;
  files_.certificate = folder_.Path("none.crt");
  EXPECT_TRUE(absl::IsNotFound(Load()));
  EXPECT_THAT(Load().message(), AllOf(HasSubstr("--tls-certificate"), HasSubstr("none.crt")));
  files_.certificate = Secret("empty.crt", "");
  EXPECT_THAT(Load().message(), AllOf(HasSubstr("empty.crt"), HasSubstr("no PEM certificate")));
  std::string half = folder_.Read("server.crt");
  files_.certificate = Secret("half.crt", half.substr(0, 300));
  EXPECT_THAT(Load().message(), AllOf(HasSubstr("half.crt"), HasSubstr("damaged")));
  files_.certificate = certificate;
  files_.key = Secret("other.key", tls::NewKey().value());
  EXPECT_TRUE(absl::IsFailedPrecondition(Load()));
  EXPECT_THAT(Load().message(), AllOf(HasSubstr("other.key"), HasSubstr("is not the key of")));
  files_.key = Secret("no.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n");
  EXPECT_THAT(Load().message(), AllOf(HasSubstr("no.key"), HasSubstr("without a passphrase")));
}

TEST_F(TlsFilesTest, ACertificateOutOfItsTimeIsRefused) {
  EXPECT_THAT(Load(kNow + absl::Hours(24)).message(), HasSubstr("fsdpctl ca renew"));
  EXPECT_TRUE(Load(kNow + absl::Hours(24) - absl::Seconds(1)).ok());
  EXPECT_THAT(Load(kNow - absl::Hours(49)).message(), HasSubstr("set this machine's clock"));
}

TEST_F(TlsFilesTest, AKeyThatEverybodyReadsIsRefused) {
  chmod(files_.key.c_str(), 0644);
  EXPECT_THAT(Load().message(), HasSubstr("chmod o-rwx"));
  chmod(files_.key.c_str(), 0640);
  EXPECT_TRUE(Load().ok()) << Load();
}

TEST_F(TlsFilesTest, FilesThatNeedEachOtherAreNamedTogether) {
  const TlsFileNames names;
  EXPECT_TRUE(CheckServerFiles({}, names).ok());
  EXPECT_TRUE(CheckServerFiles(files_, names).ok());
  EXPECT_THAT(CheckServerFiles({.certificate = "c"}, names).message(), HasSubstr("add --tls-key"));
  EXPECT_THAT(CheckServerFiles({.key = "k"}, names).message(), HasSubstr("add --tls-certificate"));
  EXPECT_THAT(CheckServerFiles({.ca = "a"}, names).message(), HasSubstr("add --tls-certificate"));
  EXPECT_TRUE(CheckClientFiles({.ca = "a"}, names).ok());
  EXPECT_THAT(CheckClientFiles({.certificate = "c", .key = "k"}, names).message(),
              HasSubstr("add --tls-ca"));
}

}  // namespace
}  // namespace fsdp
