#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_ACTIVITY_RECORDER_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_ACTIVITY_RECORDER_H_

// The driver's records of every kernel and copy of this process, through CUPTI's activity API:
// kinds CONCURRENT_KERNEL (graph nodes one by one) and MEMCPY. GRAPH_TRACE is never asked for: it
// crashes inside CUPTI 13.0.
//
// Thread rule: Create, Begin and End from one thread at a time; CUPTI calls back on its own.
// Lifetime: CUPTI has one pair of callbacks a process, without an argument, so there is one
// recorder a process; it is never destroyed.

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/profile/counters/cupti_library.h"
#include "worker/profile/counters/launch_order.h"

namespace fsdp {

class ActivityRecorder {
 public:
  struct Records {
    std::vector<KernelRecord> kernels;  // by begin
    // Lost in CUPTI for want of a buffer, or here beyond max_records.
    std::int64_t num_dropped = 0;
    // Still running when recording ended.
    std::int64_t num_unfinished = 0;
  };
  struct Limits {
    std::size_t buffer_bytes = std::size_t{1} << 20;  // about 5000 records
    std::size_t max_buffers = 32;                     // held by CUPTI at once
    std::size_t max_records = 1'000'000;
  };

  // Registers the callbacks and the clock, once; later calls give the same recorder. Before the
  // first Begin of anything.
  static absl::StatusOr<ActivityRecorder*> Get(const CuptiLibrary& cupti);

  // Forgets what was recorded and begins.
  absl::Status Begin();
  // Ends. Waits for CUPTI to hand over its buffers, not for the device.
  absl::StatusOr<Records> End();

  // The number of a stream of the current context in records.
  absl::StatusOr<std::uint32_t> StreamId(CUstream stream) const;

 private:
  explicit ActivityRecorder(const CuptiLibrary& cupti) : cupti_(cupti) {}
  static absl::StatusOr<ActivityRecorder*> Create(const CuptiLibrary& cupti);
  static void CUPTIAPI OnBufferRequested(std::uint8_t** buffer, std::size_t* size,
                                         std::size_t* max_records);
  static void CUPTIAPI OnBufferCompleted(CUcontext context, std::uint32_t stream,
                                         std::uint8_t* buffer, std::size_t size,
                                         std::size_t valid_size);
  void TakeBuffer(std::uint8_t* buffer, std::size_t valid_size);
  void TakeRecord(const CUpti_Activity& record);

  const CuptiLibrary& cupti_;
  const Limits limits_{};
  std::mutex mutex_;  // guards everything below
  bool recording_ = false;
  std::size_t num_buffers_ = 0;  // that CUPTI holds
  Records records_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_ACTIVITY_RECORDER_H_
