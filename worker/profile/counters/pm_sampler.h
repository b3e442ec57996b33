#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_PM_SAMPLER_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_PM_SAMPLER_H_

// PM sampling of one device through CUPTI: counters of the whole device at a fixed interval,
// without replay and without slowing kernels down. A thread takes samples out of the device's
// buffer while it goes on.
//
// Thread rule: one thread at a time.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/profile/counters/cupti_library.h"
#include "worker/profile/counters/cupti_metrics.h"
#include "worker/profile/counters/metric_sets.h"
#include "worker/profile/counters/sample_attribution.h"

namespace fsdp {

class PmSampler {
 public:
  struct Options {
    int device = 0;  // CUDA ordinal
    // On the device; a sample takes about 10 kB there until it is decoded.
    std::size_t hardware_buffer_bytes = std::size_t{64} << 20;
    // Of the image that samples are decoded into, on the host while sampling goes on. It holds all
    // of them: the newest few hundred are never complete before the end, so an image that was to be
    // used again and again would lose them each time. When it is full, sampling is over.
    std::size_t image_bytes = std::size_t{384} << 20;
    std::chrono::milliseconds poll = std::chrono::milliseconds(5);
  };
  struct Samples {
    std::vector<CounterSample> samples;  // in order of time, on CLOCK_MONOTONIC
    double sm_clock_hertz = 0;           // mean
    bool is_full = false;                // before Stop
    std::int64_t num_open = 0;           // populated, and not complete at the end
    // The hardware buffer was full: samples are gone, unknown how many. 0 or 1.
    std::int64_t num_overflows = 0;
    double decode_seconds = 0;
    double evaluate_seconds = 0;
  };

  // Asks the device what it has and plans its chip's metric set. Holds no counters yet.
  //   FAILED_PRECONDITION  the device cannot, or its set does not fit into one pass
  //   others               as CuptiLibrary::ToStatus
  static absl::StatusOr<std::unique_ptr<PmSampler>> Create(const CuptiLibrary& cupti,
                                                           const Options& options);
  ~PmSampler();
  PmSampler(const PmSampler&) = delete;
  PmSampler& operator=(const PmSampler&) = delete;

  // Takes the device's counters and begins. PERMISSION_DENIED, UNAVAILABLE: as ToStatus.
  absl::Status Start(std::chrono::nanoseconds interval);
  // Ends, reads what is left and gives the counters back, whatever the result.
  absl::StatusOr<Samples> Stop();

 private:
  PmSampler(const CuptiLibrary& cupti, const Options& options, const MetricSet& set)
      : cupti_(cupti), options_(options), set_(set) {}
  absl::Status Configure(std::chrono::nanoseconds interval);
  // Bytes of an image for so many samples.
  absl::StatusOr<std::size_t> ImageBytes(std::size_t num_samples) const;
  absl::Status MakeImage();
  void DecodeLoop();
  // Takes what the device has. False: nothing more for now, or the image is full.
  absl::StatusOr<bool> Decode();
  absl::Status TakeCompleted(std::size_t num_completed);
  [[nodiscard]] CounterSample SampleOf(std::span<const double> values) const;
  void Disable();

  const CuptiLibrary& cupti_;
  const Options options_;
  const MetricSet& set_;
  std::unique_ptr<CuptiMetrics> metrics_;
  CUpti_PmSampling_Object* object_ = nullptr;
  // One for all decodes: a sample is populated by one and completed by a later one.
  std::vector<std::uint8_t> image_;
  std::size_t num_taken_ = 0;  // of the image's samples
  std::thread decoder_;
  std::atomic<bool> stopping_{false};
  // Of the decoder while it runs.
  absl::Status decode_status_;
  Samples samples_;
  double clock_sum_ = 0;
  std::int64_t num_clocks_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_PM_SAMPLER_H_
