#include "coordinator/security/rpc_rules.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

using enum Role;
using enum Reach;

constexpr auto kRules = std::to_array<RpcRule>({
    {"fsdp.v1.JobService/CreateJob", kSubmitter, kNewJob, true, "submit a job"},
    {"fsdp.v1.JobService/GetJob", kViewer, kSeeJob, false, "see the job"},
    {"fsdp.v1.JobService/ListJobs", kViewer, kCluster, false, "list jobs"},
    {"fsdp.v1.JobService/CancelJob", kSubmitter, kChangeJob, true, "cancel the job"},
    {"fsdp.v1.JobService/SuspendJob", kSubmitter, kChangeJob, true, "suspend the job"},
    {"fsdp.v1.JobService/ResumeJob", kSubmitter, kChangeJob, true, "resume the job"},
    {"fsdp.v1.JobService/RestartJob", kSubmitter, kChangeJob, true, "restart the job"},
    {"fsdp.v1.JobService/DeleteJob", kSubmitter, kChangeJob, true, "delete the job"},
    // It reads files of the coordinator's host (model.configPath), as a submission does.
    {"fsdp.v1.JobService/PlanJob", kSubmitter, kNewJob, false, "plan a job"},
    {"fsdp.v1.JobService/WatchJob", kViewer, kSeeJob, false, "watch the job"},
    {"fsdp.v1.JobService/StreamEvents", kViewer, kSeeJob, false, "read the job's events"},
    {"fsdp.v1.JobService/StreamLogs", kViewer, kSeeJob, false, "read the job's log"},
    {"fsdp.v1.JobService/StreamMetrics", kViewer, kSeeJob, false, "read the job's metrics"},
    {"fsdp.v1.JobService/ListCheckpoints", kViewer, kSeeJob, false, "list the job's checkpoints"},
    // The weights themselves.
    {"fsdp.v1.JobService/ReadCheckpoint", kSubmitter, kChangeJob, false,
     "read the job's checkpoints"},
    // It costs the job time.
    {"fsdp.v1.JobService/ProfileJob", kSubmitter, kChangeJob, true, "profile the job"},
    {"fsdp.v1.JobService/GetProfile", kViewer, kSeeJob, false, "see the job's profiles"},
    {"fsdp.v1.JobService/ReadProfile", kViewer, kSeeJob, false, "read the job's profiles"},
    {"fsdp.v1.JobService/DumpCollectives", kViewer, kSeeJob, false, "see the job's collectives"},

    {"fsdp.v1.ClusterService/ListWorkers", kViewer, kCluster, false, "list workers"},
    {"fsdp.v1.ClusterService/GetWorker", kViewer, kCluster, false, "see a worker"},
    // Whose job runs there is not asked.
    {"fsdp.v1.ClusterService/DrainWorker", kOperator, kEveryQueue, true, "drain a worker"},
    {"fsdp.v1.ClusterService/UncordonWorker", kOperator, kEveryQueue, true, "uncordon a worker"},
    {"fsdp.v1.ClusterService/GetCluster", kViewer, kCluster, false, "see the cluster"},
    {"fsdp.v1.ClusterService/ListQueues", kViewer, kCluster, false, "list queues"},
    {"fsdp.v1.ClusterService/GetQueue", kViewer, kCluster, false, "see a queue"},
    {"fsdp.v1.ClusterService/SetMaintenance", kOperator, kEveryQueue, true, "set maintenance"},

    // Not refused for an audit log that is full: that would end jobs.
    {"fsdp.v1.WorkerService/Connect", kWorker, kCluster, false, "connect as a worker"},

    {"fsdp.v1.EnrollmentService/CreateJoinToken", kAdmin, kEveryQueue, true, "make join tokens"},
    {"fsdp.v1.EnrollmentService/ListJoinTokens", kAdmin, kEveryQueue, false, "list join tokens"},
    {"fsdp.v1.EnrollmentService/RevokeJoinToken", kAdmin, kEveryQueue, true, "revoke join tokens"},
    // Who has nothing but a join token; that is checked by its handler.
    {"fsdp.v1.EnrollmentService/EnrollWorker", kViewer, kOpen, true, "enrol workers"},
    // Like a worker's connection: not refused for an audit log that is full.
    {"fsdp.v1.EnrollmentService/RenewCertificate", kWorker, kCluster, false,
     "renew a worker's certificate"},

    // Probes have no tokens; the answer is one word.
    {"grpc.health.v1.Health/Check", kViewer, kOpen, false, "ask for health"},
    {"grpc.health.v1.Health/Watch", kViewer, kOpen, false, "watch health"},
    // Served only where everybody is admin (coordinator/rpc/server.cc).
    {"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kViewer, kOpen, false,
     "use reflection"},
});

// kWorker is apart: it neither includes nor is included.
bool Includes(Role held, Role wanted) {
  if (held == kWorker || wanted == kWorker) return held == wanted;
  return held >= wanted;
}

bool Covers(const Grant& grant, std::string_view queue) {
  return grant.queues.empty() ||
         std::find(grant.queues.begin(), grant.queues.end(), queue) != grant.queues.end();
}

bool Holds(const Identity& identity, Role role) {
  return std::any_of(identity.grants.begin(), identity.grants.end(),
                     [&](const Grant& grant) { return Includes(grant.role, role); });
}

bool HoldsIn(const Identity& identity, Role role, std::string_view queue) {
  return std::any_of(identity.grants.begin(), identity.grants.end(), [&](const Grant& grant) {
    return Includes(grant.role, role) && Covers(grant, queue);
  });
}

bool HoldsEverywhere(const Identity& identity, Role role) {
  return std::any_of(identity.grants.begin(), identity.grants.end(), [&](const Grant& grant) {
    return Includes(grant.role, role) && grant.queues.empty();
  });
}

// "submitter in research; viewer"
std::string GrantsText(const Identity& identity) {
  std::vector<std::string> texts;
  texts.reserve(identity.grants.size());
  for (const Grant& grant : identity.grants) {
    texts.push_back(absl::StrCat(
        ToAbsl(RoleName(grant.role)),
        grant.queues.empty() ? "" : absl::StrCat(" in ", absl::StrJoin(grant.queues, ", "))));
  }
  return texts.empty() ? "nothing" : absl::StrJoin(texts, "; ");
}

// "alice may not cancel the job: WANTED, and alice has viewer; REMEDY"
absl::Status Deny(const RpcRule& rule, const Identity& identity, std::string_view reason,
                  const std::string& wanted, ErrorMetadata metadata) {
  metadata.emplace_back("subject", identity.subject);
  metadata.emplace_back("method", rule.method);
  metadata.emplace_back("role", RoleName(rule.least));
  return WithInfo(absl::PermissionDeniedError(absl::StrCat(
                      identity.subject, " may not ", ToAbsl(rule.right), ": that takes ", wanted,
                      ", and ", identity.subject, " has ", GrantsText(identity),
                      "; an administrator can grant it in the coordinator's access file")),
                  reason, std::move(metadata));
}

}  // namespace

std::span<const RpcRule> RpcRules() { return kRules; }

const RpcRule* FindRpcRule(std::string_view method) {
  const auto* const rule = std::find_if(kRules.begin(), kRules.end(),
                                        [&](const RpcRule& r) { return r.method == method; });
  return rule == kRules.end() ? nullptr : rule;
}

bool CanSee(const Identity& identity, std::string_view queue) {
  return HoldsIn(identity, kViewer, queue);
}

absl::Status Authorize(const RpcRule& rule, const Identity& identity, const JobTarget* target) {
  if (rule.reach == kOpen) return absl::OkStatus();
  const std::string role(RoleName(rule.least));
  if (!Holds(identity, rule.least)) {
    return Deny(rule, identity, "ROLE_INSUFFICIENT", absl::StrCat("the role ", role), {});
  }
  if (rule.reach == kEveryQueue && !HoldsEverywhere(identity, rule.least)) {
    return Deny(rule, identity, "QUEUE_FORBIDDEN",
                absl::StrCat("the role ", role, " in every queue"), {});
  }
  if (target == nullptr) return absl::OkStatus();
  const ErrorMetadata about = {{"queue", target->queue}, {"job", target->name}};
  const std::string here = absl::StrCat("the role ", role, " in queue ", target->queue);
  if (rule.reach == kNewJob) {
    if (HoldsIn(identity, rule.least, target->queue)) return absl::OkStatus();
    return Deny(rule, identity, "QUEUE_FORBIDDEN", here, about);
  }
  if (rule.reach != kSeeJob && rule.reach != kChangeJob) return absl::OkStatus();
  if (!CanSee(identity, target->queue)) return NoSuchJob(JobIdFromName(target->name).value());
  if (rule.reach == kSeeJob || HoldsIn(identity, kOperator, target->queue)) {
    return absl::OkStatus();
  }
  if (!HoldsIn(identity, rule.least, target->queue)) {
    return Deny(rule, identity, "QUEUE_FORBIDDEN", here, about);
  }
  if (target->owner == identity.subject) return absl::OkStatus();
  return Deny(
      rule, identity, "NOT_OWNER",
      absl::StrCat("its owner, ", target->owner, ", or an operator of queue ", target->queue),
      about);
}

}  // namespace fsdp::coordinator
