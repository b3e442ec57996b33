#ifndef FSDPCTL_WORKER_TRAIN_ORACLE_FILE_H_
#define FSDPCTL_WORKER_TRAIN_ORACLE_FILE_H_

// A training oracle: a small model's initial weights, its batches and what a peer implementation
// gets from them. One safetensors file with init.<name>, grad0.<name>, final.<name>, tokens and
// targets [steps, batch, seq], loss_fp32, grad_norm_fp32, loss_bf16 [steps], and the metadata key
// "config": {"model": {...}, "optimizer": {...}, "batch", "seq", "steps"}.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/optim/schedule.h"
#include "worker/plan/model_config.h"

namespace fsdp {

struct OracleFile {
  std::string path;
  ModelConfig model;
  OptimizerConfig optimizer;
  std::int64_t batch = 0;
  std::int64_t sequence_length = 0;
  std::int64_t steps = 0;
  std::vector<std::int32_t> tokens;                         // [steps, batch, seq]
  std::vector<std::int32_t> targets;                        // [steps, batch, seq]
  std::vector<float> loss_fp32, grad_norm_fp32, loss_bf16;  // [steps]
  // By parameter name.
  std::map<std::string, std::vector<float>> initial, first_gradient, final;

  //   NOT_FOUND, DATA_LOSS  as SafetensorsFile::Open
  //   INVALID_ARGUMENT      a key of the configuration is unknown or missing, or a tensor is
  //                         missing, misshapen or not of this model; names it
  static absl::StatusOr<OracleFile> Load(const std::string& path);
};

// The model part of an oracle's configuration (the keys of the peers' own configurations).
absl::StatusOr<ModelConfig> ModelFromPeerConfig(const std::string& json);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_ORACLE_FILE_H_
