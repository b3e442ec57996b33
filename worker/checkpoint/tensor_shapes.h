#ifndef FSDPCTL_WORKER_CHECKPOINT_TENSOR_SHAPES_H_
#define FSDPCTL_WORKER_CHECKPOINT_TENSOR_SHAPES_H_

// The strict comparison of names and shapes that every load begins with.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/shard_tensor.h"

namespace fsdp {

using TensorShapes = std::map<std::string, std::vector<std::int64_t>>;

// "[2,3]".
std::string ShapeText(const std::vector<std::int64_t>& shape);

// Every difference between what is there and what the model wants, in one message.
//   INVALID_ARGUMENT  names missing, misshapen and extra tensors
absl::Status CompareShapes(const std::string& where, const TensorShapes& there,
                           std::span<const ShardTensor> wanted);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_TENSOR_SHAPES_H_
