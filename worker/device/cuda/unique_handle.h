#ifndef FSDPCTL_WORKER_DEVICE_CUDA_UNIQUE_HANDLE_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_UNIQUE_HANDLE_H_

// Sole owner of a C handle (stream, event, library context). `Destroy` is called once with a
// non-null handle; its result is ignored, because destruction happens on paths that have already
// reported their error.

#include <utility>

namespace fsdp {

template <typename T, auto Destroy>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(T handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() {
    if (handle_ != T{}) static_cast<void>(Destroy(handle_));
  }

  [[nodiscard]] T get() const { return handle_; }
  // Where a C create function writes the new handle; only on an empty owner.
  [[nodiscard]] T* receive() { return &handle_; }

 private:
  T handle_{};
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_UNIQUE_HANDLE_H_
