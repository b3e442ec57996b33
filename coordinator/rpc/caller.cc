#include "coordinator/rpc/caller.h"

#include "grpcpp/security/auth_context.h"

namespace fsdp::coordinator {

CallerIdentity CallerOf(const grpc::CallbackServerContext& context) {
  CallerIdentity caller{.subject = "anonymous", .peer = context.peer()};
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return caller;
  const auto identity = auth->GetPeerIdentity();
  if (!identity.empty()) caller.subject.assign(identity[0].data(), identity[0].size());
  return caller;
}

}  // namespace fsdp::coordinator
