#ifndef FSDPCTL_COORDINATOR_WEB_GATED_PAGE_ACCESS_H_
#define FSDPCTL_COORDINATOR_WEB_GATED_PAGE_ACCESS_H_

// The status page behind the same access file as the API: whoever may list jobs may look, at the
// queues that they see.

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/metrics/counters.h"
#include "coordinator/security/access_control.h"
#include "coordinator/security/call_limiter.h"
#include "coordinator/web/page_access.h"

namespace fsdp::coordinator {

class GatedPageAccess : public PageAccess {
 public:
  // All outlive it.
  GatedPageAccess(const AccessControl& access, CallLimiter& limiter, Counters& counters)
      : access_(access), limiter_(limiter), counters_(counters) {}

  [[nodiscard]] bool is_open() const override { return access_.unrestricted(); }
  [[nodiscard]] absl::StatusOr<Visitor> Admit(const std::string& token,
                                              const std::string& peer) const override;

 private:
  [[nodiscard]] absl::StatusOr<Visitor> Decide(const std::string& token) const;

  const AccessControl& access_;
  CallLimiter& limiter_;
  Counters& counters_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_GATED_PAGE_ACCESS_H_
