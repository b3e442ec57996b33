#ifndef FSDPCTL_COORDINATOR_STORE_RESOURCE_NAMES_H_
#define FSDPCTL_COORDINATOR_STORE_RESOURCE_NAMES_H_

// "jobs/{id}" and "workers/{id}" to ids and back. On the worker protocol's messages a bare id is
// taken as well.

#include <string>
#include <string_view>

#include "fsdp/v1/job_record.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

inline std::string JobName(const JobId& id) { return "jobs/" + id.value(); }
inline std::string WorkerName(const WorkerId& id) { return "workers/" + id.value(); }

inline std::string StripCollection(std::string_view name, std::string_view collection) {
  if (name.starts_with(collection)) name.remove_prefix(collection.size());
  return std::string(name);
}
inline JobId JobIdFromName(std::string_view name) { return JobId(StripCollection(name, "jobs/")); }
inline WorkerId WorkerIdFromName(std::string_view name) {
  return WorkerId(StripCollection(name, "workers/"));
}
inline JobId JobIdOf(const v1::Job& job) { return JobIdFromName(job.name()); }

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_RESOURCE_NAMES_H_
