#include "worker/device/op_checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp {

void OpChecks::Fail(const std::string& message) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(op_, ": ", message));
}

OpChecks& OpChecks::Matrix(const char* name, const fsdp::Matrix& x, DType dtype, std::int64_t rows,
                           std::int64_t cols) {
  if (x.dtype != dtype) {
    Fail(absl::StrFormat("%s is %s, must be %s", name, NameOf(x.dtype), NameOf(dtype)));
  } else if (x.rows != rows || x.cols != cols) {
    Fail(absl::StrFormat("%s is [%d, %d], must be [%d, %d]", name, x.rows, x.cols, rows, cols));
  } else if (rows < 0 || cols < 0) {
    Fail(absl::StrFormat("%s is [%d, %d], must not be negative", name, rows, cols));
  } else if (x.stride < cols) {
    Fail(
        absl::StrFormat("%s has stride %d, must be at least its %d columns", name, x.stride, cols));
  } else if (x.data == nullptr && rows > 0 && cols > 0) {
    Fail(absl::StrFormat("%s has no data, must be [%d, %d]", name, rows, cols));
  }
  return *this;
}

OpChecks& OpChecks::Vector(const char* name, const fsdp::Vector& x, DType dtype,
                           std::int64_t size) {
  if (x.dtype != dtype) {
    Fail(absl::StrFormat("%s is %s, must be %s", name, NameOf(x.dtype), NameOf(dtype)));
  } else if (x.size != size || size < 0) {
    Fail(absl::StrFormat("%s has %d elements, must have %d", name, x.size, size));
  } else if (x.data == nullptr && size > 0) {
    Fail(absl::StrFormat("%s has no data, must have %d elements", name, size));
  }
  return *this;
}

OpChecks& OpChecks::OneOf(const char* name, DType dtype, std::initializer_list<DType> allowed) {
  std::string names;
  for (const DType candidate : allowed) {
    if (dtype == candidate) return *this;
    absl::StrAppend(&names, names.empty() ? "" : " or ", NameOf(candidate));
  }
  Fail(absl::StrFormat("%s is %s, must be %s", name, NameOf(dtype), names));
  return *this;
}

OpChecks& OpChecks::Scratch(std::span<std::byte> scratch, std::size_t needed_bytes) {
  if (scratch.size() < needed_bytes) {
    Fail(absl::StrFormat("scratch has %d bytes, must have %d", scratch.size(), needed_bytes));
  }
  return *this;
}

OpChecks& OpChecks::That(bool condition, const std::string& message) {
  if (!condition) Fail(message);
  return *this;
}

OpChecks& OpChecks::Heads(const char* name, const fsdp::Matrix& qkv, const AttentionShape& shape) {
  if (shape.num_heads < 1 || shape.num_kv_heads < 1 || shape.num_heads % shape.num_kv_heads != 0 ||
      shape.head_dim < 1 || shape.batch < 0 || shape.seq < 0) {
    Fail(absl::StrFormat(
        "shape has batch %d, seq %d, num_heads %d, num_kv_heads %d, head_dim %d; "
        "num_kv_heads must divide num_heads and none may be negative",
        shape.batch, shape.seq, shape.num_heads, shape.num_kv_heads, shape.head_dim));
    return *this;
  }
  OneOf(name, qkv.dtype, {DType::kF32, DType::kBf16, DType::kF64});
  return Matrix(name, qkv, qkv.dtype, shape.batch * shape.seq,
                (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim);
}

OpChecks& OpChecks::Documents(const AttentionShape& shape, std::span<const std::int32_t> begins) {
  That(shape.causal || !shape.documents, "shape has documents, which need causal");
  const std::int64_t expected = shape.documents ? shape.batch * shape.seq : 0;
  return That(static_cast<std::int64_t>(begins.size()) == expected,
              absl::StrFormat("document_begins has %d tokens, must have %d: shape has documents %s",
                              begins.size(), expected, shape.documents ? "true" : "false"));
}

OpChecks& OpChecks::Positions(const char* name, const fsdp::Matrix& positions, DType dtype,
                              std::int64_t cols, std::int64_t seq,
                              std::span<const std::int32_t> ids, std::int64_t tokens) {
  const auto num_ids = static_cast<std::int64_t>(ids.size());
  That(num_ids == 0 || num_ids == tokens,
       absl::StrFormat("position_ids has %d tokens, must have none or %d", num_ids, tokens));
  if (positions.data == nullptr) {
    return That(num_ids == 0, absl::StrFormat("%s is empty, and position_ids is not", name));
  }
  That(seq >= 1, absl::StrFormat("seq is %d, must be at least 1", seq));
  That(positions.rows >= seq,
       absl::StrFormat("%s has %d rows, must have at least %d", name, positions.rows, seq));
  return Matrix(name, positions, dtype, positions.rows, cols);
}

OpChecks& OpChecks::RopeTables(const fsdp::Matrix& cos, const fsdp::Matrix& sin,
                               const AttentionShape& shape, DType sums) {
  That(shape.head_dim % 2 == 0,
       absl::StrFormat("head_dim is %d, must be even for rotary positions", shape.head_dim));
  Matrix("cos", cos, sums, shape.seq, shape.head_dim / 2);
  return Matrix("sin", sin, sums, shape.seq, shape.head_dim / 2);
}

OpChecks& OpChecks::QkNorm(const char* name, const fsdp::Matrix& qkv, const AttentionShape& shape,
                           const QkNormOperands& operands) {
  const DType sums = SumType(qkv.dtype);
  const std::int64_t heads = shape.num_heads + shape.num_kv_heads;
  Heads(name, qkv, shape);
  RopeTables(operands.cos, operands.sin, shape, sums);
  Vector("q_weight", operands.q_weight, qkv.dtype, shape.head_dim);
  Vector("k_weight", operands.k_weight, qkv.dtype, shape.head_dim);
  Matrix("raw", operands.raw, qkv.dtype, qkv.rows, heads * shape.head_dim);
  return Vector("rstd", operands.rstd, sums, heads * qkv.rows);
}

}  // namespace fsdp
