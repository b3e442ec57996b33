#ifndef FSDPCTL_WORKER_DEVICE_CPU_CPU_ATTENTION_H_
#define FSDPCTL_WORKER_DEVICE_CPU_CPU_ATTENTION_H_

// Attention on the CPU: one task per head (backward: per key-value head), blocks of queries against
// all keys that they may see. A document is attended to as a sequence of its own. Scores are kept
// for one block only; backward forms them again from lse. bf16 operands are widened per head and
// computed in f32.
//
// Causality is exact even for NaN: the product with v of a block's own diagonal tile reads only
// visible rows of v.
//
// Arguments have been checked by the caller (cpu_ops); runs at once on the pool.
//   INTERNAL  a oneDNN call failed.

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/thread_pool.h"
#include "worker/device/ops.h"

namespace fsdp::cpu {

std::size_t CpuAttentionScratchBytes(const AttentionShape& shape, DType dtype, bool backward,
                                     int num_threads);

absl::Status CpuAttentionForward(const KernelSet& kernels, ThreadPool& pool, const Matrix& qkv,
                                 const AttentionShape& shape,
                                 std::span<const std::int32_t> document_begins, const Matrix& out,
                                 const Vector& lse, std::span<std::byte> scratch);

absl::Status CpuAttentionBackward(const KernelSet& kernels, ThreadPool& pool, const Matrix& d_out,
                                  const Matrix& qkv, const Matrix& out, const Vector& lse,
                                  const AttentionShape& shape,
                                  std::span<const std::int32_t> document_begins,
                                  const Matrix& d_qkv, std::span<std::byte> scratch);

}  // namespace fsdp::cpu

#endif  // FSDPCTL_WORKER_DEVICE_CPU_CPU_ATTENTION_H_
