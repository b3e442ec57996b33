#include "worker/profile/counters/pm_sampler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/profile/counters/driver_time.h"

namespace fsdp {
namespace {

using SteadyClock = std::chrono::steady_clock;

// After the stop; each takes what the device has. A driver that never says "no more" must not keep
// the trainer.
constexpr int kMaxDrains = 1000;
constexpr std::size_t kFewSamples = 64;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

absl::Status CheckDevice(const CuptiLibrary& cupti, int device) {
  FSDP_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, initialize);
  FSDP_RETURN_IF_CUPTI_ERROR(cupti, ProfilerInitialize, &initialize);
  FSDP_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params, supported);
  supported.cuDevice = device;
  supported.api = CUPTI_PROFILER_PM_SAMPLING;
  FSDP_RETURN_IF_CUPTI_ERROR(cupti, ProfilerDeviceSupported, &supported);
  if (supported.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return absl::OkStatus();
  const auto bad = [](CUpti_Profiler_Support_Level level) {
    return level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  };
  return absl::FailedPreconditionError(absl::StrFormat(
      "device %d has no PM sampling (architecture %d, virtual GPU %d, confidential computing %d, "
      "SLI %d; 1: in the way)",
      device, bad(supported.architecture), bad(supported.vGpu), bad(supported.confidentialCompute),
      bad(supported.sli)));
}

absl::StatusOr<std::string> ChipName(const CuptiLibrary& cupti, int device) {
  FSDP_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, params);
  params.deviceIndex = static_cast<std::size_t>(device);
  FSDP_RETURN_IF_CUPTI_ERROR(cupti, DeviceGetChipName, &params);
  return std::string(params.pChipName == nullptr ? "" : params.pChipName);
}

absl::StatusOr<std::vector<std::uint8_t>> Availability(const CuptiLibrary& cupti, int device) {
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_GetCounterAvailability_Params, params);
  params.deviceIndex = static_cast<std::size_t>(device);
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti, PmSamplingGetCounterAvailability, &params);
  std::vector<std::uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti, PmSamplingGetCounterAvailability, &params);
  return image;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PmSampler>> PmSampler::Create(const CuptiLibrary& cupti,
                                                             const Options& options) {
  RETURN_IF_ERROR(CheckDevice(cupti, options.device));
  ASSIGN_OR_RETURN(std::string chip, ChipName(cupti, options.device));
  ASSIGN_OR_RETURN(std::vector<std::uint8_t> available, Availability(cupti, options.device));
  const MetricSet& set = MetricSetFor(chip);
  std::unique_ptr<PmSampler> sampler(new PmSampler(cupti, options, set));
  std::vector<const char*> names;
  for (const CounterMetric& metric : set.metrics) names.push_back(metric.name);
  ASSIGN_OR_RETURN(sampler->metrics_,
                   CuptiMetrics::Create(cupti, chip, std::move(available), std::move(names)));
  if (sampler->metrics_->num_passes() != 1) {
    return absl::FailedPreconditionError(
        absl::StrFormat("metric set %s takes %d passes on chip %s, and PM sampling has one",
                        set.name, sampler->metrics_->num_passes(), chip));
  }
  return sampler;
}

PmSampler::~PmSampler() {
  if (object_ != nullptr) static_cast<void>(Stop());
}

absl::Status PmSampler::Start(std::chrono::nanoseconds interval) {
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_Enable_Params, enable);
  enable.deviceIndex = static_cast<std::size_t>(options_.device);
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti_, PmSamplingEnable, &enable);
  object_ = enable.pPmSamplingObject;
  if (const absl::Status status = Configure(interval); !status.ok()) {
    Disable();
    return status;
  }
  samples_ = {};
  clock_sum_ = 0;
  num_clocks_ = 0;
  decode_status_ = absl::OkStatus();
  stopping_ = false;
  decoder_ = std::thread([this] { DecodeLoop(); });
  return absl::OkStatus();
}

absl::Status PmSampler::Configure(std::chrono::nanoseconds interval) {
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_SetConfig_Params, config);
  config.pPmSamplingObject = object_;
  config.configSize = metrics_->config().size();
  config.pConfig = metrics_->config().data();
  config.hardwareBufferSize = options_.hardware_buffer_bytes;
  config.samplingInterval = static_cast<std::uint64_t>(interval.count());
  config.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  // A full buffer is said to be full; the other mode overwrites samples silently.
  config.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti_, PmSamplingSetConfig, &config);

  RETURN_IF_ERROR(MakeImage());
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_Start_Params, start);
  start.pPmSamplingObject = object_;
  FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(cupti_, PmSamplingStart, &start);
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> PmSampler::ImageBytes(std::size_t num_samples) const {
  std::vector<const char*> names = metrics_->names();
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_GetCounterDataSize_Params, size);
  size.pPmSamplingObject = object_;
  size.pMetricNames = names.data();
  size.numMetrics = names.size();
  size.maxSamples = static_cast<std::uint32_t>(num_samples);
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, PmSamplingGetCounterDataSize, &size);
  return size.counterDataSize;
}

absl::Status PmSampler::MakeImage() {
  // Beside what each sample takes an image has a part that does not grow.
  ASSIGN_OR_RETURN(const std::size_t few, ImageBytes(kFewSamples));
  ASSIGN_OR_RETURN(const std::size_t more, ImageBytes(2 * kFewSamples));
  const std::size_t each = std::max<std::size_t>(1, (more - few) / kFewSamples);
  const std::size_t num_samples = std::max(kFewSamples, options_.image_bytes / each);
  ASSIGN_OR_RETURN(const std::size_t bytes, ImageBytes(num_samples));
  image_.resize(bytes);
  num_taken_ = 0;
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params, params);
  params.pPmSamplingObject = object_;
  params.counterDataSize = image_.size();
  params.pCounterData = image_.data();
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, PmSamplingCounterDataImageInitialize, &params);
  return absl::OkStatus();
}

void PmSampler::DecodeLoop() {
  while (!stopping_ && decode_status_.ok() && !samples_.is_full) {
    const absl::StatusOr<bool> more = Decode();
    decode_status_ = more.status();
    if (more.ok() && !*more) std::this_thread::sleep_for(options_.poll);
  }
}

absl::StatusOr<bool> PmSampler::Decode() {
  const SteadyClock::time_point begin = SteadyClock::now();
  const std::size_t taken_before = num_taken_;
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_DecodeData_Params, decode);
  decode.pPmSamplingObject = object_;
  decode.pCounterDataImage = image_.data();
  decode.counterDataImageSize = image_.size();
  const CUptiResult result = cupti_.PmSamplingDecodeData(&decode);
  // An overflow is an error to CUPTI too; the samples before it are good.
  if (result != CUPTI_ERROR_OUT_OF_MEMORY) {
    RETURN_IF_ERROR(cupti_.ToStatus(result, "cuptiPmSamplingDecodeData"));
  }
  if (decode.overflow != 0 || result == CUPTI_ERROR_OUT_OF_MEMORY) samples_.num_overflows = 1;
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params, info);
  info.pCounterDataImage = image_.data();
  info.counterDataImageSize = image_.size();
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, PmSamplingGetCounterDataInfo, &info);
  RETURN_IF_ERROR(TakeCompleted(info.numCompletedSamples));
  samples_.num_open =
      static_cast<std::int64_t>(info.numPopulatedSamples - info.numCompletedSamples);
  samples_.is_full =
      decode.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL ||
      info.numPopulatedSamples >= info.numTotalSamples;
  samples_.decode_seconds += SecondsSince(begin);
  // After an overflow the driver goes on saying so, whether or not anything comes.
  const bool is_over = samples_.num_overflows > 0 && num_taken_ == taken_before;
  return decode.decodeStopReason != CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS &&
         !samples_.is_full && !is_over;
}

absl::Status PmSampler::TakeCompleted(std::size_t num_completed) {
  const SteadyClock::time_point begin = SteadyClock::now();
  const ClockPair now = ReadClocks();
  std::vector<double> values(metrics_->names().size());
  for (; num_taken_ < num_completed; ++num_taken_) {
    FSDP_CUPTI_PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params, info);
    info.pPmSamplingObject = object_;
    info.pCounterDataImage = image_.data();
    info.counterDataImageSize = image_.size();
    info.sampleIndex = num_taken_;
    FSDP_RETURN_IF_CUPTI_ERROR(cupti_, PmSamplingCounterDataGetSampleInfo, &info);
    RETURN_IF_ERROR(metrics_->Evaluate(image_, num_taken_, values));
    CounterSample sample = SampleOf(values);
    sample.begin_ns = MonotonicFrom(static_cast<std::int64_t>(info.startTimestamp), now);
    sample.end_ns = MonotonicFrom(static_cast<std::int64_t>(info.endTimestamp), now);
    samples_.samples.push_back(sample);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (set_.metrics[i].role != CounterRole::kSmClock || !std::isfinite(values[i])) continue;
      clock_sum_ += values[i];
      ++num_clocks_;
    }
  }
  const double seconds = SecondsSince(begin);
  samples_.evaluate_seconds += seconds;
  samples_.decode_seconds -= seconds;  // the caller counts both
  return absl::OkStatus();
}

CounterSample PmSampler::SampleOf(std::span<const double> values) const {
  CounterSample sample;
  double instructions = 0;
  bool has_throughput = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double ratio = values[i] / 100;
    switch (set_.metrics[i].role) {
      case CounterRole::kSmThroughput:
        sample.sm = ratio;
        has_throughput = true;
        break;
      case CounterRole::kHbmThroughput:
        sample.hbm = ratio;
        break;
      case CounterRole::kTensorActive:
        sample.tensor = ratio;
        break;
      case CounterRole::kInstructions:
        instructions = ratio;
        break;
      case CounterRole::kSmActive:
      case CounterRole::kSmClock:
        break;
    }
  }
  if (!has_throughput) sample.sm = std::max(instructions, sample.tensor);
  return sample;
}

absl::StatusOr<PmSampler::Samples> PmSampler::Stop() {
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_Stop_Params, stop);
  stop.pPmSamplingObject = object_;
  const absl::Status stopped = cupti_.ToStatus(cupti_.PmSamplingStop(&stop), "cuptiPmSamplingStop");
  stopping_ = true;
  if (decoder_.joinable()) decoder_.join();
  absl::Status status = decode_status_;
  status.Update(stopped);
  for (int i = 0; i < kMaxDrains && status.ok() && !samples_.is_full; ++i) {
    const absl::StatusOr<bool> more = Decode();
    status.Update(more.status());
    if (more.ok() && !*more) break;
  }
  Disable();
  image_ = std::vector<std::uint8_t>();
  RETURN_IF_ERROR(status);
  if (num_clocks_ > 0) samples_.sm_clock_hertz = clock_sum_ / static_cast<double>(num_clocks_);
  return std::exchange(samples_, Samples());
}

void PmSampler::Disable() {
  FSDP_CUPTI_PARAMS(CUpti_PmSampling_Disable_Params, params);
  params.pPmSamplingObject = object_;
  static_cast<void>(cupti_.PmSamplingDisable(&params));
  object_ = nullptr;
}

}  // namespace fsdp
