#include "coordinator/security/worker_identity.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"
#include "proto/support/tls/certificate.h"

namespace fsdp::coordinator {

absl::Status CheckWorkerIdentity(const std::vector<std::string>& uris, const std::string& worker) {
  const std::string id = WorkerIdFromName(worker).value();
  const bool named = std::any_of(uris.begin(), uris.end(), [&](const std::string& uri) {
    return tls::UriNamesWorker(uri, id);
  });
  if (named) return absl::OkStatus();
  return WithInfo(
      absl::PermissionDeniedError(absl::StrCat(
          "the certificate is of ", uris.empty() ? "nobody with a URI" : absl::StrJoin(uris, ", "),
          ", not of worker ", id, ": a worker's certificate has the URI ", ToAbsl(tls::kWorkerUri),
          id, " (fsdpctl ca issue worker ", id, ")")),
      "WORKER_IDENTITY_MISMATCH", {{"worker", id}});
}

}  // namespace fsdp::coordinator
