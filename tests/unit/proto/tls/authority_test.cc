#include "proto/support/tls/authority.h"

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "proto/support/tls/authority_folder.h"
#include "proto/support/tls/certificate.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/proto/tls/test_pki.h"

namespace fsdp::tls {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TEST(AuthorityTest, ACertificateSaysWhatWasAskedFor) {
  const auto authority = NewAuthority("cluster-a", kNow);
  const KeyPair pair = Issue(*authority, {.common_name = "coordinator",
                                          .dns_names = {"a.example", "*.b.example"},
                                          .ip_addresses = {"10.0.0.1", "fd00::1"},
                                          .uris = {"fsdp://worker/node1-cuda-0"},
                                          .usage = Usage::kServerAndClient,
                                          .not_before = kNow,
                                          .not_after = kNow + absl::Hours(1)});
  const auto chain = ReadCertificates(pair.certificate).value();
  ASSERT_EQ(chain.size(), 2);
  const Certificate& leaf = chain[0];
  EXPECT_EQ(leaf.common_name, "coordinator");
  EXPECT_EQ(leaf.issuer, "CN = cluster-a");
  EXPECT_THAT(leaf.dns_names, ElementsAre("a.example", "*.b.example"));
  EXPECT_THAT(leaf.ip_addresses, ElementsAre("10.0.0.1", "fd00::1"));
  EXPECT_THAT(leaf.uris, ElementsAre("fsdp://worker/node1-cuda-0"));
  EXPECT_EQ(leaf.not_before, kNow);
  EXPECT_EQ(leaf.not_after, kNow + absl::Hours(1));
  EXPECT_FALSE(leaf.is_authority);
  EXPECT_TRUE(chain[1].is_authority);
  EXPECT_EQ(chain[1].not_after, kNow + absl::Hours(24 * 3650));
  EXPECT_EQ(leaf.fingerprint.size(), 64);
  EXPECT_NE(leaf.fingerprint, chain[1].fingerprint);
  EXPECT_TRUE(CheckKeyMatches(pair.certificate, pair.key).ok());
}

TEST(AuthorityTest, TwoCertificatesNeverHaveOneSerial) {
  const auto authority = NewAuthority("a", kNow);
  const auto one = ReadCertificates(IssueUser(*authority, "u", kNow).certificate).value();
  const auto two = ReadCertificates(IssueUser(*authority, "u", kNow).certificate).value();
  EXPECT_NE(one[0].serial, two[0].serial);
}

TEST(AuthorityTest, WhatDoesNotBelongInACertificateIsRefused) {
  const auto authority = NewAuthority("a", kNow);
  const std::string key = NewKey().value();
  const auto issue = [&](CertificateRequest request) {
    request.not_before = kNow;
    if (request.not_after == absl::UnixEpoch()) request.not_after = kNow + absl::Hours(1);
    return authority->Issue(request, key).status();
  };
  const auto request = [](std::vector<std::string> dns, std::vector<std::string> ips,
                          std::vector<std::string> uris) {
    return CertificateRequest{.common_name = "x",
                              .dns_names = std::move(dns),
                              .ip_addresses = std::move(ips),
                              .uris = std::move(uris),
                              .not_after = absl::UnixEpoch()};
  };
  // A comma would smuggle in another name.
  EXPECT_THAT(issue(request({"a,URI:fsdp://user/admin"}, {}, {})).message(),
              HasSubstr("DNS name \"a,URI:fsdp://user/admin\""));
  EXPECT_THAT(issue(request({}, {"10.0.0.300"}, {})).message(), HasSubstr("\"10.0.0.300\""));
  EXPECT_THAT(issue(request({}, {}, {"fsdp://user/a\nb"})).message(), HasSubstr("URI"));
  EXPECT_THAT(issue(request({}, {}, {""})).message(), HasSubstr("URI \"\""));
  CertificateRequest unnamed = request({}, {}, {});
  unnamed.common_name = "";
  EXPECT_THAT(issue(unnamed).message(), HasSubstr("common name"));
  CertificateRequest backwards = request({}, {}, {});
  backwards.not_after = kNow - absl::Seconds(1);
  EXPECT_THAT(issue(backwards).message(), HasSubstr("end before it begins"));
  CertificateRequest too_long = request({}, {}, {});
  too_long.not_after = kNow + absl::Hours(24 * 4000);
  EXPECT_TRUE(absl::IsFailedPrecondition(issue(too_long)));
  EXPECT_THAT(issue(too_long).message(), HasSubstr("outlive its authority"));
}

TEST(AuthorityTest, ASigningRequestProvesItsKey) {
  const std::string key = NewKey().value();
  const std::string text =
      NewSigningRequest(key, "node1", {"fsdp://worker/a", "fsdp://worker/b"}).value();
  const CertificateRequest read = ReadSigningRequest(text).value();
  EXPECT_EQ(read.common_name, "node1");
  EXPECT_THAT(read.uris, ElementsAre("fsdp://worker/a", "fsdp://worker/b"));
  EXPECT_THAT(read.dns_names, IsEmpty());
  // One changed character in the middle is another content or another signature.
  std::string damaged = text;
  damaged[damaged.size() / 2] = damaged[damaged.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(ReadSigningRequest(damaged).ok());
  EXPECT_FALSE(ReadSigningRequest("nothing").ok());
  const auto authority = NewAuthority("a", kNow);
  const std::string certificate = authority
                                      ->Issue({.common_name = "node1",
                                               .uris = {"fsdp://worker/a"},
                                               .not_before = kNow,
                                               .not_after = kNow + absl::Hours(1)},
                                              text)
                                      .value();
  EXPECT_TRUE(CheckKeyMatches(certificate, key).ok());
}

TEST(AuthorityTest, OnlyAnAuthorityCanSign) {
  const auto authority = NewAuthority("a", kNow);
  const KeyPair user = IssueUser(*authority, "u", kNow);
  const absl::Status refused = Authority::Create(user).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("is no authority"));
}

TEST(AuthorityFolderTest, KeysAreTheirOwnersAndNothingIsOverwritten) {
  const TemporaryFolder folder;
  const std::string ca = folder.Path("ca");
  ASSERT_TRUE(InitAuthority(ca, "a", kNow, absl::Hours(1)).ok());
  struct stat status{};
  ASSERT_EQ(stat((ca + "/ca.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  const std::string before = folder.Read("ca/ca.key");
  EXPECT_TRUE(absl::IsAlreadyExists(InitAuthority(ca, "a", kNow, absl::Hours(1))));
  EXPECT_EQ(folder.Read("ca/ca.key"), before);
  EXPECT_EQ(OpenAuthority(ca).value()->certificate().common_name, "a");
  chmod((ca + "/ca.key").c_str(), 0644);
  EXPECT_THAT(OpenAuthority(ca).status().message(), HasSubstr("chmod 600"));
  EXPECT_THAT(OpenAuthority(folder.Path("none")).status().message(),
              HasSubstr("fsdpctl ca init --dir"));
}

TEST(CertificateTest, IdentitiesAreUris) {
  Certificate certificate{.common_name = "alice"};
  EXPECT_EQ(IdentityOf(certificate), "alice");
  certificate.uris = {"https://example.org", "fsdp://user/bob", "fsdp://user/carol"};
  EXPECT_EQ(IdentityOf(certificate), "fsdp://user/bob");
}

TEST(CertificateTest, AUriNamesOneWorkerOrThoseThatBeginSo) {
  EXPECT_TRUE(UriNamesWorker("fsdp://worker/node1", "node1"));
  EXPECT_TRUE(UriNamesWorker("fsdp://worker/node1-*", "node1-cuda-0"));
  EXPECT_TRUE(UriNamesWorker("fsdp://worker/*", "anything"));
  EXPECT_FALSE(UriNamesWorker("fsdp://worker/node1", "node1-cuda-0"));
  EXPECT_FALSE(UriNamesWorker("fsdp://worker/node1-*", "node2"));
  EXPECT_FALSE(UriNamesWorker("fsdp://user/node1", "node1"));
  EXPECT_FALSE(UriNamesWorker("node1", "node1"));
  EXPECT_FALSE(UriNamesWorker("", ""));
}

}  // namespace
}  // namespace fsdp::tls
