#ifndef FSDPCTL_TESTS_UNIT_PROTO_TLS_TEST_PKI_H_
#define FSDPCTL_TESTS_UNIT_PROTO_TLS_TEST_PKI_H_

// Authorities and certificates for tests.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/support/tls/authority.h"

namespace fsdp {

inline std::unique_ptr<tls::Authority> NewAuthority(const std::string& name, absl::Time now) {
  const auto pair = tls::Authority::New(name, now - absl::Hours(1), now + absl::Hours(24 * 3650));
  EXPECT_TRUE(pair.ok()) << pair.status();
  auto authority = tls::Authority::Create(*pair);
  EXPECT_TRUE(authority.ok()) << authority.status();
  return *std::move(authority);
}

// A key and its certificate, with the authority's after it.
inline tls::KeyPair Issue(const tls::Authority& authority, const tls::CertificateRequest& request) {
  tls::KeyPair pair;
  pair.key = tls::NewKey().value();
  const auto certificate = authority.Issue(request, pair.key);
  EXPECT_TRUE(certificate.ok()) << certificate.status();
  pair.certificate = *certificate + authority.certificate_pem();
  return pair;
}

inline tls::KeyPair IssueServer(const tls::Authority& authority, absl::Time now,
                                absl::Duration validity = absl::Hours(24)) {
  return Issue(authority, {.common_name = "coordinator",
                           .dns_names = {"localhost"},
                           .ip_addresses = {"127.0.0.1"},
                           .usage = tls::Usage::kServer,
                           .not_before = now - absl::Hours(48),
                           .not_after = now + validity});
}

inline tls::KeyPair IssueUser(const tls::Authority& authority, const std::string& name,
                              absl::Time now) {
  return Issue(authority, {.common_name = name,
                           .uris = {"fsdp://user/" + name},
                           .not_before = now - absl::Hours(1),
                           .not_after = now + absl::Hours(24)});
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_PROTO_TLS_TEST_PKI_H_
