#include "coordinator/security/access_control.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "proto/support/tls/certificate.h"

namespace fsdp::coordinator {
namespace {

// Changes when the file does: in place, or for another one under its name (as Kubernetes does it).
std::string VersionOf(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return absl::StrCat("errno ", errno);
  return absl::StrCat(info.st_dev, ":", info.st_ino, ":", info.st_size, ":", info.st_mtim.tv_sec,
                      ".", info.st_mtim.tv_nsec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AccessControl>> AccessControl::Open(std::string path,
                                                                   const Clock& clock,
                                                                   Counters& counters) {
  auto control =
      std::unique_ptr<AccessControl>(new AccessControl(std::move(path), clock, counters));
  if (!control->unrestricted()) {
    const std::lock_guard lock(control->refresh_mutex_);
    control->version_ = VersionOf(control->path_);
    RETURN_IF_ERROR(control->Load());
  }
  return control;
}

absl::Status AccessControl::Load() {
  errno = 0;
  std::ifstream in(path_, std::ios::binary);
  if (!in) return ErrnoToStatus(errno, absl::StrCat("cannot read the access file ", path_));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  ASSIGN_OR_RETURN(AccessFile file, ParseAccessFile(text, path_));
  LOG_INFO("access file %s: %d identities", path_, file.entries.size());
  auto policy = std::make_shared<const AccessPolicy>(std::move(file));
  const std::lock_guard lock(mutex_);
  policy_ = std::move(policy);
  return absl::OkStatus();
}

std::shared_ptr<const AccessPolicy> AccessControl::policy() const {
  const std::lock_guard lock(mutex_);
  return policy_;
}

absl::StatusOr<Identity> AccessControl::Identify(const Credentials& credentials) const {
  if (!unrestricted()) return policy()->Identify(credentials, clock_.WallNow());
  Identity identity = Unrestricted(credentials);
  if (!certificates_required_) return identity;
  if (credentials.certificate.empty()) {
    return WithInfo(absl::UnauthenticatedError(
                        "the coordinator wants a client certificate: give --tls-certificate and "
                        "--tls-key (fsdpctl ca issue makes them)"),
                    "CERTIFICATE_MISSING");
  }
  if (credentials.certificate.starts_with(tls::kWorkerUri)) {
    identity.grants = {{.role = Role::kWorker, .queues = {}}};
  }
  return identity;
}

absl::StatusOr<Identity> AccessControl::Recheck(const Identity& identity) const {
  if (unrestricted()) return identity;
  return policy()->Recheck(identity, clock_.WallNow());
}

void AccessControl::Refresh(bool always) {
  if (unrestricted()) return;
  const std::lock_guard lock(refresh_mutex_);
  std::string version = VersionOf(path_);
  if (!always && version == version_) return;
  version_ = std::move(version);
  if (const absl::Status status = Load(); !status.ok()) {
    counters_.Add("fsdp_access_reload_errors_total");
    LOG_ERROR("the access file was not taken, the one before stays in force: %s",
              std::string(status.message()));
  }
}

}  // namespace fsdp::coordinator
