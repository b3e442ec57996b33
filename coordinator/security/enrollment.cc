#include "coordinator/security/enrollment.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/errors/api_error.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "proto/support/tls/authority_folder.h"
#include "proto/support/tls/certificate.h"
#include "proto/support/tls/join_token.h"

namespace fsdp::coordinator {
namespace {

constexpr absl::Duration kDefaultExpiry = absl::Hours(1);
constexpr absl::Duration kLongestExpiry = absl::Hours(24 * 30);
// Until then an old token is told from an unknown one.
constexpr absl::Duration kKeptAfterExpiry = absl::Hours(24 * 7);
constexpr std::size_t kMaxWorkersOfHost = 256;
constexpr std::string_view kTokens = "joinTokens/";

google::protobuf::Timestamp ToProto(absl::Time time) {
  return google::protobuf::util::TimeUtil::SecondsToTimestamp(absl::ToUnixSeconds(time));
}

absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds());
}

std::string When(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", FromProto(time), absl::UTCTimeZone());
}

// "fsdp://worker/node1" -> "node1".
std::string WorkerOf(const std::string& uri) { return uri.substr(tls::kWorkerUri.size()); }

bool InScope(const std::string& scope, const std::string& worker) {
  return scope.empty() || worker == scope || worker.starts_with(scope + "-");
}

absl::Status Refused(const std::string& problem) {
  return WithInfo(absl::UnauthenticatedError(absl::StrCat(
                      "the join token ", problem,
                      ": ask for a new one (fsdpctl ca join-token); each lets one host in, once")),
                  "JOIN_TOKEN_REFUSED");
}

v1::JoinToken ToMessage(const records::JoinTokenRecord& record, absl::Time now) {
  v1::JoinToken token;
  token.set_name(absl::StrCat(ToAbsl(kTokens), record.id()));
  token.set_worker(record.worker());
  token.set_creator(record.creator());
  *token.mutable_create_time() = record.create_time();
  *token.mutable_expire_time() = record.expire_time();
  if (record.has_use_time()) {
    token.set_state(v1::JOIN_TOKEN_STATE_USED);
    *token.mutable_use_time() = record.use_time();
    token.set_peer(record.peer());
    *token.mutable_enrolled_workers() = record.workers();
  } else {
    token.set_state(now < FromProto(record.expire_time()) ? v1::JOIN_TOKEN_STATE_WAITING
                                                          : v1::JOIN_TOKEN_STATE_EXPIRED);
  }
  return token;
}

absl::Status BadRequest(const std::string& problem) {
  // The request itself would fill the message.
  return BadField("signing_request", "", problem);
}

absl::StatusOr<absl::Duration> ExpiryOf(const v1::CreateJoinTokenRequest& request) {
  if (!request.has_expires_after()) return kDefaultExpiry;
  const absl::Duration asked = absl::Seconds(request.expires_after().seconds()) +
                               absl::Nanoseconds(request.expires_after().nanos());
  if (asked >= absl::Seconds(1) && asked <= kLongestExpiry) return asked;
  return BadField("expires_after", absl::FormatDuration(asked), "want 1s to 720h");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Enrollment>> Enrollment::Create(
    const Options& options, std::unique_ptr<tls::Authority> authority, JobStore& store,
    Clock& clock) {
  auto enrollment =
      std::unique_ptr<Enrollment>(new Enrollment(options, std::move(authority), store, clock));
  ASSIGN_OR_RETURN(std::vector<records::JoinTokenRecord> tokens, store.ReadJoinTokens());
  for (records::JoinTokenRecord& token : tokens) {
    enrollment->tokens_[token.id()] = std::move(token);
  }
  return enrollment;
}

void Enrollment::CreateJoinToken(const std::string& creator,
                                 const v1::CreateJoinTokenRequest& request,
                                 Done<v1::CreateJoinTokenResponse> done) {
  const auto expiry = ExpiryOf(request);
  if (!expiry.ok()) return done(expiry.status());
  if (!request.worker().empty() && !tls::IsIdentityName(request.worker())) {
    return done(BadField("worker", request.worker(),
                         "want 1-63 of a-z, A-Z, 0-9, '.', '_' and '-' that begin with a letter "
                         "or digit, or nothing"));
  }
  const auto token = tls::NewJoinToken(authority_->certificate().fingerprint);
  if (!token.ok()) return done(token.status());
  const absl::Time now = clock_.WallNow();
  records::JoinTokenRecord record;
  record.set_id(token->id);
  record.set_secret_sha256(tls::HashOfSecret(token->secret));
  record.set_worker(request.worker());
  record.set_creator(creator);
  *record.mutable_create_time() = ToProto(now);
  *record.mutable_expire_time() = ToProto(now + *expiry);
  v1::CreateJoinTokenResponse response;
  response.set_token(tls::JoinTokenText(*token));
  *response.mutable_expire_time() = record.expire_time();

  const std::lock_guard lock(mutex_);
  StoreBatch batch = DropOldTokens();
  const auto waiting =
      static_cast<std::size_t>(std::count_if(tokens_.begin(), tokens_.end(), [](const auto& entry) {
        return !entry.second.has_use_time();
      }));
  if (waiting >= options_.max_tokens) {
    return done(WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                             waiting,
                             " join tokens wait to be used, the most that are kept: wait "
                             "until some have expired")),
                         "TOO_MANY_JOIN_TOKENS"));
  }
  LOG_INFO("join token %s for %s, made by %s", record.id(),
           record.worker().empty() ? "any new worker" : record.worker(), creator);
  batch.join_tokens.push_back(record);
  tokens_[record.id()] = std::move(record);
  store_.Write(std::move(batch), [response, done = std::move(done)](const absl::Status& status) {
    done(status.ok() ? absl::StatusOr<v1::CreateJoinTokenResponse>(response) : status);
  });
}

std::vector<v1::JoinToken> Enrollment::ListJoinTokens() const {
  const absl::Time now = clock_.WallNow();
  std::vector<v1::JoinToken> list;
  {
    const std::lock_guard lock(mutex_);
    list.reserve(tokens_.size());
    for (const auto& [id, record] : tokens_) list.push_back(ToMessage(record, now));
  }
  std::stable_sort(list.begin(), list.end(), [](const v1::JoinToken& a, const v1::JoinToken& b) {
    return a.create_time().seconds() > b.create_time().seconds();
  });
  return list;
}

void Enrollment::RevokeJoinToken(const std::string& name, Done<v1::RevokeJoinTokenResponse> done) {
  if (!name.starts_with(kTokens) || name.size() == kTokens.size()) {
    return done(BadField("name", name, "want joinTokens/{id}"));
  }
  const std::string id = name.substr(kTokens.size());
  const std::lock_guard lock(mutex_);
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) {
    return done(WithInfo(absl::NotFoundError(absl::StrCat(
                             "no join token ", id,
                             ": it was revoked already, is long over, or is another cluster's "
                             "(fsdpctl ca join-token list)")),
                         "JOIN_TOKEN_NOT_FOUND", {{"join_token", id}}));
  }
  const records::JoinTokenRecord& record = found->second;
  if (record.has_use_time()) {
    return done(WithInfo(absl::FailedPreconditionError(absl::StrCat(
                             "join token ", id, " was used ", When(record.use_time()), " from ",
                             record.peer(), " for ", absl::StrJoin(record.workers(), ", "),
                             ": it lets nobody in any more; what it gave is a certificate, which "
                             "`revoked` in the coordinator's access file takes back")),
                         "JOIN_TOKEN_USED", {{"join_token", id}}));
  }
  LOG_INFO("join token %s revoked", id);
  tokens_.erase(found);
  StoreBatch batch;
  batch.deleted_join_tokens.push_back(id);
  store_.Write(std::move(batch), [done = std::move(done)](const absl::Status& status) {
    done(status.ok() ? absl::StatusOr<v1::RevokeJoinTokenResponse>(v1::RevokeJoinTokenResponse())
                     : status);
  });
}

StoreBatch Enrollment::DropOldTokens() {
  StoreBatch batch;
  const absl::Time before = clock_.WallNow() - kKeptAfterExpiry;
  std::erase_if(tokens_, [&](const auto& entry) {
    const records::JoinTokenRecord& token = entry.second;
    if (token.has_use_time() || FromProto(token.expire_time()) > before) return false;
    batch.deleted_join_tokens.push_back(entry.first);
    return true;
  });
  return batch;
}

absl::StatusOr<std::vector<std::string>> Enrollment::RequestedUris(const std::string& request) {
  const auto asked = tls::ReadSigningRequest(request);
  if (!asked.ok()) return BadRequest(std::string(asked.status().message()));
  if (asked->uris.empty() || asked->uris.size() > kMaxWorkersOfHost) {
    return BadRequest(
        absl::StrCat("names ", asked->uris.size(), " workers, want 1 to ", kMaxWorkersOfHost));
  }
  for (const std::string& uri : asked->uris) {
    if (!uri.starts_with(tls::kWorkerUri) || !tls::IsIdentityName(WorkerOf(uri))) {
      return BadRequest(absl::StrCat("asks for \"", uri, "\", which is no fsdp://worker/ID"));
    }
  }
  return asked->uris;
}

absl::StatusOr<Enrollment::Issued> Enrollment::Issue(const std::vector<std::string>& uris,
                                                     const std::string& signing_request) const {
  const absl::Time now = clock_.WallNow();
  Issued issued;
  issued.expire_time = std::min(now + options_.validity, authority_->certificate().not_after);
  tls::CertificateRequest request{.common_name = WorkerOf(uris.front()),
                                  .uris = uris,
                                  .not_before = now - tls::kClockSlack,
                                  .not_after = issued.expire_time};
  ASSIGN_OR_RETURN(issued.certificate, authority_->Issue(request, signing_request));
  issued.certificate += authority_->certificate_pem();
  return issued;
}

absl::StatusOr<records::JoinTokenRecord*> Enrollment::FindUsable(const std::string& text) {
  const auto token = tls::ParseJoinToken(text);
  if (!token.ok()) return Refused("is none");
  const auto found = tokens_.find(token->id);
  if (found == tokens_.end() ||
      !tls::SameHash(found->second.secret_sha256(), tls::HashOfSecret(token->secret))) {
    return Refused("is unknown or was revoked");
  }
  records::JoinTokenRecord& record = found->second;
  if (record.has_use_time()) {
    return Refused(absl::StrCat("was used ", When(record.use_time()), " from ", record.peer(),
                                " for ", absl::StrJoin(record.workers(), ", ")));
  }
  if (clock_.WallNow() >= FromProto(record.expire_time())) {
    return Refused(absl::StrCat("expired ", When(record.expire_time())));
  }
  return &record;
}

absl::Status Enrollment::CheckScope(const records::JoinTokenRecord& token,
                                    const std::vector<std::string>& uris) const {
  for (const std::string& uri : uris) {
    const std::string worker = WorkerOf(uri);
    if (!InScope(token.worker(), worker)) {
      return WithInfo(absl::PermissionDeniedError(
                          absl::StrCat("the join token is for ", token.worker(), " and ",
                                       token.worker(), "-…, not for worker ", worker,
                                       ": use its --name, or a token made with "
                                       "--worker ",
                                       worker)),
                      "JOIN_TOKEN_OF_ANOTHER_WORKER", {{"worker", worker}});
    }
    if (!token.worker().empty()) continue;
    for (const auto& [id, other] : tokens_) {
      const auto& workers = other.workers();
      if (std::find(workers.begin(), workers.end(), worker) == workers.end()) continue;
      return WithInfo(
          absl::AlreadyExistsError(absl::StrCat(
              "worker ", worker, " was enrolled ", When(other.use_time()), " from ", other.peer(),
              ": if this host takes its place, use a token that says so "
              "(fsdpctl ca join-token --worker ",
              worker, ")")),
          "WORKER_ENROLLED", {{"worker", worker}});
    }
  }
  return absl::OkStatus();
}

void Enrollment::EnrollWorker(const std::string& peer, const v1::EnrollWorkerRequest& request,
                              Done<v1::EnrollWorkerResponse> done) {
  const std::lock_guard lock(mutex_);
  const auto token = FindUsable(request.token());
  if (!token.ok()) return done(token.status());
  const auto uris = RequestedUris(request.signing_request());
  if (!uris.ok()) return done(uris.status());
  if (absl::Status in_scope = CheckScope(**token, *uris); !in_scope.ok()) return done(in_scope);
  const auto issued = Issue(*uris, request.signing_request());
  if (!issued.ok()) return done(issued.status());

  // Used from here on, whatever becomes of the write: nobody else may take it meanwhile.
  records::JoinTokenRecord& record = **token;
  *record.mutable_use_time() = ToProto(clock_.WallNow());
  record.set_peer(peer);
  for (const std::string& uri : *uris) record.add_workers(WorkerOf(uri));
  LOG_INFO("join token %s lets in %s from %s", record.id(), absl::StrJoin(record.workers(), ", "),
           peer);
  v1::EnrollWorkerResponse response;
  response.set_certificate(issued->certificate);
  response.set_authority(authority_->certificate_pem());
  *response.mutable_expire_time() = ToProto(issued->expire_time);
  StoreBatch batch;
  batch.join_tokens.push_back(record);
  store_.Write(std::move(batch), [response, done = std::move(done)](const absl::Status& status) {
    done(status.ok() ? absl::StatusOr<v1::EnrollWorkerResponse>(response) : status);
  });
}

absl::StatusOr<v1::RenewCertificateResponse> Enrollment::RenewCertificate(
    const std::vector<std::string>& uris, const v1::RenewCertificateRequest& request) const {
  const bool of_worker = std::any_of(uris.begin(), uris.end(), [](const std::string& uri) {
    return uri.starts_with(tls::kWorkerUri);
  });
  if (!of_worker) {
    return WithInfo(absl::PermissionDeniedError(
                        "only a worker renews here, by the certificate that it has: enrol first "
                        "(fsdp-worker enroll)"),
                    "CERTIFICATE_NOT_OURS");
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> asked, RequestedUris(request.signing_request()));
  for (const std::string& uri : asked) {
    if (std::find(uris.begin(), uris.end(), uri) != uris.end()) continue;
    return WithInfo(absl::PermissionDeniedError(absl::StrCat(
                        "the certificate is of ", absl::StrJoin(uris, ", "), ", not of ", uri)),
                    "WORKER_IDENTITY_MISMATCH", {{"worker", WorkerOf(uri)}});
  }
  ASSIGN_OR_RETURN(const Issued issued, Issue(asked, request.signing_request()));
  LOG_INFO("certificate of %s renewed", absl::StrJoin(asked, ", "));
  v1::RenewCertificateResponse response;
  response.set_certificate(issued.certificate);
  *response.mutable_expire_time() = ToProto(issued.expire_time);
  return response;
}

}  // namespace fsdp::coordinator
