#ifndef FSDPCTL_WORKER_COMM_NCCL_NCCL_MEMORY_H_
#define FSDPCTL_WORKER_COMM_NCCL_NCCL_MEMORY_H_

#include "worker/device/cuda/cuda_device.h"

namespace fsdp {

// Memory that NCCL can register: of the driver's virtual memory API, aligned and shaped as it asks
// (pages of 2 MiB), so that one registration serves every part of a buffer.
ShareableMemory NcclMemory();

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_NCCL_NCCL_MEMORY_H_
