#include "proto/support/tls/grpc_credentials.h"

#include <mutex>
#include <utility>
#include <vector>

#include "grpc/grpc_security.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

// One per port: gRPC asks before every handshake, under a lock of that port's.
class PortConfig {
 public:
  explicit PortConfig(std::shared_ptr<const TlsReloader> reloader)
      : reloader_(std::move(reloader)) {}

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<PortConfig*>(self)->FetchNow(config);
  }

 private:
  grpc_ssl_certificate_config_reload_status FetchNow(grpc_ssl_server_certificate_config** config) {
    const std::shared_ptr<const TlsMaterial> material = reloader_->current();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (material == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{material->key_pem.c_str(),
                                          material->certificate_pem.c_str()};
    // gRPC aborts the process without any; where no client is asked for a certificate, they are
    // never looked at.
    const std::string& roots =
        material->ca_pem.empty() ? material->certificate_pem : material->ca_pem;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    given_ = material;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<const TlsReloader> reloader_;
  std::mutex mutex_;
  std::shared_ptr<const TlsMaterial> given_;
};

// gRPC's C++ wrappers read files by themselves and do not compare key and certificate; its C API
// asks us.
class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  ReloadingCredentials(std::shared_ptr<const TlsReloader> reloader, ClientCertificates clients)
      : reloader_(std::move(reloader)), clients_(clients) {}

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {
    FSDP_CHECK(false, "callers are checked by the services, not by a metadata processor");
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    ports_.push_back(std::make_unique<PortConfig>(reloader_));
    grpc_ssl_server_credentials_options* const options =
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            RequestType(), PortConfig::Fetch, ports_.back().get());
    grpc_server_credentials* const credentials =
        grpc_ssl_server_credentials_create_with_options(options);
    const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return port;
  }

  [[nodiscard]] grpc_ssl_client_certificate_request_type RequestType() const {
    if (reloader_->current()->ca_pem.empty()) return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    return clients_ == ClientCertificates::kRequire
               ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
               : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
  }

  const std::shared_ptr<const TlsReloader> reloader_;
  const ClientCertificates clients_;
  std::vector<std::unique_ptr<PortConfig>> ports_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(
    std::shared_ptr<const TlsReloader> reloader, ClientCertificates clients) {
  return std::make_shared<ReloadingCredentials>(std::move(reloader), clients);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFrom(
    const TlsFiles& files, const TlsFileNames& names, absl::Time now) {
  if (files.empty()) return grpc::InsecureChannelCredentials();
  RETURN_IF_ERROR(CheckClientFiles(files, names));
  ASSIGN_OR_RETURN(TlsMaterial material, LoadTlsMaterial(files, names, now));
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::move(material.ca_pem);
  options.pem_private_key = std::move(material.key_pem);
  options.pem_cert_chain = std::move(material.certificate_pem);
  return grpc::SslCredentials(options);
}

void SetServerName(const std::string& server_name, grpc::ChannelArguments* arguments) {
  if (!server_name.empty()) arguments->SetSslTargetNameOverride(server_name);
}

}  // namespace fsdp
