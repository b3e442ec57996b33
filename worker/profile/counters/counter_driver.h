#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_DRIVER_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_DRIVER_H_

// What reads a device's hardware counters and kernel records, and what it returns. CUPTI is behind
// it on a GPU (cupti_counters.h), a fake in tests.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/profile/counters/launch_order.h"
#include "worker/profile/counters/sample_attribution.h"

namespace fsdp {

// One window. All times are of CLOCK_MONOTONIC.
struct CounterReading {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  // In order of time, the first one included.
  std::vector<CounterSample> samples;
  // By begin.
  std::vector<KernelRecord> kernels;
  // Hertz, mean over the samples; 0: unknown.
  double sm_clock_hertz = 0;
  // By reason, as in fsdp.v1.ProfilerHealth.
  std::map<std::string, std::int64_t> dropped;
  // Of the host, by kind, as there.
  std::map<std::string, double> overhead_seconds;
};

// Thread rule: one thread at a time. Its calls may take a while; nobody else waits for them.
class CounterDriver {
 public:
  // A driver that is sampling stops.
  virtual ~CounterDriver() = default;

  // How long a window is to last: a driver has room for so many samples of one.
  enum class Pace : std::uint8_t {
    kShort,  // a tenth of a second or so, samples as close as kernels of some 30 us want them
    kLong    // half a second
  };

  // Takes hold of the counters and begins.
  //   PERMISSION_DENIED                counters are for administrators only
  //   UNAVAILABLE, RESOURCE_EXHAUSTED  another tool has them, or memory is short: later
  //   NOT_FOUND, FAILED_PRECONDITION   never on this machine or device
  //   INTERNAL                         anything else
  virtual absl::Status Begin(Pace pace) = 0;
  // Ends what Begin began and gives the counters back, whatever the result.
  virtual absl::StatusOr<CounterReading> End() = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_DRIVER_H_
