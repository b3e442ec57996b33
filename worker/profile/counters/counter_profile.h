#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_PROFILE_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_PROFILE_H_

// From the windows of a device to a table of its kernel families: kernel records get their families
// by launch order, samples are credited to the families.

#include <cstdint>
#include <mutex>
#include <vector>

#include "proto/support/clock.h"
#include "worker/profile/counters/counter_windows.h"
#include "worker/profile/counters/launch_order.h"
#include "worker/profile/counters/sample_attribution.h"

namespace fsdp {

// What a step puts into one of the driver's streams.
struct StreamOrder {
  std::uint32_t stream = 0;
  std::vector<ExpectedRun> step;
};

// Thread-safe.
class CounterProfile {
 public:
  // `clock` outlives this.
  explicit CounterProfile(const Clock& clock) : clock_(clock) {}

  // The order from now on: once the step's graphs are captured, and when the step changes. The
  // first stream is the one that computes. Kernels of streams that are not named belong to no
  // family.
  void SetOrder(std::vector<StreamOrder> order);

  // A CounterWindows::Reader. What was launched before a window has no records though it runs, so
  // only samples from the computing stream's first record to its last are used. Beside the samples'
  // own reasons it counts as "unassigned" the kernels whose launch is not known.
  CounterWindows::Use Read(const CounterReading& reading);

  // Over all windows so far.
  [[nodiscard]] FamilyCounterTable Table() const;

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<StreamOrder> order_;
  SampleAttribution attribution_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_COUNTER_PROFILE_H_
