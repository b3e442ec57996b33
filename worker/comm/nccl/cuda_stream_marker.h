#ifndef FSDPCTL_WORKER_COMM_NCCL_CUDA_STREAM_MARKER_H_
#define FSDPCTL_WORKER_COMM_NCCL_CUDA_STREAM_MARKER_H_

#include "worker/comm/recording_communicator.h"

namespace fsdp {

// Marks in CUDA streams. A mark runs on a thread of the driver, before what the stream holds behind
// it; so after Synchronize of the stream no mark is outstanding. It must be short and call nothing
// of CUDA. It costs the stream some microseconds, which collectives hide behind computation.
StreamMarker CudaStreamMarker();

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_NCCL_CUDA_STREAM_MARKER_H_
