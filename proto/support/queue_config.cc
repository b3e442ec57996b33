#include "proto/support/queue_config.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/support/spec_decode.h"
#include "proto/support/spec_document.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_validate.h"

namespace fsdp {
namespace {

void CheckDevices(const v1::QueueSpec& queue, const std::string& field, spec::Findings* findings) {
  std::set<v1::DeviceType> seen;
  for (int i = 0; i < queue.devices_size(); ++i) {
    const v1::DeviceQuota& quota = queue.devices(i);
    const std::string entry = absl::StrCat(field, ".devices[", i, "]");
    if (quota.device() != v1::DEVICE_TYPE_UNSPECIFIED && !seen.insert(quota.device()).second) {
      findings->Error(entry + ".device", "has an entry already; keep one per device type");
    }
    if (quota.has_max() && quota.max() < quota.quota()) {
      findings->Error(entry + ".max", absl::StrCat("is below the quota of ", quota.quota()),
                      {.value = absl::StrCat(quota.max()),
                       .allowed = absl::StrCat("at least ", quota.quota(), ", or no max")});
    }
  }
}

void CheckQueues(const v1::QueueConfig& config, spec::Findings* findings) {
  std::set<std::string> names;
  for (int i = 0; i < config.queues_size(); ++i) {
    const v1::QueueSpec& queue = config.queues(i);
    const std::string field = absl::StrCat("queues[", i, "]");
    if (!queue.name().empty() && !names.insert(queue.name()).second) {
      findings->Error(field + ".name", "is the name of an earlier queue", {.value = queue.name()});
    }
    CheckDevices(queue, field, findings);
  }
}

void ApplyDefaults(v1::QueueConfig* config) {
  for (v1::QueueSpec& queue : *config->mutable_queues()) {
    if (!queue.has_weight()) queue.set_weight(1);
    v1::PreemptionSpec& preemption = *queue.mutable_preemption();
    if (preemption.reclaim() == v1::RECLAIM_POLICY_UNSPECIFIED) {
      preemption.set_reclaim(v1::RECLAIM_POLICY_ANY);
    }
    if (preemption.within_queue() == v1::WITHIN_QUEUE_POLICY_UNSPECIFIED) {
      preemption.set_within_queue(v1::WITHIN_QUEUE_POLICY_NEVER);
    }
  }
}

// What a field that could not be read makes of the checks behind it is not told again.
bool IsTold(const std::vector<SpecIssue>& issues, const SpecIssue& finding) {
  return std::any_of(issues.begin(), issues.end(), [&](const SpecIssue& issue) {
    const bool misspelt = !issue.suggestion.empty() && issue.message == spec::kUnknownKey &&
                          finding.field.ends_with(issue.suggestion);
    return issue.field.empty() || issue.field == finding.field || misspelt;
  });
}

}  // namespace

QueueConfigResult LoadQueueConfig(std::string_view text) {
  QueueConfigResult result;
  const spec::SpecNode root = spec::ReadDocument(text, SpecOptions(), &result.issues);
  if (result.issues.empty() && root.kind == spec::SpecNode::Kind::kNull) {
    SpecIssue issue;
    issue.line = issue.column = 1;
    issue.message = "the document is empty; queues start with apiVersion: fsdp.v1";
    result.issues.push_back(std::move(issue));
    return result;
  }
  SourceMap source;
  source.Add("", {1, 1, ""});
  spec::DecodeDocument(root, spec::kQueueRules, &result.config, &source, &result.issues);
  spec::Findings findings(&source);
  spec::CheckDocument(result.config, spec::kQueueRules, &findings);
  CheckQueues(result.config, &findings);
  const std::vector<SpecIssue> read = result.issues;
  for (SpecIssue& finding : findings.Take()) {
    if (!IsTold(read, finding)) result.issues.push_back(std::move(finding));
  }
  std::stable_sort(result.issues.begin(), result.issues.end(),
                   [](const SpecIssue& a, const SpecIssue& b) {
                     return std::pair(a.line, a.column) < std::pair(b.line, b.column);
                   });
  if (result.ok()) ApplyDefaults(&result.config);
  return result;
}

}  // namespace fsdp
