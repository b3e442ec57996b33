#ifndef FSDPCTL_COORDINATOR_SECURITY_ENROLLMENT_H_
#define FSDPCTL_COORDINATOR_SECURITY_ENROLLMENT_H_

// Lets hosts in: one-time join tokens, and certificates for the workers that bring them. Tokens are
// kept as hashes in the store; a used one stays there, so that it is refused after a restart too.
//
// Thread-safe. `Done` callbacks run once what they tell of is durable, on the store's thread.
// Errors: as in enrollment_service.proto; UNAVAILABLE the store failed.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/store/job_store.h"
#include "fsdp/v1/enrollment_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/tls/authority.h"

namespace fsdp::coordinator {

class Enrollment {
 public:
  struct Options {
    // Of the certificates that it gives; at most until the authority's end.
    absl::Duration validity = absl::Hours(24 * 30);
    // Tokens that were not used yet.
    std::size_t max_tokens = 10'000;
  };
  template <typename Response>
  using Done = std::function<void(absl::StatusOr<Response>)>;

  // Reads the tokens. `store` and `clock` outlive it.
  static absl::StatusOr<std::unique_ptr<Enrollment>> Create(
      const Options& options, std::unique_ptr<tls::Authority> authority, JobStore& store,
      Clock& clock);

  // `creator`: who asks, for the record.
  void CreateJoinToken(const std::string& creator, const v1::CreateJoinTokenRequest& request,
                       Done<v1::CreateJoinTokenResponse> done);
  // All tokens, newest first.
  [[nodiscard]] std::vector<v1::JoinToken> ListJoinTokens() const;
  // `name`: "joinTokens/{id}".
  void RevokeJoinToken(const std::string& name, Done<v1::RevokeJoinTokenResponse> done);
  // `peer`: where from.
  void EnrollWorker(const std::string& peer, const v1::EnrollWorkerRequest& request,
                    Done<v1::EnrollWorkerResponse> done);
  // `uris`: of the certificate that the caller has shown and TLS has checked.
  [[nodiscard]] absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(
      const std::vector<std::string>& uris, const v1::RenewCertificateRequest& request) const;

 private:
  Enrollment(const Options& options, std::unique_ptr<tls::Authority> authority, JobStore& store,
             Clock& clock)
      : options_(options), authority_(std::move(authority)), store_(store), clock_(clock) {}

  struct Issued {
    std::string certificate;
    absl::Time expire_time;
  };
  // What the request asks for, which must be workers' names and nothing else.
  static absl::StatusOr<std::vector<std::string>> RequestedUris(const std::string& request);
  [[nodiscard]] absl::StatusOr<Issued> Issue(const std::vector<std::string>& uris,
                                             const std::string& signing_request) const;
  // With mutex_ held.
  absl::StatusOr<records::JoinTokenRecord*> FindUsable(const std::string& text);
  [[nodiscard]] absl::Status CheckScope(const records::JoinTokenRecord& token,
                                        const std::vector<std::string>& uris) const;
  StoreBatch DropOldTokens();

  const Options options_;
  const std::unique_ptr<tls::Authority> authority_;
  JobStore& store_;
  Clock& clock_;
  mutable std::mutex mutex_;
  // By id. Guarded by mutex_.
  std::map<std::string, records::JoinTokenRecord> tokens_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_ENROLLMENT_H_
