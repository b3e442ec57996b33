#ifndef FSDPCTL_WORKER_DEVICE_OP_CHECKS_H_
#define FSDPCTL_WORKER_DEVICE_OP_CHECKS_H_

// Checks of an operation's operands. Each check names the operand and both values; the first one
// that fails is kept:
//   OpChecks check("RmsNormForward");
//   check.Matrix("x", x, dtype, rows, cols).Vector("weight", weight, dtype, cols);
//   if (!check.status().ok()) return check.status();

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "worker/device/ops.h"
#include "worker/device/tensor.h"

namespace fsdp {

// The dtype of sums and statistics: f64 for f64 operands, f32 otherwise.
inline DType SumType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

class OpChecks {
 public:
  explicit OpChecks(const char* op) : op_(op) {}

  // `x` is [rows, cols] of `dtype`, with data unless it has no elements.
  OpChecks& Matrix(const char* name, const fsdp::Matrix& x, DType dtype, std::int64_t rows,
                   std::int64_t cols);
  OpChecks& Vector(const char* name, const fsdp::Vector& x, DType dtype, std::int64_t size);
  OpChecks& OneOf(const char* name, DType dtype, std::initializer_list<DType> allowed);
  OpChecks& Scratch(std::span<std::byte> scratch, std::size_t needed_bytes);
  // Any other condition; `message` starts with the operand's name.
  OpChecks& That(bool condition, const std::string& message);
  // Head geometry, and that `qkv` fits it.
  OpChecks& Heads(const char* name, const fsdp::Matrix& qkv, const AttentionShape& shape);
  // What `shape` says of documents, and that `begins` fits it.
  OpChecks& Documents(const AttentionShape& shape, std::span<const std::int32_t> begins);
  // Of an embedding of `tokens`: `positions` of `dtype`, with the rows that `seq` and `ids` need.
  OpChecks& Positions(const char* name, const fsdp::Matrix& positions, DType dtype,
                      std::int64_t cols, std::int64_t seq, std::span<const std::int32_t> ids,
                      std::int64_t tokens);
  // An even head_dim, and that the tables, of dtype `sums`, fit it.
  OpChecks& RopeTables(const fsdp::Matrix& cos, const fsdp::Matrix& sin,
                       const AttentionShape& shape, DType sums);
  // Those and the rest of the operands.
  OpChecks& QkNorm(const char* name, const fsdp::Matrix& qkv, const AttentionShape& shape,
                   const QkNormOperands& operands);

  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  void Fail(const std::string& message);

  const char* op_;
  absl::Status status_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_OP_CHECKS_H_
