#include "coordinator/rpc/caller.h"

#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"

namespace fsdp::coordinator {
namespace {

std::string FirstProperty(const grpc::AuthContext& auth, const char* name) {
  const std::vector<grpc::string_ref> values = auth.FindPropertyValues(name);
  return values.empty() ? "" : std::string(values[0].data(), values[0].size());
}

}  // namespace

Credentials CredentialsOf(const grpc::CallbackServerContext& context) {
  Credentials credentials;
  const auto& metadata = context.client_metadata();
  const auto [first, last] = metadata.equal_range("authorization");
  for (auto entry = first; entry != last; ++entry) {
    // Two of them are no token, so that no proxy's can hide behind the caller's.
    std::string text = credentials.authorization.value_or("");
    text.append(entry->second.data(), entry->second.size());
    credentials.authorization = entry == first ? text : "more than one authorization";
  }
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return credentials;
  credentials.certificate = FirstProperty(*auth, GRPC_PEER_URI_PROPERTY_NAME);
  if (credentials.certificate.empty()) {
    credentials.certificate = FirstProperty(*auth, GRPC_X509_CN_PROPERTY_NAME);
  }
  credentials.shown =
      std::make_shared<ShownCertificate>(FirstProperty(*auth, GRPC_X509_PEM_CERT_PROPERTY_NAME));
  return credentials;
}

std::string HostOf(const std::string& peer) {
  if (!peer.starts_with("ipv4:") && !peer.starts_with("ipv6:")) return peer;
  return peer.substr(0, peer.rfind(':'));
}

std::optional<std::vector<std::string>> CertificateUris(
    const grpc::CallbackServerContext& context) {
  const auto auth = context.auth_context();
  if (auth == nullptr || auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty()) {
    return std::nullopt;
  }
  std::vector<std::string> uris;
  for (const auto& uri : auth->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return uris;
}

}  // namespace fsdp::coordinator
