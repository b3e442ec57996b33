#include "proto/support/tls/authority.h"

#include <arpa/inet.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "proto/support/tls/openssl.h"

namespace fsdp::tls {
namespace {

absl::StatusOr<KeyPtr> GenerateKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslToStatus("EVP_EC_gen");
  return key;
}

// The value ends up in OpenSSL's configuration syntax, where ',' and newlines would mean more
// names.
absl::Status CheckText(const char* what, const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > 0x20 && c < 0x7f && c != ',' && c != ';' && c != '"' && c != '\\' && c != '#';
  });
  if (!text.empty() && text.size() <= 255 && plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " \"", text,
                   "\" cannot go into a certificate: want 1-255 printable characters without "
                   "spaces, commas, quotes or backslashes"));
}

absl::StatusOr<std::string> AlternativeNames(const CertificateRequest& request) {
  std::vector<std::string> entries;
  for (const std::string& name : request.dns_names) {
    RETURN_IF_ERROR(CheckText("DNS name", name));
    entries.push_back(absl::StrCat("DNS:", name));
  }
  for (const std::string& address : request.ip_addresses) {
    std::array<unsigned char, 16> bytes{};
    if (inet_pton(AF_INET, address.c_str(), bytes.data()) != 1 &&
        inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("IP address \"", address, "\": want one such as 10.0.0.1 or fd00::1"));
    }
    entries.push_back(absl::StrCat("IP:", address));
  }
  for (const std::string& uri : request.uris) {
    RETURN_IF_ERROR(CheckText("URI", uri));
    entries.push_back(absl::StrCat("URI:", uri));
  }
  return absl::StrJoin(entries, ",");
}

absl::Status SetName(X509_NAME* name, const std::string& common_name) {
  if (common_name.empty() || common_name.size() > 64) {
    return absl::InvalidArgumentError(absl::StrCat(
        "common name \"", common_name, "\": want 1-64 characters, it has ", common_name.size()));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(common_name.data());
  if (X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, bytes,
                                 static_cast<int>(common_name.size()), -1, 0) != 1) {
    return OpensslToStatus("X509_NAME_add_entry_by_NID");
  }
  return absl::OkStatus();
}

absl::Status AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (extension == nullptr) return OpensslToStatus(absl::StrCat("X509V3_EXT_conf_nid ", value));
  const int added = X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  return added == 1 ? absl::OkStatus() : OpensslToStatus("X509_add_ext");
}

absl::StatusOr<X509Ptr> NewCertificate(absl::Time not_before, absl::Time not_after) {
  if (not_after <= not_before) {
    return absl::InvalidArgumentError("the certificate would end before it begins");
  }
  X509Ptr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  // Random, positive, of 16 bytes: no list of numbers to keep.
  std::array<unsigned char, 16> serial{};
  if (RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) {
    return OpensslToStatus("RAND_bytes");
  }
  serial[0] = static_cast<unsigned char>((serial[0] & 0x3f) | 0x40);
  BIGNUM* const number = BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get()));
  BN_free(number);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(not_before));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(not_after));
  return certificate;
}

std::string ExtendedUsage(Usage usage) {
  switch (usage) {
    case Usage::kServer:
      return "serverAuth";
    case Usage::kClient:
      return "clientAuth";
    case Usage::kServerAndClient:
      break;
  }
  return "serverAuth,clientAuth";
}

absl::StatusOr<KeyPtr> PublicKey(const std::string& pem) {
  if (pem.find("CERTIFICATE REQUEST-----") != std::string::npos) {
    ASSIGN_OR_RETURN(const RequestPtr request, ParseRequest(pem));
    return KeyPtr(X509_REQ_get_pubkey(request.get()));
  }
  if (pem.find("-----BEGIN CERTIFICATE-----") != std::string::npos) {
    ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain, ParseCertificates(pem));
    return KeyPtr(X509_get_pubkey(chain.front().get()));
  }
  return ParseKey(pem);
}

class AuthorityImpl : public Authority {
 public:
  AuthorityImpl(X509Ptr x509, KeyPtr key, Certificate certificate, std::string pem)
      : x509_(std::move(x509)),
        key_(std::move(key)),
        certificate_(std::move(certificate)),
        pem_(std::move(pem)) {}

  absl::StatusOr<std::string> Issue(const CertificateRequest& request,
                                    const std::string& public_key_pem) const override {
    if (request.not_after > certificate_.not_after) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the certificate would outlive its authority, which ends ",
          absl::FormatTime(absl::RFC3339_sec, certificate_.not_after, absl::UTCTimeZone()),
          ": ask for a shorter validity, or make a new authority"));
    }
    ASSIGN_OR_RETURN(const std::string names, AlternativeNames(request));
    ASSIGN_OR_RETURN(const KeyPtr key, PublicKey(public_key_pem));
    ASSIGN_OR_RETURN(const X509Ptr x509, NewCertificate(request.not_before, request.not_after));
    RETURN_IF_ERROR(SetName(X509_get_subject_name(x509.get()), request.common_name));
    X509_set_issuer_name(x509.get(), X509_get_subject_name(x509_.get()));
    X509_set_pubkey(x509.get(), key.get());
    std::vector<std::pair<int, std::string>> extensions = {
        {NID_basic_constraints, "critical,CA:FALSE"},
        {NID_key_usage, "critical,digitalSignature"},
        {NID_ext_key_usage, ExtendedUsage(request.usage)},
        {NID_subject_key_identifier, "hash"},
        {NID_authority_key_identifier, "keyid:always"}};
    if (!names.empty()) extensions.emplace_back(NID_subject_alt_name, names);
    for (const auto& [nid, value] : extensions) {
      RETURN_IF_ERROR(AddExtension(x509.get(), x509_.get(), nid, value));
    }
    if (X509_sign(x509.get(), key_.get(), EVP_sha256()) == 0) return OpensslToStatus("X509_sign");
    return CertificatePem(x509.get());
  }

  const Certificate& certificate() const override { return certificate_; }
  const std::string& certificate_pem() const override { return pem_; }

 private:
  const X509Ptr x509_;
  const KeyPtr key_;
  const Certificate certificate_;
  const std::string pem_;
};

void ReadRequestNames(X509_REQ* request, CertificateRequest* result) {
  STACK_OF(X509_EXTENSION)* extensions = X509_REQ_get_extensions(request);
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509V3_get_d2i(extensions, NID_subject_alt_name, nullptr, nullptr)));
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    result->uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                              static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
}

}  // namespace

absl::StatusOr<std::string> NewKey() {
  ASSIGN_OR_RETURN(const KeyPtr key, GenerateKey());
  return KeyPem(key.get());
}

absl::StatusOr<std::string> NewSigningRequest(const std::string& key_pem,
                                              const std::string& common_name,
                                              const std::vector<std::string>& uris) {
  ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(key_pem));
  ASSIGN_OR_RETURN(const std::string names, AlternativeNames({.uris = uris}));
  const RequestPtr request(X509_REQ_new());
  RETURN_IF_ERROR(SetName(X509_REQ_get_subject_name(request.get()), common_name));
  X509_REQ_set_pubkey(request.get(), key.get());
  STACK_OF(X509_EXTENSION)* extensions = sk_X509_EXTENSION_new_null();
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
  if (extension != nullptr) sk_X509_EXTENSION_push(extensions, extension);
  X509_REQ_add_extensions(request.get(), extensions);
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  if (extension == nullptr) return OpensslToStatus(absl::StrCat("X509V3_EXT_conf_nid ", names));
  if (X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0) {
    return OpensslToStatus("X509_REQ_sign");
  }
  return RequestPem(request.get());
}

absl::StatusOr<CertificateRequest> ReadSigningRequest(const std::string& request_pem) {
  ASSIGN_OR_RETURN(const RequestPtr request, ParseRequest(request_pem));
  CertificateRequest result;
  const X509_NAME* subject = X509_REQ_get_subject_name(request.get());
  const int index = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (index >= 0) {
    const ASN1_STRING* name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, index));
    result.common_name.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name)),
                              static_cast<std::size_t>(ASN1_STRING_length(name)));
  }
  ReadRequestNames(request.get(), &result);
  return result;
}

absl::StatusOr<KeyPair> Authority::New(const std::string& common_name, absl::Time not_before,
                                       absl::Time not_after) {
  ASSIGN_OR_RETURN(const KeyPtr key, GenerateKey());
  ASSIGN_OR_RETURN(const X509Ptr x509, NewCertificate(not_before, not_after));
  RETURN_IF_ERROR(SetName(X509_get_subject_name(x509.get()), common_name));
  X509_set_issuer_name(x509.get(), X509_get_subject_name(x509.get()));
  X509_set_pubkey(x509.get(), key.get());
  const std::pair<int, std::string> extensions[] = {
      {NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
      {NID_key_usage, "critical,keyCertSign,cRLSign"},
      {NID_subject_key_identifier, "hash"}};
  for (const auto& [nid, value] : extensions) {
    RETURN_IF_ERROR(AddExtension(x509.get(), x509.get(), nid, value));
  }
  if (X509_sign(x509.get(), key.get(), EVP_sha256()) == 0) return OpensslToStatus("X509_sign");
  return KeyPair{CertificatePem(x509.get()), KeyPem(key.get())};
}

absl::StatusOr<std::unique_ptr<Authority>> Authority::Create(const KeyPair& pair) {
  ASSIGN_OR_RETURN(std::vector<X509Ptr> chain, ParseCertificates(pair.certificate));
  ASSIGN_OR_RETURN(KeyPtr key, ParseKey(pair.key));
  RETURN_IF_ERROR(CheckKeyMatches(pair.certificate, pair.key));
  ASSIGN_OR_RETURN(const std::vector<Certificate> facts, ReadCertificates(pair.certificate));
  if (!facts.front().is_authority) {
    return absl::FailedPreconditionError(absl::StrCat(
        facts.front().subject, " is no authority: its certificate may not sign others"));
  }
  std::string pem = CertificatePem(chain.front().get());
  return std::make_unique<AuthorityImpl>(std::move(chain.front()), std::move(key), facts.front(),
                                         std::move(pem));
}

}  // namespace fsdp::tls
