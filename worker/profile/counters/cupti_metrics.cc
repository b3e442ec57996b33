#include "worker/profile/counters/cupti_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"

namespace fsdp {

absl::StatusOr<std::unique_ptr<CuptiMetrics>> CuptiMetrics::Create(
    const CuptiLibrary& cupti, std::string chip, std::vector<std::uint8_t> availability,
    std::vector<const char*> names) {
  std::unique_ptr<CuptiMetrics> metrics(
      new CuptiMetrics(cupti, std::move(chip), std::move(availability), std::move(names)));
  RETURN_IF_ERROR(metrics->Plan());
  return metrics;
}

CuptiMetrics::~CuptiMetrics() {
  if (host_ == nullptr) return;
  FSDP_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, params);
  params.pHostObject = host_;
  static_cast<void>(cupti_.ProfilerHostDeinitialize(&params));
}

absl::Status CuptiMetrics::Plan() {
  FSDP_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, open);
  open.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  open.pChipName = chip_.c_str();
  open.pCounterAvailabilityImage = availability_.empty() ? nullptr : availability_.data();
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, ProfilerHostInitialize, &open);
  host_ = open.pHostObject;

  FSDP_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
  add.pHostObject = host_;
  add.ppMetricNames = names_.data();
  add.numMetrics = names_.size();
  // An unknown metric is an invalid parameter to CUPTI, which does not say which one it is.
  const CUptiResult added = cupti_.ProfilerHostConfigAddMetrics(&add);
  if (added == CUPTI_ERROR_INVALID_PARAMETER) {
    return absl::FailedPreconditionError(absl::StrCat("cuptiProfilerHostConfigAddMetrics: chip ",
                                                      chip_, " lacks one of ",
                                                      absl::StrJoin(names_, ", ")));
  }
  RETURN_IF_ERROR(cupti_.ToStatus(added, "cuptiProfilerHostConfigAddMetrics"));

  FSDP_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
  size.pHostObject = host_;
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, ProfilerHostGetConfigImageSize, &size);
  config_.assign(size.configImageSize, 0);

  FSDP_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
  image.pHostObject = host_;
  image.configImageSize = config_.size();
  image.pConfigImage = config_.data();
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, ProfilerHostGetConfigImage, &image);

  FSDP_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, passes);
  passes.configImageSize = config_.size();
  passes.pConfigImage = config_.data();
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, ProfilerHostGetNumOfPasses, &passes);
  num_passes_ = passes.numOfPasses;
  return absl::OkStatus();
}

absl::Status CuptiMetrics::Evaluate(std::span<const std::uint8_t> counter_data, std::size_t index,
                                    std::span<double> values) {
  FSDP_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, params);
  params.pHostObject = host_;
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = index;
  params.ppMetricNames = names_.data();
  params.numMetrics = names_.size();
  params.pMetricValues = values.data();
  FSDP_RETURN_IF_CUPTI_ERROR(cupti_, ProfilerHostEvaluateToGpuValues, &params);
  return absl::OkStatus();
}

}  // namespace fsdp
