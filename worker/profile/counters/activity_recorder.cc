#include "worker/profile/counters/activity_recorder.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "proto/support/status.h"
#include "worker/profile/counters/driver_time.h"

namespace fsdp {
namespace {

constexpr std::size_t kBufferAlignment = 64;  // CUPTI wants 8 at least

// Set once, before the callbacks are registered.
ActivityRecorder* the_recorder = nullptr;

std::uint64_t CUPTIAPI MonotonicNow() {
  return static_cast<std::uint64_t>(ReadClocks().monotonic_ns);
}

template <typename Activity>
KernelRecord RecordOf(const Activity& activity, const ClockPair& now) {
  KernelRecord record;
  record.begin_ns = MonotonicFrom(static_cast<std::int64_t>(activity.start), now);
  record.end_ns = MonotonicFrom(static_cast<std::int64_t>(activity.end), now);
  record.stream = activity.streamId;
  record.correlation = activity.correlationId;
  record.graph = activity.graphId;
  record.graph_node = activity.graphNodeId;
  return record;
}

}  // namespace

absl::StatusOr<ActivityRecorder*> ActivityRecorder::Create(const CuptiLibrary& cupti) {
  the_recorder = new ActivityRecorder(cupti);  // never deleted: see the header
  // Before any kind is enabled, so that all records have times of the trainer's own clock.
  FSDP_RETURN_IF_CUPTI_ERROR(cupti, ActivityRegisterTimestampCallback, &MonotonicNow);
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti, ActivityRegisterCallbacks, &OnBufferRequested,
                                   &OnBufferCompleted);
  return the_recorder;
}

absl::StatusOr<ActivityRecorder*> ActivityRecorder::Get(const CuptiLibrary& cupti) {
  static const auto* const recorder = new absl::StatusOr<ActivityRecorder*>(Create(cupti));
  return *recorder;
}

absl::Status ActivityRecorder::Begin() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    records_ = {};
    recording_ = true;
  }
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti_, ActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti_, ActivityEnable, CUPTI_ACTIVITY_KIND_MEMCPY);
  return absl::OkStatus();
}

absl::StatusOr<ActivityRecorder::Records> ActivityRecorder::End() {
  // All of it, whatever fails on the way.
  absl::Status status =
      cupti_.ToStatus(cupti_.ActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL),
                      "cuptiActivityDisable(CONCURRENT_KERNEL)");
  status.Update(cupti_.ToStatus(cupti_.ActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY),
                                "cuptiActivityDisable(MEMCPY)"));
  // Forced: without it a buffer with one kernel that still runs stays with CUPTI.
  status.Update(cupti_.ToStatus(cupti_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                                "cuptiActivityFlushAll"));
  const std::lock_guard<std::mutex> lock(mutex_);
  recording_ = false;
  Records records = std::exchange(records_, Records());
  RETURN_IF_ERROR(status);
  std::sort(records.kernels.begin(), records.kernels.end(),
            [](const KernelRecord& a, const KernelRecord& b) { return a.begin_ns < b.begin_ns; });
  return records;
}

absl::StatusOr<std::uint32_t> ActivityRecorder::StreamId(CUstream stream) const {
  std::uint32_t id = 0;
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, GetStreamIdEx, nullptr, stream, 0, &id);
  return id;
}

void CUPTIAPI ActivityRecorder::OnBufferRequested(std::uint8_t** buffer, std::size_t* size,
                                                  std::size_t* max_records) {
  *buffer = nullptr;
  *size = 0;
  *max_records = 0;  // as many as fit
  ActivityRecorder& recorder = *the_recorder;
  const std::lock_guard<std::mutex> lock(recorder.mutex_);
  // Without a buffer CUPTI drops records and counts them.
  if (recorder.num_buffers_ >= recorder.limits_.max_buffers) return;
  void* const memory = std::aligned_alloc(kBufferAlignment, recorder.limits_.buffer_bytes);
  if (memory == nullptr) return;
  ++recorder.num_buffers_;
  *buffer = static_cast<std::uint8_t*>(memory);
  *size = recorder.limits_.buffer_bytes;
}

void CUPTIAPI ActivityRecorder::OnBufferCompleted(CUcontext context, std::uint32_t stream,
                                                  std::uint8_t* buffer, std::size_t size,
                                                  std::size_t valid_size) {
  static_cast<void>(size);
  ActivityRecorder& recorder = *the_recorder;
  const std::lock_guard<std::mutex> lock(recorder.mutex_);
  if (buffer != nullptr && valid_size > 0) recorder.TakeBuffer(buffer, valid_size);
  std::size_t num_dropped = 0;
  if (recorder.cupti_.ActivityGetNumDroppedRecords(context, stream, &num_dropped) ==
      CUPTI_SUCCESS) {
    recorder.records_.num_dropped += static_cast<std::int64_t>(num_dropped);
  }
  if (buffer != nullptr) {
    std::free(buffer);
    --recorder.num_buffers_;
  }
}

void ActivityRecorder::TakeBuffer(std::uint8_t* buffer, std::size_t valid_size) {
  CUpti_Activity* record = nullptr;
  while (cupti_.ActivityGetNextRecord(buffer, valid_size, &record) == CUPTI_SUCCESS) {
    TakeRecord(*record);
  }
}

void ActivityRecorder::TakeRecord(const CUpti_Activity& record) {
  if (!recording_) return;  // of a window that is over
  const ClockPair now = ReadClocks();
  KernelRecord kernel;
  if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    kernel = RecordOf(reinterpret_cast<const CUpti_ActivityKernel10&>(record), now);
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    kernel = RecordOf(reinterpret_cast<const CUpti_ActivityMemcpy6&>(record), now);
    kernel.is_copy = true;
  } else {
    return;
  }
  // Both zero: it had not ended when the buffers were asked for.
  if (kernel.begin_ns >= kernel.end_ns) {
    ++records_.num_unfinished;
    return;
  }
  if (records_.kernels.size() >= limits_.max_records) {
    ++records_.num_dropped;
    return;
  }
  records_.kernels.push_back(kernel);
}

}  // namespace fsdp
