#ifndef FSDPCTL_WORKER_COMM_OPERAND_CHECKS_H_
#define FSDPCTL_WORKER_COMM_OPERAND_CHECKS_H_

// What every communicator asks of its operands before anything is sent. All return INVALID_ARGUMENT
// with operation and values in the message.

#include "absl/status/status.h"
#include "worker/device/tensor.h"

namespace fsdp {

// A shard and the unit of `world_size` such shards: one dtype, sizes that fit, apart in memory.
absl::Status CheckShardAndUnit(const char* operation, const Vector& shard, const Vector& unit,
                               int world_size);
// Elements have memory.
absl::Status CheckMemory(const char* operation, const Vector& data);
// f32, bf16, f64 or i32.
absl::Status CheckSummable(const char* operation, DType dtype);
absl::Status CheckRoot(const char* operation, int root, int world_size);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_OPERAND_CHECKS_H_
