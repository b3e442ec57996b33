#ifndef FSDPCTL_PROTO_SUPPORT_QUEUE_CONFIG_H_
#define FSDPCTL_PROTO_SUPPORT_QUEUE_CONFIG_H_

// The queues' file: text to v1::QueueConfig, as strict as a job spec and told of in the same way.
//
// Thread rule: pure functions.

#include <string_view>
#include <vector>

#include "fsdp/v1/queue.pb.h"
#include "proto/support/spec.h"

namespace fsdp {

struct QueueConfigResult {
  // With defaults; complete only when ok().
  v1::QueueConfig config;
  // In the order of the text.
  std::vector<SpecIssue> issues;
  [[nodiscard]] bool ok() const { return !HasErrors(issues); }
};

// YAML or JSON. Unknown and repeated keys, wrong types, values out of range, names given twice, a
// max below its quota: all at once.
QueueConfigResult LoadQueueConfig(std::string_view text);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_QUEUE_CONFIG_H_
