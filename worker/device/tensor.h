#ifndef FSDPCTL_WORKER_DEVICE_TENSOR_H_
#define FSDPCTL_WORKER_DEVICE_TENSOR_H_

// Non-owning views of device memory. They carry the element count and the dtype so that elements
// and bytes cannot be mixed up; they never own, allocate or free. On the CPU backend `data` is host
// memory.

#include <cstdint>

#include "worker/device/dtype.h"

namespace fsdp {

// A row-major matrix; row r starts at element r * stride.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements between rows, >= cols

  static Matrix Packed(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
    return {data, dtype, rows, cols, cols};
  }
  [[nodiscard]] bool empty() const { return data == nullptr || rows == 0 || cols == 0; }
};

// A contiguous run of elements.
struct Vector {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t size = 0;  // elements

  [[nodiscard]] bool empty() const { return data == nullptr || size == 0; }
  [[nodiscard]] std::int64_t size_bytes() const {
    return size * static_cast<std::int64_t>(SizeOf(dtype));
  }
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_TENSOR_H_
