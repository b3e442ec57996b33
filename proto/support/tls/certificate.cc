#include "proto/support/tls/certificate.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "proto/support/tls/openssl.h"

namespace fsdp::tls {
namespace {

std::string NameText(const X509_NAME* name) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(memory.get(), name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return size <= 0 ? "" : std::string(data, static_cast<std::size_t>(size));
}

std::string Utf8(const ASN1_STRING* text) {
  unsigned char* bytes = nullptr;
  const int size = ASN1_STRING_to_UTF8(&bytes, text);
  if (size < 0) return "";
  std::string result(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return result;
}

std::string CommonName(const X509_NAME* name) {
  const int index = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  return index < 0 ? "" : Utf8(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, index)));
}

std::string Address(const ASN1_OCTET_STRING* bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(bytes) != 16) return "?";
  inet_ntop(family, ASN1_STRING_get0_data(bytes), text.data(), text.size());
  return text.data();
}

std::string SerialHex(const X509* certificate) {
  BIGNUM* const number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr);
  char* const hex = BN_bn2hex(number);
  std::string text = absl::AsciiStrToLower(hex);
  OPENSSL_free(hex);
  BN_free(number);
  return text;
}

void ReadNames(const X509* x509, Certificate* certificate) {
  const NamesPtr names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(x509, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    switch (name->type) {
      case GEN_DNS:
        certificate->dns_names.push_back(Utf8(name->d.dNSName));
        break;
      case GEN_URI:
        certificate->uris.push_back(Utf8(name->d.uniformResourceIdentifier));
        break;
      case GEN_IPADD:
        certificate->ip_addresses.push_back(Address(name->d.iPAddress));
        break;
      default:
        break;
    }
  }
}

Certificate Describe(X509* x509) {
  Certificate certificate;
  certificate.subject = NameText(X509_get_subject_name(x509));
  certificate.issuer = NameText(X509_get_issuer_name(x509));
  certificate.common_name = CommonName(X509_get_subject_name(x509));
  certificate.not_before = FromAsn1Time(X509_get0_notBefore(x509));
  certificate.not_after = FromAsn1Time(X509_get0_notAfter(x509));
  certificate.serial = SerialHex(x509);
  certificate.fingerprint = Fingerprint(x509);
  certificate.is_authority = X509_check_ca(x509) == 1;
  ReadNames(x509, &certificate);
  return certificate;
}

}  // namespace

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& pem) {
  ASSIGN_OR_RETURN(const std::vector<X509Ptr> parsed, ParseCertificates(pem));
  std::vector<Certificate> certificates;
  certificates.reserve(parsed.size());
  for (const X509Ptr& one : parsed) certificates.push_back(Describe(one.get()));
  return certificates;
}

absl::Status CheckKeyMatches(const std::string& certificate_pem, const std::string& key_pem) {
  ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain, ParseCertificates(certificate_pem));
  ASSIGN_OR_RETURN(const KeyPtr key, ParseKey(key_pem));
  const bool matches = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (matches) return absl::OkStatus();
  return absl::FailedPreconditionError("the private key is not that of the certificate");
}

std::string IdentityOf(const Certificate& certificate) {
  const auto uri = std::find_if(certificate.uris.begin(), certificate.uris.end(),
                                [](const std::string& one) { return one.starts_with("fsdp://"); });
  return uri == certificate.uris.end() ? certificate.common_name : *uri;
}

bool UriNamesWorker(std::string_view uri, std::string_view id) {
  if (!uri.starts_with(kWorkerUri)) return false;
  uri.remove_prefix(kWorkerUri.size());
  if (uri.ends_with('*')) return id.starts_with(uri.substr(0, uri.size() - 1));
  return uri == id;
}

bool IsIdentityName(std::string_view name) {
  if (name.empty() || name.size() > 63 || !absl::ascii_isalnum(name.front())) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace fsdp::tls
