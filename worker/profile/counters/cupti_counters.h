#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_COUNTERS_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_COUNTERS_H_

// The counter driver of a CUDA device: PM sampling and activity records side by side. No CUPTI
// header is needed to use it; where the build had none, it says so.

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/profile/counters/counter_driver.h"

namespace fsdp {

struct CuptiCountersOptions {
  int device = 0;  // CUDA ordinal in this process
  std::chrono::nanoseconds interval = std::chrono::microseconds(25);        // of samples
  std::chrono::nanoseconds long_interval = std::chrono::microseconds(100);  // at Pace::kLong
};

// Never fails: what is missing shows in its first Begin, which also does what takes long (about
// half a second) once.
std::unique_ptr<CounterDriver> CreateCuptiCounters(const CuptiCountersOptions& options);

// The number that kernel records give to a CUDA stream (cudaStream_t) of the current context.
//   NOT_FOUND, FAILED_PRECONDITION  no CUPTI
absl::StatusOr<std::uint32_t> CuptiStreamId(void* cuda_stream);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_COUNTERS_H_
