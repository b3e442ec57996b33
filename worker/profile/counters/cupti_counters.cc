#include "worker/profile/counters/cupti_counters.h"

#include <algorithm>
#include <utility>

#include "proto/support/status.h"
#include "worker/profile/counters/activity_recorder.h"
#include "worker/profile/counters/cupti_library.h"
#include "worker/profile/counters/driver_time.h"
#include "worker/profile/counters/pm_sampler.h"

namespace fsdp {
namespace {

double SecondsBetween(const ClockPair& begin, const ClockPair& end) {
  return static_cast<double>(end.monotonic_ns - begin.monotonic_ns) * 1e-9;
}

class CuptiCounters final : public CounterDriver {
 public:
  explicit CuptiCounters(const CuptiCountersOptions& options) : options_(options) {}
  ~CuptiCounters() override {
    if (sampling_) static_cast<void>(End());
  }

  absl::Status Begin(Pace pace) override {
    const ClockPair begin = ReadClocks();
    RETURN_IF_ERROR(Open());
    RETURN_IF_ERROR(
        sampler_->Start(pace == Pace::kShort ? options_.interval : options_.long_interval));
    if (const absl::Status status = recorder_->Begin(); !status.ok()) {
      static_cast<void>(recorder_->End());
      static_cast<void>(sampler_->Stop());
      return status;
    }
    sampling_ = true;
    // Both are on from here.
    const ClockPair now = ReadClocks();
    begin_ns_ = now.monotonic_ns;
    enable_seconds_ = SecondsBetween(begin, now);
    return absl::OkStatus();
  }

  absl::StatusOr<CounterReading> End() override {
    const ClockPair begin = ReadClocks();
    sampling_ = false;
    // The samples first: meanwhile kernels that still run come to their end and into the records.
    absl::StatusOr<PmSampler::Samples> samples = sampler_->Stop();
    absl::StatusOr<ActivityRecorder::Records> records = recorder_->End();
    RETURN_IF_ERROR(records.status());
    RETURN_IF_ERROR(samples.status());
    CounterReading reading;
    reading.begin_ns = begin_ns_;
    reading.end_ns = begin.monotonic_ns;
    // Beyond a full image there was a window, but no samples.
    if (samples->is_full && !samples->samples.empty()) {
      reading.end_ns = std::min(reading.end_ns, samples->samples.back().end_ns);
    }
    reading.samples = std::move(samples->samples);
    reading.kernels = std::move(records->kernels);
    reading.sm_clock_hertz = samples->sm_clock_hertz;
    reading.dropped["overflow"] = samples->num_overflows + records->num_dropped;
    // What the end of the window, or of the image, cut off.
    reading.dropped["edge"] = records->num_unfinished + (samples->is_full ? samples->num_open : 0);
    reading.dropped["late"] = samples->is_full ? 0 : samples->num_open;
    reading.overhead_seconds["enable"] =
        std::exchange(enable_seconds_, 0) + SecondsBetween(begin, ReadClocks());
    reading.overhead_seconds["decode"] = samples->decode_seconds;
    reading.overhead_seconds["evaluate"] = samples->evaluate_seconds;
    return reading;
  }

 private:
  absl::Status Open() {
    if (sampler_ != nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const CuptiLibrary* const cupti, CuptiLibrary::Open());
    ASSIGN_OR_RETURN(recorder_, ActivityRecorder::Get(*cupti));
    PmSampler::Options options;
    options.device = options_.device;
    ASSIGN_OR_RETURN(sampler_, PmSampler::Create(*cupti, options));
    return absl::OkStatus();
  }

  const CuptiCountersOptions options_;
  ActivityRecorder* recorder_ = nullptr;
  std::unique_ptr<PmSampler> sampler_;
  bool sampling_ = false;
  std::int64_t begin_ns_ = 0;
  double enable_seconds_ = 0;
};

}  // namespace

std::unique_ptr<CounterDriver> CreateCuptiCounters(const CuptiCountersOptions& options) {
  return std::make_unique<CuptiCounters>(options);
}

absl::StatusOr<std::uint32_t> CuptiStreamId(void* cuda_stream) {
  ASSIGN_OR_RETURN(const CuptiLibrary* const cupti, CuptiLibrary::Open());
  ASSIGN_OR_RETURN(ActivityRecorder* const recorder, ActivityRecorder::Get(*cupti));
  return recorder->StreamId(static_cast<CUstream>(cuda_stream));
}

}  // namespace fsdp
