// Certificates that were taken back: how the access file names them, and who gets in no more.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/security/identity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/access_file.h"
#include "proto/support/access_token.h"
#include "tests/unit/proto/tls/test_pki.h"

namespace fsdp::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kNobody[] = "identities: []\n";

class RevocationTest : public ::testing::Test {
 protected:
  // What a connection shows that has the certificate of these URIs, made at now_.
  Credentials Shown(const std::vector<std::string>& uris, const std::string& common_name = "x") {
    const tls::KeyPair pair = Issue(*authority_, {.common_name = common_name,
                                                  .uris = uris,
                                                  .not_before = now_,
                                                  .not_after = now_ + absl::Hours(24)});
    Credentials credentials;
    credentials.certificate = uris.empty() ? common_name : uris.front();
    credentials.shown = std::make_shared<ShownCertificate>(pair.certificate);
    return credentials;
  }

  static AccessPolicy Policy(const std::string& revoked) {
    const auto file = ParseAccessFile(
        "identities:\n"
        "  - {name: carol, certificate: \"fsdp://user/carol\", grants: [{role: admin}]}\n"
        "  - {name: printer, certificate: printer, grants: [{role: viewer}]}\n" +
            revoked,
        "access.yaml");
    EXPECT_TRUE(file.ok()) << file.status();
    return AccessPolicy(*file);
  }

  bool Revokes(const std::string& entry, const Credentials& credentials) const {
    const auto identity = Policy("revoked:\n  - " + entry + "\n").Identify(credentials, now_);
    if (identity.ok()) return false;
    EXPECT_TRUE(absl::IsUnauthenticated(identity.status())) << identity.status();
    EXPECT_EQ(ReasonOf(identity.status()), "CERTIFICATE_REVOKED");
    return true;
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'790'000'000);
  const std::unique_ptr<tls::Authority> authority_ = NewAuthority("ca", now_);
};

TEST_F(RevocationTest, ANameTakesBackAllOfItsCertificates) {
  const Credentials host = Shown({"fsdp://worker/n7-cuda-0", "fsdp://worker/n7-cuda-1"});
  EXPECT_TRUE(Revokes("certificate: fsdp://worker/n7-cuda-1", host));
  EXPECT_TRUE(Revokes("certificate: fsdp://worker/n7-*", host));
  EXPECT_FALSE(Revokes("certificate: fsdp://worker/n7", host));
  EXPECT_FALSE(Revokes("certificate: fsdp://worker/n70-*", host));
  // One for many ids is among those that begin so.
  EXPECT_TRUE(Revokes("certificate: fsdp://worker/n7-*", Shown({"fsdp://worker/n7-*"})));
  EXPECT_TRUE(Revokes("certificate: printer", Shown({}, "printer")));
  // Beside a URI the common name names nobody.
  EXPECT_FALSE(Revokes("certificate: printer", Shown({"fsdp://user/carol"}, "printer")));
}

TEST_F(RevocationTest, OneMadeLaterIsGood) {
  const Credentials host = Shown({"fsdp://worker/n7"});
  const auto before = [](absl::Time time) {
    return absl::StrCat("{certificate: \"fsdp://worker/n7\", issuedBefore: \"",
                        absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone()), "\"}");
  };
  EXPECT_TRUE(Revokes(before(now_ + absl::Seconds(1)), host));
  EXPECT_FALSE(Revokes(before(now_), host));
}

TEST_F(RevocationTest, ANumberTakesBackOneHoweverItIsWritten) {
  const Credentials lost = Shown({"fsdp://user/carol"});
  const Credentials other = Shown({"fsdp://user/carol"});
  const tls::Certificate certificate = *lost.shown->Read();
  std::string colons;
  for (std::size_t i = 0; i < certificate.serial.size(); i += 2) {
    absl::StrAppend(&colons, i == 0 ? "" : ":",
                    absl::AsciiStrToUpper(certificate.serial.substr(i, 2)));
  }
  for (const std::string& entry :
       {"serial: \"" + certificate.serial + "\"", "serial: \"00" + certificate.serial + "\"",
        "serial: \"" + colons + "\"", "fingerprint: \"sha256:" + certificate.fingerprint + "\"",
        "fingerprint: \"" + absl::AsciiStrToUpper(certificate.fingerprint) + "\""}) {
    EXPECT_TRUE(Revokes(entry, lost)) << entry;
    EXPECT_FALSE(Revokes(entry, other)) << entry;
  }
}

TEST_F(RevocationTest, TheErrorSaysWhoseAndWhatHelps) {
  const Credentials lost = Shown({"fsdp://user/carol"});
  const absl::Status refused =
      Policy("revoked:\n  - certificate: fsdp://user/carol\n").Identify(lost, now_).status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("the certificate of fsdp://user/carol (serial " +
                              lost.shown->Read()->serial + ") was revoked"),
                    HasSubstr("an administrator makes another one")));
}

TEST_F(RevocationTest, ATokenBesideItHelpsNobody) {
  Credentials both = Shown({"fsdp://user/mallory"});
  both.authorization = "Bearer " + NewToken();
  EXPECT_TRUE(Revokes("certificate: fsdp://user/mallory", both));
}

TEST_F(RevocationTest, WhoIsInGoesOutAtTheNextMessage) {
  const Credentials worker = Shown({"fsdp://worker/n7"});
  const auto identity = Policy("").Identify(worker, now_);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_TRUE(Policy("").Recheck(*identity, now_).ok());
  const absl::Status out =
      Policy("revoked:\n  - certificate: fsdp://worker/n7\n").Recheck(*identity, now_).status();
  EXPECT_EQ(ReasonOf(out), "CERTIFICATE_REVOKED");
}

TEST_F(RevocationTest, ACertificateThatCannotBeReadIsRefused) {
  Credentials odd = Shown({"fsdp://user/carol"});
  odd.shown = std::make_shared<ShownCertificate>("nonsense");
  EXPECT_TRUE(Policy("").Identify(odd, now_).ok());
  EXPECT_EQ(ReasonOf(Policy("revoked: [{serial: \"1\"}]\n").Identify(odd, now_).status()),
            "CERTIFICATE_UNKNOWN");
}

TEST(RevokedEntriesTest, MistakesSayWhereAndWhatToDo) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"revoked: fsdp://worker/n7\n", "a.yaml:2:10: revoked: must be a list"},
      {"revoked: [{}]\n", "an entry wants certificate, serial or fingerprint, one of them"},
      {"revoked: [{serial: \"1\", certificate: x}]\n", "one of them"},
      {"revoked: [{name: x}]\n", "name: unknown key; known are certificate, serial, fingerprint"},
      {"revoked: [{certificate: \"*\"}]\n", "'*' names every certificate"},
      {"revoked: [{serial: \"12g\"}]\n", "serial: '12g': want hexadecimal digits"},
      {"revoked: [{serial: \"0\"}]\n", "want hexadecimal digits"},
      {"revoked: [{fingerprint: \"sha256:12\"}]\n", "want the SHA-256 that `fsdpctl ca show`"},
      {"revoked: [{certificate: x, issuedBefore: soon}]\n", "issuedBefore: 'soon': want a time"},
      {"revoked: [{serial: \"1\", issuedBefore: \"2027-01-01T00:00:00Z\"}]\n",
       "goes with certificate alone"},
  };
  for (const auto& [text, problem] : cases) {
    const auto file = ParseAccessFile(kNobody + text, "a.yaml");
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(problem)) << text;
  }
}

}  // namespace
}  // namespace fsdp::coordinator
