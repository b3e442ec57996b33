#ifndef FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_CACHE_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_CACHE_H_

// Algorithms of cuBLASLt that were found by timing, on disk, so that only a machine's first trainer
// spends the time. One file for a device model and a library version; a line is a shape and the
// library's opaque algorithm in hexadecimal. A file that is missing, damaged or of others is an
// empty cache: timing fills it again.
//
// Thread rule: one thread. Several processes may write the same file: each replaces it whole
// (rename), so the last one's lines stay.

#include <cublasLt.h>

#include <map>
#include <optional>
#include <string>

namespace fsdp {

class MatMulCache {
 public:
  // `directory` empty: nothing is read or written. `device` is its model name.
  MatMulCache(const std::string& directory, const std::string& device);

  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> Find(const std::string& shape) const;
  // Also writes the file; what cannot be written is timed again another time.
  void Put(const std::string& shape, const cublasLtMatmulAlgo_t& algorithm);

  [[nodiscard]] std::size_t size() const { return lines_.size(); }

 private:
  void Read();
  void Write() const;

  std::string path_;
  std::map<std::string, std::string> lines_;  // shape -> hexadecimal
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_MATMUL_CACHE_H_
