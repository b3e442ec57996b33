#ifndef FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_TENSOR_CORE_CUH_
#define FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_TENSOR_CORE_CUH_

// bf16 tiles in shared memory and the warp-wide matrix instructions on them (sm_80 and later).
//
// Fragment layouts of mma.m16n8k16: lane l holds of a 16x8 accumulator c0, c1 = row l/4, columns
// 2(l%4) and the next; c2, c3 = the same eight rows below. Two accumulators side by side, rounded
// to bf16, are the 16x16 left operand of the next product.

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>

namespace fsdp::kernels {

inline constexpr int kTileRows = 64;
inline constexpr int kTileThreads = 128;

// kTileRows rows of D elements in 16-byte chunks; chunk c of row r lies at c ^ (r % 8), so that
// eight rows of one column of chunks fall into different banks.
template <int D>
struct Tile {
  static constexpr int kChunks = D / 8;
  static constexpr int kBytes = kTileRows * D * 2;

  std::uint32_t address;  // in shared memory

  __device__ __forceinline__ std::uint32_t At(int row, int chunk) const {
    return address + (row * kChunks + (chunk ^ (row & 7))) * 16;
  }

  // Starts copying rows [first, first + kTileRows) of one head; what lies past `seq` rows or
  // `head_dim` columns becomes zero.
  __device__ __forceinline__ void StartLoad(const __nv_bfloat16* head, std::int64_t stride,
                                            std::int64_t first, std::int64_t seq,
                                            int head_dim) const {
#pragma unroll
    for (int i = 0; i < kTileRows * kChunks / kTileThreads; ++i) {
      const int index = threadIdx.x + i * kTileThreads;
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      const bool inside = first + row < seq && chunk * 8 < head_dim;
      const __nv_bfloat16* from = head + (inside ? (first + row) * stride + chunk * 8 : 0);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(At(row, chunk)), "l"(from),
                   "r"(inside ? 16 : 0));
    }
  }
};

__device__ __forceinline__ void CommitLoads() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
__device__ __forceinline__ void WaitLoads() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

struct Fragment {
  std::uint32_t r[4];
};

__device__ __forceinline__ Fragment LoadMatrices(std::uint32_t address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(address)
               : "memory");
  return f;
}
__device__ __forceinline__ Fragment LoadMatricesTransposed(std::uint32_t address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(address)
               : "memory");
  return f;
}

// Left operand: rows [row, row + 16), elements [16 k, 16 k + 16).
template <int D>
__device__ __forceinline__ Fragment LoadLeft(const Tile<D>& tile, int row, int k) {
  const int lane = threadIdx.x % 32;
  return LoadMatrices(tile.At(row + lane % 16, 2 * k + lane / 16));
}
// Right operand whose columns are the tile's rows [row, row + 16): r[0], r[1] for the first eight
// columns, r[2], r[3] for the others.
template <int D>
__device__ __forceinline__ Fragment LoadRight(const Tile<D>& tile, int row, int k) {
  const int lane = threadIdx.x % 32;
  return LoadMatrices(tile.At(row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}
// Right operand whose rows are the tile's rows [row, row + 16) and whose columns are its elements
// [16 n, 16 n + 16).
template <int D>
__device__ __forceinline__ Fragment LoadRightRows(const Tile<D>& tile, int row, int n) {
  const int lane = threadIdx.x % 32;
  return LoadMatricesTransposed(tile.At(row + lane % 16, 2 * n + lane / 16));
}

// c += left x (b0, b1)
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const Fragment& left, std::uint32_t b0,
                                            std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(left.r[0]), "r"(left.r[1]), "r"(left.r[2]), "r"(left.r[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ std::uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}
// The left operand that two neighbouring accumulators are.
__device__ __forceinline__ Fragment AsLeft(const float (&first)[4], const float (&second)[4]) {
  return {{PackBf16(first[0], first[1]), PackBf16(first[2], first[3]),
           PackBf16(second[0], second[1]), PackBf16(second[2], second[3])}};
}

__device__ __forceinline__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace fsdp::kernels

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_KERNELS_TENSOR_CORE_CUH_
