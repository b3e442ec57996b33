#include "coordinator/web/gated_page_access.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/security/identity.h"
#include "coordinator/security/rpc_rules.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {

absl::StatusOr<Visitor> GatedPageAccess::Admit(const std::string& token,
                                               const std::string& /*peer*/) const {
  absl::StatusOr<Visitor> visitor = Decide(token);
  if (!visitor.ok()) {
    counters_.Add("fsdp_rpc_denied_total", absl::AsciiStrToLower(ReasonOf(visitor.status())));
  }
  return visitor;
}

absl::StatusOr<Visitor> GatedPageAccess::Decide(const std::string& token) const {
  Credentials credentials;
  if (!token.empty()) credentials.authorization = "Bearer " + token;
  ASSIGN_OR_RETURN(Identity identity, access_.Identify(credentials));
  if (!is_open()) RETURN_IF_ERROR(limiter_.Request(identity.subject));
  RETURN_IF_ERROR(Authorize(*FindRpcRule("fsdp.v1.JobService/ListJobs"), identity, nullptr));
  std::string subject = identity.subject;
  return Visitor{std::move(subject), [identity = std::move(identity)](std::string_view queue) {
                   return CanSee(identity, queue.empty() ? "default" : queue);
                 }};
}

}  // namespace fsdp::coordinator
