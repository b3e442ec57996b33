#include "worker/comm/nccl/nccl_memory.h"

#include <nccl.h>

#include "proto/support/status.h"
#include "worker/comm/nccl/nccl_status.h"

namespace fsdp {
namespace {

absl::StatusOr<void*> Allocate(std::size_t size_bytes) {
  void* data = nullptr;
  const ncclResult_t result = ncclMemAlloc(&data, size_bytes);
  // Of no rank, so that NCCL's own words are all there is.
  RETURN_IF_ERROR(NcclToStatus(result, "ncclMemAlloc", 0));
  return data;
}

void Free(void* data) { static_cast<void>(ncclMemFree(data)); }

}  // namespace

ShareableMemory NcclMemory() { return {Allocate, Free}; }

}  // namespace fsdp
