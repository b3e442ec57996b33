#ifndef FSDPCTL_WORKER_MODEL_ROPE_TABLE_H_
#define FSDPCTL_WORKER_MODEL_ROPE_TABLE_H_

// Cosines and sines of rotary position embedding, computed on the host in f64.

#include <cstdint>
#include <vector>

#include "worker/plan/model_config.h"

namespace fsdp {

struct RopeTable {
  std::vector<double> cos;  // [S, Dh/2]
  std::vector<double> sin;  // [S, Dh/2]
};

RopeTable MakeRopeTable(const ModelConfig& model, std::int64_t sequence_length);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_MODEL_ROPE_TABLE_H_
