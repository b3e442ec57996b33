#ifndef FSDPCTL_WORKER_COMM_HOST_REDUCE_H_
#define FSDPCTL_WORKER_COMM_HOST_REDUCE_H_

// Sums over ranks in host memory. The order is the rank order and each sum is rounded to the dtype
// once, so every communicator that uses it gives the same bits.

#include <cstdint>
#include <span>

#include "worker/device/dtype.h"

namespace fsdp {

// out[i] = sources[0][i] + sources[1][i] + ... for `size` elements of f32, bf16 (summed in f32),
// f64 or i32; `out` may be one of the sources.
void SumInOrder(DType dtype, std::span<const void* const> sources, std::int64_t size, void* out);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_HOST_REDUCE_H_
