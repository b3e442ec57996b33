#include "proto/support/tls/tls_files.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "proto/support/tls/authority_folder.h"

namespace fsdp {
namespace {

absl::Status Missing(const std::string& given, const std::string& missing, const char* what) {
  return absl::InvalidArgumentError(
      absl::StrCat(given, " is set without ", missing, ": add ", missing, " (", what, ")"));
}

std::string When(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string Named(const std::string& name, const std::string& path) {
  return absl::StrCat(name, " ", path);
}

absl::StatusOr<std::string> ReadFile(const std::string& name, const std::string& path) {
  auto text = tls::ReadTextFile(path);
  if (!text.ok()) return Annotate(text.status(), name);
  return text;
}

absl::Status CheckKeyFile(const std::string& name, const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("cannot read ", Named(name, path)));
  }
  if ((status.st_mode & S_IROTH) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Named(name, path),
                   ": everybody on this machine can read the private key: chmod o-rwx ", path));
}

absl::Status CheckValidity(const tls::Certificate& certificate, const std::string& where,
                           absl::Time now) {
  if (now >= certificate.not_after) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": the certificate of ", tls::IdentityOf(certificate), " ended ",
                     When(certificate.not_after), ": renew it (fsdpctl ca renew)"));
  }
  if (now < certificate.not_before) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": the certificate of ", tls::IdentityOf(certificate),
                     " begins only at ", When(certificate.not_before), ", and it is ", When(now),
                     ": set this machine's clock, or issue it again"));
  }
  return absl::OkStatus();
}

absl::Status ReadOwn(const TlsFiles& files, const TlsFileNames& names, absl::Time now,
                     TlsMaterial* material) {
  const std::string where = Named(names.certificate, files.certificate);
  ASSIGN_OR_RETURN(material->certificate_pem, ReadFile(names.certificate, files.certificate));
  RETURN_IF_ERROR(CheckKeyFile(names.key, files.key));
  ASSIGN_OR_RETURN(material->key_pem, ReadFile(names.key, files.key));
  auto chain = tls::ReadCertificates(material->certificate_pem);
  if (!chain.ok()) return Annotate(chain.status(), where);
  material->chain = *std::move(chain);
  const absl::Status matches = tls::CheckKeyMatches(material->certificate_pem, material->key_pem);
  if (absl::IsFailedPrecondition(matches)) {
    return absl::FailedPreconditionError(absl::StrCat(Named(names.key, files.key),
                                                      " is not the key of ", where,
                                                      ": give the pair that was made together"));
  }
  if (!matches.ok()) return Annotate(matches, Named(names.key, files.key));
  return CheckValidity(material->chain.front(), where, now);
}

absl::Status CheckPair(const TlsFiles& files, const TlsFileNames& names) {
  if (files.certificate.empty() && !files.key.empty()) {
    return Missing(names.key, names.certificate, "the key's certificate");
  }
  if (!files.certificate.empty() && files.key.empty()) {
    return Missing(names.certificate, names.key, "the certificate's private key");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckClientFiles(const TlsFiles& files, const TlsFileNames& names) {
  RETURN_IF_ERROR(CheckPair(files, names));
  if (!files.empty() && files.ca.empty()) {
    return Missing(names.certificate, names.ca,
                   "the authority of the coordinator's certificate, or the word system");
  }
  return absl::OkStatus();
}

absl::Status CheckServerFiles(const TlsFiles& files, const TlsFileNames& names) {
  RETURN_IF_ERROR(CheckPair(files, names));
  if (files.certificate.empty() && !files.ca.empty()) {
    return Missing(names.ca, names.certificate,
                   "a server that checks its clients has a certificate itself");
  }
  return absl::OkStatus();
}

absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsFiles& files, const TlsFileNames& names,
                                            absl::Time now) {
  TlsMaterial material;
  if (!files.certificate.empty()) RETURN_IF_ERROR(ReadOwn(files, names, now, &material));
  if (!files.ca.empty() && files.ca != kSystemAuthorities) {
    ASSIGN_OR_RETURN(material.ca_pem, ReadFile(names.ca, files.ca));
    auto authorities = tls::ReadCertificates(material.ca_pem);
    if (!authorities.ok()) return Annotate(authorities.status(), Named(names.ca, files.ca));
    material.authorities = *std::move(authorities);
  }
  return material;
}

absl::Time CertificateExpiry(const TlsMaterial& material) {
  return material.chain.empty() ? absl::InfiniteFuture() : material.chain.front().not_after;
}

}  // namespace fsdp
