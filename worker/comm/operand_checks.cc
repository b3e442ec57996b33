#include "worker/comm/operand_checks.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp {

absl::Status CheckShardAndUnit(const char* operation, const Vector& shard, const Vector& unit,
                               int world_size) {
  if (shard.dtype != unit.dtype) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the shard is %s, the unit %s", operation,
                                                      NameOf(shard.dtype), NameOf(unit.dtype)));
  }
  if (shard.size < 0 || unit.size != shard.size * world_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: a shard of %d elements on %d ranks needs a unit of %d, not %d",
                        operation, shard.size, world_size, shard.size * world_size, unit.size));
  }
  if (shard.size > 0 && (shard.data == nullptr || unit.data == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": an operand has no memory"));
  }
  const auto* shard_begin = static_cast<const std::byte*>(shard.data);
  const auto* unit_begin = static_cast<const std::byte*>(unit.data);
  if (shard.size > 0 && shard_begin < unit_begin + unit.size_bytes() &&
      unit_begin < shard_begin + shard.size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": the shard lies inside the unit"));
  }
  return absl::OkStatus();
}

absl::Status CheckMemory(const char* operation, const Vector& data) {
  if (data.size < 0 || (data.size > 0 && data.data == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d elements without memory", operation, data.size));
  }
  return absl::OkStatus();
}

absl::Status CheckSummable(const char* operation, DType dtype) {
  if (dtype != DType::kU16) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %s cannot be summed; use f32, bf16, f64 or i32", operation, NameOf(dtype)));
}

absl::Status CheckRoot(const char* operation, int root, int world_size) {
  if (root >= 0 && root < world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: root %d is not a rank of %d", operation, root, world_size));
}

}  // namespace fsdp
