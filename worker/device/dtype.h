#ifndef FSDPCTL_WORKER_DEVICE_DTYPE_H_
#define FSDPCTL_WORKER_DEVICE_DTYPE_H_

// Element types of tensors and of collective payloads. No backend headers: included by worker/plan,
// which the coordinator and the client link too.

#include <cstddef>
#include <cstdint>

namespace fsdp {

enum class DType : std::uint8_t { kF64, kF32, kBf16, kI32, kU16 };

constexpr std::size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kU16:
      return 2;
  }
  return 0;
}

constexpr const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kU16:
      return "u16";
  }
  return "unknown";
}

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_DTYPE_H_
