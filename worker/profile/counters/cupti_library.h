#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_LIBRARY_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_LIBRARY_H_

// libcupti, opened at run time: a machine without it runs the same trainer without counters.
//
// Thread rule: thread-safe. Lifetime: once opened it stays open, because CUPTI leaves threads and
// hooks in the process.

#include <cuda.h>
// The order matters: cupti.h defines what the others use.
#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

// Everything of CUPTI that is called, without the prefix "cupti".
#define FSDP_CUPTI_CALLS(X)               \
  X(GetVersion)                           \
  X(GetResultString)                      \
  X(GetStreamIdEx)                        \
  X(ActivityEnable)                       \
  X(ActivityDisable)                      \
  X(ActivityRegisterCallbacks)            \
  X(ActivityRegisterTimestampCallback)    \
  X(ActivityGetNextRecord)                \
  X(ActivityGetNumDroppedRecords)         \
  X(ActivityFlushAll)                     \
  X(DeviceGetChipName)                    \
  X(ProfilerInitialize)                   \
  X(ProfilerDeviceSupported)              \
  X(ProfilerHostInitialize)               \
  X(ProfilerHostDeinitialize)             \
  X(ProfilerHostConfigAddMetrics)         \
  X(ProfilerHostGetConfigImageSize)       \
  X(ProfilerHostGetConfigImage)           \
  X(ProfilerHostGetNumOfPasses)           \
  X(ProfilerHostEvaluateToGpuValues)      \
  X(PmSamplingEnable)                     \
  X(PmSamplingDisable)                    \
  X(PmSamplingSetConfig)                  \
  X(PmSamplingStart)                      \
  X(PmSamplingStop)                       \
  X(PmSamplingDecodeData)                 \
  X(PmSamplingGetCounterAvailability)     \
  X(PmSamplingGetCounterDataSize)         \
  X(PmSamplingCounterDataImageInitialize) \
  X(PmSamplingGetCounterDataInfo)         \
  X(PmSamplingCounterDataGetSampleInfo)

class CuptiLibrary {
 public:
  // Opens the library that belongs to the CUDA this was built with, from the loader's path or the
  // toolkit's usual folder; later calls give the same one.
  //   NOT_FOUND            there is none; the message says what to install
  //   FAILED_PRECONDITION  another version, or one that lacks a call; both are named
  static absl::StatusOr<const CuptiLibrary*> Open();

  // The translator of CUPTI's results, with the call's text.
  //   PERMISSION_DENIED    counters are for administrators only; the message names the remedy
  //   UNAVAILABLE          another tool (ncu, nsys, DCGM) or session holds them
  //   RESOURCE_EXHAUSTED   out of memory
  //   FAILED_PRECONDITION  this device cannot: virtual, MIG, confidential computing, ...
  //   INTERNAL             everything else
  absl::Status ToStatus(CUptiResult result, std::string_view call) const;

#define FSDP_CUPTI_MEMBER(name) decltype(&::cupti##name) name = nullptr;
  FSDP_CUPTI_CALLS(FSDP_CUPTI_MEMBER)
#undef FSDP_CUPTI_MEMBER

 private:
  CuptiLibrary() = default;
  static absl::StatusOr<const CuptiLibrary*> Load();
  absl::Status FindCalls(void* library);
  absl::Status CheckVersion() const;
};

// As ToStatus for the calls that take hold of a device's counters: there CUPTI says "invalid
// operation" when somebody else has them.
absl::Status CuptiClaimToStatus(const CuptiLibrary& cupti, CUptiResult result,
                                std::string_view call);

// One of CUPTI's parameter blocks, zeroed, with its size filled in:
//   auto params = CuptiParams<CUpti_X_Params>(CUpti_X_Params_STRUCT_SIZE);
template <typename Params>
Params CuptiParams(std::size_t struct_size) {
  Params params;
  std::memset(&params, 0, sizeof(params));
  params.structSize = struct_size;
  return params;
}

}  // namespace fsdp

#define FSDP_CUPTI_PARAMS(type, name) auto name = ::fsdp::CuptiParams<type>(type##_STRUCT_SIZE)

// In a function that returns a Status: calls cupti##call(argument) of `library`.
#define FSDP_RETURN_IF_CUPTI_ERROR(library, call, ...)                                         \
  do {                                                                                         \
    if (CUptiResult fsdp_result_ = (library).call(__VA_ARGS__); fsdp_result_ != CUPTI_SUCCESS) \
      return (library).ToStatus(fsdp_result_, "cupti" #call);                                  \
  } while (false)

#define FSDP_RETURN_IF_CUPTI_CLAIM_ERROR(library, call, ...)                                   \
  do {                                                                                         \
    if (CUptiResult fsdp_result_ = (library).call(__VA_ARGS__); fsdp_result_ != CUPTI_SUCCESS) \
      return ::fsdp::CuptiClaimToStatus(library, fsdp_result_, "cupti" #call);                 \
  } while (false)

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_LIBRARY_H_
