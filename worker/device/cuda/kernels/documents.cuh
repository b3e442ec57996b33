#ifndef FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_DOCUMENTS_CUH_
#define FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_DOCUMENTS_CUH_

// Which keys and queries meet where sequences are packed from documents. `begins` are those of one
// sequence of `seq` tokens: begins[i] <= i is the first key that query i sees, and they never fall.
// So the keys that a tile of queries sees begin with its first query's, and the queries that see a
// key are neighbours.

#include <cstdint>

namespace fsdp::kernels {

// Of a query; one past the end, which is computed and never stored, is taken for the last.
__device__ __forceinline__ std::int32_t FirstKeyOf(const std::int32_t* begins, std::int64_t query,
                                                   std::int64_t seq) {
  return begins[query < seq ? query : seq - 1];
}

// Behind the last query that sees one of the keys up to `last_key` (< seq): the first whose
// document begins later. It lies in (last_key, seq].
__device__ __forceinline__ std::int64_t QueriesEnd(const std::int32_t* begins,
                                                   std::int64_t last_key, std::int64_t seq) {
  std::int64_t low = last_key + 1;
  std::int64_t high = seq;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (begins[middle] > last_key) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace fsdp::kernels

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_DOCUMENTS_CUH_
