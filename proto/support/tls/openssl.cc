#include "proto/support/tls/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <array>
#include <cstdint>
#include <ctime>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::tls {
namespace {

BioPtr MemoryOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string Contents(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return size <= 0 ? "" : std::string(data, static_cast<std::size_t>(size));
}

// An encrypted key asks for a passphrase; a server has nobody to answer.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return 0; }

}  // namespace

absl::Status OpensslToStatus(std::string_view call) {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    std::array<char, 256> line{};
    ERR_error_string_n(code, line.data(), line.size());
    absl::StrAppend(&text, text.empty() ? "" : "; ", line.data());
  }
  return absl::InternalError(
      absl::StrCat(ToAbsl(call), ": ", text.empty() ? "failed without a reason" : text));
}

absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(const std::string& pem) {
  std::vector<X509Ptr> certificates;
  const BioPtr memory = MemoryOf(pem);
  while (X509* one = PEM_read_bio_X509(memory.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(one);
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) return absl::InvalidArgumentError("holds a damaged certificate");
  if (certificates.empty()) {
    return absl::InvalidArgumentError("holds no PEM certificate (-----BEGIN CERTIFICATE-----)");
  }
  return certificates;
}

absl::StatusOr<KeyPtr> ParseKey(const std::string& pem) {
  const BioPtr memory = MemoryOf(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(memory.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      pem.find("ENCRYPTED") != std::string::npos
          ? "the private key is encrypted: write it without a passphrase, readable by its user only"
          : "holds no PEM private key (-----BEGIN PRIVATE KEY-----), or a damaged one");
}

absl::StatusOr<RequestPtr> ParseRequest(const std::string& pem) {
  const BioPtr memory = MemoryOf(pem);
  RequestPtr request(PEM_read_bio_X509_REQ(memory.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (request == nullptr) {
    return absl::InvalidArgumentError("holds no PEM certificate request");
  }
  if (X509_REQ_verify(request.get(), X509_REQ_get0_pubkey(request.get())) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the request's signature is not its key's");
  }
  return request;
}

std::string CertificatePem(X509* certificate) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(memory.get(), certificate);
  return Contents(memory.get());
}

std::string KeyPem(EVP_PKEY* key) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return Contents(memory.get());
}

std::string RequestPem(X509_REQ* request) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(memory.get(), request);
  return Contents(memory.get());
}

absl::Time FromAsn1Time(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Fingerprint(X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  X509_digest(certificate, EVP_sha256(), digest.data(), &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

absl::StatusOr<StorePtr> MakeTrustStore(const std::string& ca_pem) {
  StorePtr store(X509_STORE_new());
  if (ca_pem.empty()) return store;
  ASSIGN_OR_RETURN(const std::vector<X509Ptr> authorities, ParseCertificates(ca_pem));
  for (const X509Ptr& authority : authorities) {
    if (X509_STORE_add_cert(store.get(), authority.get()) != 1) {
      return OpensslToStatus("X509_STORE_add_cert");
    }
  }
  return store;
}

}  // namespace fsdp::tls
