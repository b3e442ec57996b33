#include "worker/comm/nccl/nccl_status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:
      return absl::StatusCode::kUnavailable;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status NcclToStatus(ncclResult_t result, std::string_view call, int rank,
                          ncclComm_t communicator) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  std::string text =
      absl::StrCat("rank ", rank, ": ", ToAbsl(call), ": ", ncclGetErrorString(result));
  const char* last = ncclGetLastError(communicator);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (", last, ")");
  return {CodeOf(result), text};
}

}  // namespace fsdp
