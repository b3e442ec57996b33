#ifndef FSDPCTL_COORDINATOR_STORE_COPY_STORE_H_
#define FSDPCTL_COORDINATOR_STORE_COPY_STORE_H_

// All of one store into another, of whatever kinds. The jobs and workers themselves come last, in
// one batch: a copy that broke off left a store without any, which counts as empty.

#include <cstdint>

#include "absl/status/statusor.h"
#include "coordinator/store/job_store.h"

namespace fsdp::coordinator {

struct CopyCounts {
  std::int64_t jobs = 0;
  std::int64_t workers = 0;
  std::int64_t events = 0;
  std::int64_t log_lines = 0;
  std::int64_t steps = 0;
};

//   FAILED_PRECONDITION  `to` has jobs or workers
//   and those of the stores
absl::StatusOr<CopyCounts> CopyStore(JobStore& from, JobStore& to);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_COPY_STORE_H_
