#ifndef FSDPCTL_COORDINATOR_SECURITY_WORKER_IDENTITY_H_
#define FSDPCTL_COORDINATOR_SECURITY_WORKER_IDENTITY_H_

// Is the worker that says hello the one that its certificate names? Pure, thread-safe.

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace fsdp::coordinator {

// `uris`: of the certificate; `worker`: the hello's, "workers/ID" or "ID".
//   PERMISSION_DENIED  WORKER_IDENTITY_MISMATCH: none of the URIs names this worker
absl::Status CheckWorkerIdentity(const std::vector<std::string>& uris, const std::string& worker);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_WORKER_IDENTITY_H_
