#include "proto/support/tls/tls_probe.h"

#include <arpa/inet.h>
#include <openssl/err.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/support/listen_address.h"
#include "proto/support/status.h"
#include "proto/support/tls/certificate.h"
#include "proto/support/tls/openssl.h"
#include "proto/support/tls/socket.h"

namespace fsdp {
namespace {

using tls::Dial;
using tls::Socket;
using tls::SplitHostPort;
using tls::SslContextPtr;
using tls::SslPtr;

// "h2" as ALPN writes it; gRPC servers insist on it.
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

bool IsAddress(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

std::string Date(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

std::string NamesOf(const tls::Certificate& certificate) {
  std::vector<std::string> names = certificate.dns_names;
  names.insert(names.end(), certificate.ip_addresses.begin(), certificate.ip_addresses.end());
  return names.empty() ? "no host" : absl::StrJoin(names, ", ");
}

// One handshake. Keeps what it needs alive.
class Handshake {
 public:
  Handshake(const TlsProbe& probe, TlsMaterial material)
      : probe_(probe), material_(std::move(material)) {}

  absl::Status Run(const Socket& socket) {
    RETURN_IF_ERROR(Prepare(socket));
    ERR_clear_error();
    errno = 0;
    if (SSL_connect(ssl_.get()) != 1) return ExplainFailure();
    // In TLS 1.3 the server's verdict on our certificate comes after the handshake; when it is
    // good, the first bytes are HTTP/2 settings.
    std::array<char, 1> byte{};
    errno = 0;
    if (SSL_read(ssl_.get(), byte.data(), 1) > 0) return absl::OkStatus();
    return ExplainAlert();
  }

 private:
  absl::Status Prepare(const Socket& socket) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    if (probe_.files.ca == kSystemAuthorities) {
      SSL_CTX_set_default_verify_paths(context_.get());
    } else {
      ASSIGN_OR_RETURN(tls::StorePtr store, tls::MakeTrustStore(material_.ca_pem));
      SSL_CTX_set_cert_store(context_.get(), store.release());
    }
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(context_.get(), &Handshake::Verify, this);
    if (!material_.certificate_pem.empty()) {
      RETURN_IF_ERROR(UseOwnCertificate());
    } else {
      SSL_CTX_set_app_data(context_.get(), this);
      SSL_CTX_set_client_cert_cb(context_.get(), &Handshake::OnAskedForCertificate);
    }
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_alpn_protos(ssl_.get(), kHttp2, sizeof kHttp2);
    name_ = probe_.server_name.empty() ? SplitHostPort(probe_.server).first : probe_.server_name;
    if (IsAddress(name_)) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), name_.c_str());
    } else {
      SSL_set_tlsext_host_name(ssl_.get(), name_.c_str());
      SSL_set1_host(ssl_.get(), name_.c_str());
    }
    SSL_set_fd(ssl_.get(), socket.fd());
    return absl::OkStatus();
  }

  absl::Status UseOwnCertificate() {
    ASSIGN_OR_RETURN(const auto chain, tls::ParseCertificates(material_.certificate_pem));
    ASSIGN_OR_RETURN(const tls::KeyPtr key, tls::ParseKey(material_.key_pem));
    SSL_CTX_use_certificate(context_.get(), chain.front().get());
    SSL_CTX_use_PrivateKey(context_.get(), key.get());
    for (std::size_t i = 1; i < chain.size(); ++i) {
      SSL_CTX_add1_chain_cert(context_.get(), chain[i].get());
    }
    return absl::OkStatus();
  }

  // OpenSSL's own check; what it was about is gone when the handshake has failed, so it is kept.
  static int Verify(X509_STORE_CTX* context, void* self) {
    auto* const handshake = static_cast<Handshake*>(self);
    const int good = X509_verify_cert(context);
    handshake->verdict_ = X509_STORE_CTX_get_error(context);
    const auto facts =
        tls::ReadCertificates(tls::CertificatePem(X509_STORE_CTX_get0_cert(context)));
    if (facts.ok()) handshake->shown_ = facts->front();
    return good;
  }

  static int OnAskedForCertificate(SSL* ssl, X509** /*certificate*/, EVP_PKEY** /*key*/) {
    static_cast<Handshake*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)))->asked_ = true;
    return 0;
  }

  absl::Status ExplainFailure() {
    return verdict_ == X509_V_OK ? ExplainAlert() : ExplainVerdict();
  }

  absl::Status ExplainVerdict() {
    const tls::Certificate& shown = shown_;
    const std::string whose = absl::StrCat("the certificate of ", probe_.server);
    switch (verdict_) {
      case X509_V_ERR_CERT_HAS_EXPIRED:
        return absl::UnauthenticatedError(
            absl::StrCat(whose, " ended ", Date(shown.not_after),
                         ": renew it there (fsdpctl ca renew), or set this machine's clock"));
      case X509_V_ERR_CERT_NOT_YET_VALID:
        return absl::UnauthenticatedError(
            absl::StrCat(whose, " begins only at ", Date(shown.not_before), ", and it is ",
                         Date(absl::Now()), " here: set this machine's clock"));
      case X509_V_ERR_HOSTNAME_MISMATCH:
      case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return absl::UnauthenticatedError(absl::StrCat(
            whose, " is for ", NamesOf(shown), ", not for ", name_,
            ": use one of these names, give --tls-server-name, or issue it with --host ", name_));
      default:
        return absl::UnauthenticatedError(absl::StrCat(
            whose, " is signed by ", shown.issuer, ", which is not in ", probe_.names.ca, " ",
            probe_.files.ca, " (", X509_verify_cert_error_string(verdict_),
            "): give the authority that the coordinator's certificate was made with"));
    }
  }

  // The server ended it, or what answers is no TLS.
  absl::Status ExplainAlert() {
    const unsigned long error = ERR_peek_error();
    const int reason = ERR_GET_REASON(error);
    const char* text = ERR_reason_error_string(error);
    const bool timed_out = error == 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    ERR_clear_error();
    const std::string server = probe_.server;
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
        reason == SSL_R_HTTP_REQUEST) {
      return absl::UnauthenticatedError(absl::StrCat(
          server, " does not speak TLS, and ", probe_.names.ca, " asks for it: start the ",
          "coordinator with --tls-certificate and --tls-key, or leave ", probe_.names.ca, " out"));
    }
    // gRPC's servers close without an alert.
    if (material_.chain.empty() && asked_ && !timed_out) {
      return absl::UnauthenticatedError(
          absl::StrCat(server, " wants a client certificate: give ", probe_.names.certificate,
                       " and ", probe_.names.key, " (fsdpctl ca issue makes them)"));
    }
    // A reset or a silent peer is no verdict of TLS.
    if (error == 0 || ERR_GET_LIB(error) != ERR_LIB_SSL || material_.chain.empty()) {
      return absl::OkStatus();
    }
    return absl::UnauthenticatedError(
        absl::StrCat(server, " refuses the certificate of ",
                     tls::IdentityOf(material_.chain.front()), " (", probe_.names.certificate, " ",
                     probe_.files.certificate, "): ", text == nullptr ? "no reason given" : text,
                     "; is it signed by an authority of the coordinator's --tls-client-ca?"));
  }

  const TlsProbe& probe_;
  const TlsMaterial material_;
  SslContextPtr context_;
  SslPtr ssl_;
  std::string name_;
  int verdict_ = X509_V_OK;
  // The server asked for a certificate, and we have none.
  bool asked_ = false;
  // The server's certificate, once it was shown.
  tls::Certificate shown_;
};

// A handshake that trusts nobody and everybody; null when the peer does not speak TLS.
SslPtr BlindHandshake(const Socket& socket, SslContextPtr* context) {
  context->reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_verify(context->get(), SSL_VERIFY_NONE, nullptr);
  SslPtr ssl(SSL_new(context->get()));
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  SSL_set_fd(ssl.get(), socket.fd());
  ERR_clear_error();
  const bool connected = SSL_connect(ssl.get()) == 1;
  ERR_clear_error();
  return connected ? std::move(ssl) : nullptr;
}

}  // namespace

absl::Status ProbeTls(const TlsProbe& probe) {
  if (!IsHostPort(probe.server)) return absl::OkStatus();
  TlsMaterial material;
  if (!probe.files.empty()) {
    ASSIGN_OR_RETURN(material, LoadTlsMaterial(probe.files, probe.names, absl::Now()));
  }
  if (!probe.ca_pem.empty()) material.ca_pem = probe.ca_pem;
  const std::unique_ptr<Socket> socket = Dial(probe.server, probe.timeout);
  if (socket == nullptr) return absl::OkStatus();
  if (!material.ca_pem.empty() || !probe.files.empty())
    return Handshake(probe, std::move(material)).Run(*socket);
  SslContextPtr context;
  if (BlindHandshake(*socket, &context) == nullptr) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat(probe.server, " speaks TLS: give ", probe.names.ca,
                   " with the certificate of its authority (ca.crt of fsdpctl ca init)"));
}

absl::StatusOr<std::string> FetchChain(const std::string& server, absl::Duration timeout) {
  const std::unique_ptr<Socket> socket = Dial(server, timeout);
  if (socket == nullptr) {
    return absl::UnavailableError(absl::StrCat("nobody answers at ", server));
  }
  SslContextPtr context;
  const SslPtr ssl = BlindHandshake(*socket, &context);
  if (ssl == nullptr) {
    return absl::UnauthenticatedError(absl::StrCat(
        server, " does not speak TLS: start the coordinator with --tls-certificate and --tls-key"));
  }
  std::string pem;
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl.get());
  for (int i = 0; chain != nullptr && i < sk_X509_num(chain); ++i) {
    absl::StrAppend(&pem, tls::CertificatePem(sk_X509_value(chain, i)));
  }
  return pem;
}

}  // namespace fsdp
