#ifndef FSDPCTL_COORDINATOR_SECURITY_ACCESS_CONTROL_H_
#define FSDPCTL_COORDINATOR_SECURITY_ACCESS_CONTROL_H_

// The access file as it is now: read at the start, and again when it has changed. A file with an
// error in it changes nothing but a metric and a log line: the one before stays in force.
//
// Thread-safe.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/metrics/counters.h"
#include "coordinator/security/identity.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

class AccessControl {
 public:
  // `path` empty: everybody is admin, as Unrestricted says. The others outlive it.
  //   as ParseAccessFile; NOT_FOUND, PERMISSION_DENIED  the file cannot be read
  static absl::StatusOr<std::unique_ptr<AccessControl>> Open(std::string path, const Clock& clock,
                                                             Counters& counters);

  // Without an access file: whoever calls must show a certificate of the authorities that TLS
  // checks clients by, and a worker's is good for a worker's calls only. Before the first call.
  void RequireCertificates() { certificates_required_ = true; }

  // Does nobody have to say who they are?
  [[nodiscard]] bool unrestricted() const { return path_.empty(); }

  // As AccessPolicy.
  [[nodiscard]] absl::StatusOr<Identity> Identify(const Credentials& credentials) const;
  // Is the identity of an open stream still good? Cheap as long as nothing has changed.
  [[nodiscard]] absl::StatusOr<Identity> Recheck(const Identity& identity) const;

  // Reads the file if it has changed since (its time, size or inode), or if `always`.
  void Refresh(bool always);

 private:
  AccessControl(std::string path, const Clock& clock, Counters& counters)
      : path_(std::move(path)), clock_(clock), counters_(counters) {}
  absl::Status Load();
  [[nodiscard]] std::shared_ptr<const AccessPolicy> policy() const;

  const std::string path_;
  bool certificates_required_ = false;
  const Clock& clock_;
  Counters& counters_;

  // Of Refresh alone.
  std::mutex refresh_mutex_;
  std::string version_;

  mutable std::mutex mutex_;
  std::shared_ptr<const AccessPolicy> policy_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_ACCESS_CONTROL_H_
