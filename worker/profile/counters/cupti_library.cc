#include "worker/profile/counters/cupti_library.h"

#include <dlfcn.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr int kVersionsOfMajor = 10000;  // CUPTI_API_VERSION is 130001 in CUDA 13.0

absl::StatusCode CodeOf(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return absl::StatusCode::kPermissionDenied;
    case CUPTI_ERROR_HARDWARE_BUSY:
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
      return absl::StatusCode::kUnavailable;
    case CUPTI_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUPTI_ERROR_NOT_SUPPORTED:
    case CUPTI_ERROR_NOT_COMPATIBLE:
    case CUPTI_ERROR_API_NOT_IMPLEMENTED:
    case CUPTI_ERROR_INVALID_DEVICE:
    case CUPTI_ERROR_INVALID_METRIC_NAME:
    case CUPTI_ERROR_INVALID_CHIP_NAME:
    case CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

const char* RemedyOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kPermissionDenied:
      return ": reading counters takes root or CAP_SYS_ADMIN, or the driver's option "
             "NVreg_RestrictProfilingToAdminUsers=0 on the host";
    case absl::StatusCode::kUnavailable:
      return ": another profiler (ncu, nsys, DCGM) holds the counters; they are asked for again "
             "later";
    default:
      return "";
  }
}

}  // namespace

absl::Status CuptiLibrary::ToStatus(CUptiResult result, std::string_view call) const {
  if (result == CUPTI_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  if (GetResultString(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown";
  const absl::StatusCode code = CodeOf(result);
  return {code,
          absl::StrFormat("%s: %s (%d)%s", call, name, static_cast<int>(result), RemedyOf(code))};
}

absl::Status CuptiClaimToStatus(const CuptiLibrary& cupti, CUptiResult result,
                                std::string_view call) {
  const bool taken = result == CUPTI_ERROR_INVALID_OPERATION;
  if (!taken) return cupti.ToStatus(result, call);
  return absl::UnavailableError(absl::StrFormat("%s: CUPTI_ERROR_INVALID_OPERATION (%d)%s", call,
                                                static_cast<int>(result),
                                                RemedyOf(absl::StatusCode::kUnavailable)));
}

absl::Status CuptiLibrary::FindCalls(void* library) {
  std::string missing;
#define FSDP_CUPTI_FIND(name)                                               \
  name = reinterpret_cast<decltype(name)>(::dlsym(library, "cupti" #name)); \
  if (name == nullptr) absl::StrAppend(&missing, missing.empty() ? "" : ", ", "cupti" #name);
  FSDP_CUPTI_CALLS(FSDP_CUPTI_FIND)
#undef FSDP_CUPTI_FIND
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("libcupti has no ", missing));
}

absl::Status CuptiLibrary::CheckVersion() const {
  std::uint32_t version = 0;
  FSDP_RETURN_IF_CUPTI_ERROR(*this, GetVersion, &version);
  // Activity records grow at their end between minor versions; an older library's are shorter than
  // what is read here.
  if (version / kVersionsOfMajor == CUPTI_API_VERSION / kVersionsOfMajor &&
      version >= CUPTI_API_VERSION) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "libcupti is version %d, and %d or a later one of the same CUDA major version is needed",
      version, CUPTI_API_VERSION));
}

absl::StatusOr<const CuptiLibrary*> CuptiLibrary::Load() {
  const std::string name = absl::StrCat("libcupti.so.", CUPTI_API_VERSION / kVersionsOfMajor);
  const std::array paths = {name, "/usr/local/cuda/lib64/" + name,
                            "/usr/local/cuda/extras/CUPTI/lib64/" + name};
  void* library = nullptr;
  for (const std::string& path : paths) {
    if (library == nullptr) library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(name,
                     " is not on this machine, so there are no hardware counters: install the CUDA "
                     "toolkit's CUPTI, or put its folder on LD_LIBRARY_PATH"));
  }
  auto* const cupti = new CuptiLibrary();  // never deleted: see the header
  RETURN_IF_ERROR(cupti->FindCalls(library));
  RETURN_IF_ERROR(cupti->CheckVersion());
  return cupti;
}

absl::StatusOr<const CuptiLibrary*> CuptiLibrary::Open() {
  static const absl::StatusOr<const CuptiLibrary*>* const opened =
      new absl::StatusOr<const CuptiLibrary*>(Load());
  return *opened;
}

}  // namespace fsdp
