#ifndef FSDPCTL_COORDINATOR_SECURITY_RPC_RULES_H_
#define FSDPCTL_COORDINATOR_SECURITY_RPC_RULES_H_

// Who may call what: one rule for every method that the coordinator serves. A method without a rule
// is refused, and a test walks the descriptors, so that it does not get that far.
//
// Pure functions over constant data.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "coordinator/security/identity.h"
#include "proto/support/access_file.h"

namespace fsdp::coordinator {

// What a call touches, and so where the caller needs the role.
enum class Reach {
  // Nobody has to say who they are.
  kOpen,
  // The cluster as a whole: in any queue. What the answer shows of jobs is narrowed to the queues
  // that the caller sees.
  kCluster,
  // All queues at once: a grant that names some is not enough.
  kEveryQueue,
  // The queue that the request's spec names.
  kNewJob,
  // The job of the request, to look at: in its queue.
  kSeeJob,
  // The job of the request, to act on: its owner with the role, or an operator of its queue.
  kChangeJob,
};

struct RpcRule {
  // "fsdp.v1.JobService/CancelJob".
  std::string_view method;
  // Not of kOpen.
  Role least = Role::kAdmin;
  Reach reach = Reach::kEveryQueue;
  // It changes something: its calls go into the audit log, and without one that can be written are
  // refused.
  bool changes = false;
  // What it does, for messages: "cancel the job".
  std::string_view right;
};

// Sorted by service, in the order of the protos.
std::span<const RpcRule> RpcRules();
// Null: there is none.
const RpcRule* FindRpcRule(std::string_view method);

// The job, or the one to be, that a call is about.
struct JobTarget {
  // "jobs/x-1"; empty of one to be.
  std::string name;
  std::string queue;
  std::string owner;
};

// Does the identity see jobs of this queue?
bool CanSee(const Identity& identity, std::string_view queue);

// `target` null: the rule's reach needs none, or there is no such job, which its handler says.
//   NOT_FOUND          JOB_NOT_FOUND: a job in a queue that the caller does not see, as if there
//                      were none
//   PERMISSION_DENIED  ROLE_INSUFFICIENT: no grant with the role, anywhere
//                      QUEUE_FORBIDDEN: only in other queues
//                      NOT_OWNER: the job is another's, and the caller no operator of its queue
absl::Status Authorize(const RpcRule& rule, const Identity& identity, const JobTarget* target);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_RPC_RULES_H_
