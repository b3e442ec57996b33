#ifndef FSDPCTL_WORKER_DAEMON_IDENTITY_FOLDER_H_
#define FSDPCTL_WORKER_DAEMON_IDENTITY_FOLDER_H_

// A host's identity: the folder that `fsdp-worker enroll` writes (worker.crt, worker.key, ca.crt),
// and how its certificate is got and renewed.

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/support/tls/certificate.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp::daemon {

// The files of a folder.
TlsFiles IdentityFiles(const std::string& folder);

struct EnrollOptions {
  // HOST:PORT, or several with commas between.
  std::string coordinator;
  std::string tls_server_name;
  // What it is to be a certificate for.
  std::vector<std::string> workers;
  std::string join_token_file;
  std::string folder;
  absl::Duration timeout = absl::Seconds(30);
};

// Makes a key, takes the coordinator's authority by the fingerprint in the token, and gets a
// certificate for the key. Nothing is written unless all went well; the token's secret goes to
// nobody but a coordinator that the authority has certified.
//   INVALID_ARGUMENT  no token in the file
//   UNAUTHENTICATED   the coordinator has no certificate of the token's authority, or another name
//   others            as EnrollmentService.EnrollWorker
absl::Status Enroll(const EnrollOptions& options);

// Two thirds of a certificate's life are over. `certificate` begins tls::kClockSlack before it was
// made.
bool RenewalDue(const tls::Certificate& certificate, absl::Time now);

// Asks for a new certificate with the one in `folder`, for the same key and workers, and puts it in
// its place.
//   errors as EnrollmentService.RenewCertificate, and of files
absl::Status Renew(const std::string& coordinator, const std::string& tls_server_name,
                   const std::string& folder);

// Renews when it is due, on a thread of its own; a failure is told once per kind and tried again.
class Renewer {
 public:
  // `clock` outlives it.
  Renewer(std::string coordinator, std::string tls_server_name, std::string folder, Clock& clock);
  ~Renewer();
  Renewer(const Renewer&) = delete;
  Renewer& operator=(const Renewer&) = delete;

 private:
  void Run();
  // How long to wait before the next look.
  absl::Duration Look();

  const std::string coordinator_;
  const std::string tls_server_name_;
  const std::string folder_;
  Clock& clock_;
  absl::Status last_failure_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_IDENTITY_FOLDER_H_
