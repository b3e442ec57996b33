#ifndef FSDPCTL_WORKER_TRAIN_MODEL_FILES_H_
#define FSDPCTL_WORKER_TRAIN_MODEL_FILES_H_

// A model as files: which one lies in a folder, what it says to given tokens, and its export.
// One thread's.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/weight_export.h"
#include "worker/device/device.h"
#include "worker/plan/model_config.h"

namespace fsdp {

// Names and shapes of a model's tensors, without memory.
std::vector<ShardTensor> TensorsOf(const ModelConfig& model);

// config.json of a checkpoint's folder, so that the checkpoint can be read without its job. Nothing
// is written where no config.json describes the model.
absl::Status WriteModelConfig(BlobStore& store, const std::string& directory,
                              const ModelConfig& model, std::int64_t sequence_length);

struct TokenBatch {
  std::int64_t sequences = 0;
  std::int64_t sequence_length = 0;
  std::vector<std::int32_t> tokens;  // [sequences, sequence_length]
};

// The integer tensor "tokens" of a safetensors file, [sequence] or [batch, sequence].
//   NOT_FOUND, DATA_LOSS, INVALID_ARGUMENT  names the file
absl::StatusOr<TokenBatch> ReadTokens(const std::string& path);

// Calls `take(sequence, logits [S, V])` for each sequence, with the weights of `path`
// (WeightReader).
//   RESOURCE_EXHAUSTED  the model does not fit the device
absl::Status ComputeLogits(
    const ModelConfig& model, const std::string& path, const TokenBatch& batch, DType dtype,
    BlobStore& store, Device& device,
    const std::function<absl::Status(std::int64_t, std::span<const float>)>& take);

struct ModelExport {
  ModelConfig model;
  std::string source;     // WeightReader's path
  std::string directory;  // made; must not exist
  ExportOptions weights;
  // A folder whose tokenizer files, generation settings and token ids go along; empty: none.
  std::string tokenizer;
  std::int64_t max_positions = 2048;  // for config.json, where the model has none
  // Loads what was written and compares its logits with the source's.
  bool verify = false;
};

struct ExportReport {
  std::vector<std::string> files;
  // Norm-wise, of the logits; -1: not verified.
  double logits_error = -1;
};

// The folder appears whole or not at all.
//   ALREADY_EXISTS       the folder
//   FAILED_PRECONDITION  no config.json describes the model
//   DATA_LOSS            the logits differ by more than dtype's rounding explains
absl::StatusOr<ExportReport> ExportModel(const ModelExport& request, BlobStore& store,
                                         Device& device);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_MODEL_FILES_H_
