#include "worker/daemon/identity_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "fsdp/v1/enrollment_service.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "proto/support/address_list.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "proto/support/tls/authority.h"
#include "proto/support/tls/authority_folder.h"
#include "proto/support/tls/grpc_credentials.h"
#include "proto/support/tls/join_token.h"
#include "proto/support/tls/tls_probe.h"
#include "worker/daemon/grpc_status.h"

namespace fsdp::daemon {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(30);
constexpr absl::Duration kShortestLook = absl::Seconds(1);
constexpr absl::Duration kLongestLook = absl::Minutes(10);

std::string In(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

std::vector<std::string> UrisOf(const std::vector<std::string>& workers) {
  std::vector<std::string> uris;
  uris.reserve(workers.size());
  for (const std::string& worker : workers) {
    uris.push_back(absl::StrCat(ToAbsl(tls::kWorkerUri), worker));
  }
  return uris;
}

std::unique_ptr<v1::EnrollmentService::Stub> Dial(
    const std::string& coordinator, const std::string& tls_server_name,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  SetServerName(tls_server_name, &arguments);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return v1::EnrollmentService::NewStub(
      grpc::CreateCustomChannel(coordinator, credentials, arguments));
}

// The authority with this fingerprint among the certificates that the coordinator shows. Whether
// the coordinator's own is of it, the handshake that follows checks.
absl::StatusOr<std::string> PinnedAuthority(const std::string& coordinator,
                                            const std::string& fingerprint) {
  ASSIGN_OR_RETURN(const std::string chain, FetchChain(coordinator, kCallTimeout));
  constexpr std::string_view kEnd = "-----END CERTIFICATE-----\n";
  std::vector<std::string> shown;
  for (std::size_t begin = 0; begin < chain.size();) {
    const std::size_t end = std::min(chain.find(kEnd, begin), chain.size() - kEnd.size());
    const std::string one = chain.substr(begin, end + kEnd.size() - begin);
    begin = end + kEnd.size();
    ASSIGN_OR_RETURN(const auto facts, tls::ReadCertificates(one));
    if (facts.front().fingerprint == fingerprint) return one;
    shown.push_back(facts.front().subject);
  }
  return absl::UnauthenticatedError(absl::StrCat(
      coordinator, " does not show the authority of the join token (sha256:", fingerprint, ") but ",
      absl::StrJoin(shown, ", "), ": it is another coordinator than the one that made ",
      "the token, or its --tls-certificate file lacks the authority's certificate after its own"));
}

absl::Status Explain(const absl::Status& status, const TlsProbe& probe) {
  if (!absl::IsUnavailable(status)) return status;
  const absl::Status reason = ProbeTls(probe);
  return reason.ok() ? status : reason;
}

// Asks the addresses one after the other: the first that can be reached, and leads, decides.
template <typename Ask>
absl::Status AskInTurn(const std::string& coordinators, Ask ask) {
  absl::Status status;
  for (const std::string& address : SplitAddresses(coordinators)) {
    status = ask(address);
    if (!absl::IsUnavailable(status)) break;
  }
  return status;
}

// The key, by which the folder counts as taken.
absl::Status CheckFree(const std::string& folder) {
  struct stat found{};
  const std::string key = IdentityFiles(folder).key;
  if (stat(key.c_str(), &found) != 0) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      key, " exists: this host is enrolled already; to do it anew move ", folder, " away"));
}

absl::Status WriteIdentity(const std::string& folder, const std::string& key,
                           const v1::EnrollWorkerResponse& response) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", folder, ")"));
  const TlsFiles files = IdentityFiles(folder);
  RETURN_IF_ERROR(tls::WriteTextFile(files.ca, response.authority(), 0644));
  RETURN_IF_ERROR(tls::WriteTextFile(files.certificate, response.certificate(), 0644));
  return tls::WriteTextFile(files.key, key, 0600);
}

absl::Status EnrollAt(const std::string& coordinator, const EnrollOptions& options,
                      const tls::JoinToken& token) {
  ASSIGN_OR_RETURN(const std::string authority,
                   PinnedAuthority(coordinator, token.authority_fingerprint));
  ASSIGN_OR_RETURN(const std::string key, tls::NewKey());
  v1::EnrollWorkerRequest request;
  request.set_token(tls::JoinTokenText(token));
  ASSIGN_OR_RETURN(*request.mutable_signing_request(),
                   tls::NewSigningRequest(key, options.workers.front(), UrisOf(options.workers)));
  const auto stub = Dial(coordinator, options.tls_server_name,
                         grpc::SslCredentials({.pem_root_certs = authority}));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  v1::EnrollWorkerResponse response;
  const absl::Status called = FromGrpc(stub->EnrollWorker(&context, request, &response));
  if (!called.ok()) {
    return Explain(
        called,
        {.server = coordinator, .ca_pem = authority, .server_name = options.tls_server_name});
  }
  RETURN_IF_ERROR(tls::CheckKeyMatches(response.certificate(), key));
  return WriteIdentity(options.folder, key, response);
}

}  // namespace

TlsFiles IdentityFiles(const std::string& folder) {
  return {.certificate = In(folder, "worker.crt"),
          .key = In(folder, "worker.key"),
          .ca = In(folder, "ca.crt")};
}

absl::Status Enroll(const EnrollOptions& options) {
  RETURN_IF_ERROR(CheckFree(options.folder));
  ASSIGN_OR_RETURN(const std::string token_text, tls::ReadTextFile(options.join_token_file));
  const auto token = tls::ParseJoinToken(token_text);
  if (!token.ok()) return Annotate(token.status(), options.join_token_file);
  return AskInTurn(options.coordinator, [&](const std::string& coordinator) {
    return EnrollAt(coordinator, options, *token);
  });
}

bool RenewalDue(const tls::Certificate& certificate, absl::Time now) {
  const absl::Time made = certificate.not_before + tls::kClockSlack;
  return now >= made + (certificate.not_after - made) * 2 / 3;
}

absl::Status Renew(const std::string& coordinators, const std::string& tls_server_name,
                   const std::string& folder) {
  const TlsFiles files = IdentityFiles(folder);
  ASSIGN_OR_RETURN(const TlsMaterial material, LoadTlsMaterial(files, {}, absl::Now()));
  const tls::Certificate& old = material.chain.front();
  v1::RenewCertificateRequest request;
  ASSIGN_OR_RETURN(*request.mutable_signing_request(),
                   tls::NewSigningRequest(material.key_pem, old.common_name, old.uris));
  ASSIGN_OR_RETURN(const auto credentials, ChannelCredentialsFrom(files, {}, absl::Now()));
  v1::RenewCertificateResponse response;
  RETURN_IF_ERROR(AskInTurn(coordinators, [&](const std::string& coordinator) {
    const auto stub = Dial(coordinator, tls_server_name, credentials);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    return Explain(FromGrpc(stub->RenewCertificate(&context, request, &response)),
                   {.server = coordinator, .files = files, .server_name = tls_server_name});
  }));
  RETURN_IF_ERROR(tls::CheckKeyMatches(response.certificate(), material.key_pem));
  return tls::WriteTextFile(files.certificate, response.certificate(), 0644);
}

Renewer::Renewer(std::string coordinator, std::string tls_server_name, std::string folder,
                 Clock& clock)
    : coordinator_(std::move(coordinator)),
      tls_server_name_(std::move(tls_server_name)),
      folder_(std::move(folder)),
      clock_(clock),
      thread_([this] { Run(); }) {}

Renewer::~Renewer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Renewer::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const absl::Duration pause = Look();
    lock.lock();
    wake_.wait_for(lock, absl::ToChronoNanoseconds(pause), [this] { return stopping_; });
  }
}

absl::Duration Renewer::Look() {
  const auto material = LoadTlsMaterial(IdentityFiles(folder_), {}, clock_.WallNow());
  // What is wrong with the files, the dialling agent says.
  if (!material.ok()) return kShortestLook;
  const tls::Certificate& certificate = material->chain.front();
  const absl::Time now = clock_.WallNow();
  const absl::Duration pause =
      std::clamp((certificate.not_after - now) / 20, kShortestLook, kLongestLook);
  if (!RenewalDue(certificate, now)) return pause;
  const absl::Status renewed = Renew(coordinator_, tls_server_name_, folder_);
  if (renewed.ok()) {
    LOG_INFO("the certificate of %s was renewed", tls::IdentityOf(certificate));
  } else if (renewed != last_failure_) {
    LOG_WARNING("the certificate of %s, which ends %s, cannot be renewed: %s; trying again",
                tls::IdentityOf(certificate),
                absl::FormatTime(absl::RFC3339_sec, certificate.not_after, absl::UTCTimeZone()),
                renewed.ToString());
  }
  last_failure_ = renewed;
  return pause;
}

}  // namespace fsdp::daemon
