#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_NNLS_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_NNLS_H_

// Non-negative least squares of a few unknowns, from the normal equations.
//
// Pure; thread-safe.

#include <cstddef>
#include <span>
#include <vector>

namespace fsdp {

// A symmetric positive semi-definite matrix A'A, whole, by rows.
class NormalMatrix {
 public:
  explicit NormalMatrix(std::size_t size) : size_(size), values_(size * size, 0.0) {}
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] double at(std::size_t row, std::size_t column) const {
    return values_[row * size_ + column];
  }
  double& at(std::size_t row, std::size_t column) { return values_[row * size_ + column]; }

 private:
  std::size_t size_;
  std::vector<double> values_;
};

// x >= 0 that makes |Ax - b| least, of A'A and A'b, by Lawson and Hanson's active sets. Where
// several x do, it is one of them. At most a few dozen unknowns: each round solves one system.
std::vector<double> SolveNonNegative(const NormalMatrix& matrix, std::span<const double> target);

// For each unknown, how well the others can stand for it: the diagonal of (A'A)^-1. Infinite where
// the others determine it, that is where data cannot tell it apart.
std::vector<double> InverseDiagonal(const NormalMatrix& matrix);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_NNLS_H_
