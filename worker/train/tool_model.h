#ifndef FSDPCTL_WORKER_TRAIN_TOOL_MODEL_H_
#define FSDPCTL_WORKER_TRAIN_TOOL_MODEL_H_

// The model that a tool is asked for.

#include <string>

#include "absl/status/statusor.h"
#include "worker/plan/model_config.h"
#include "worker/train/tool_flags.h"

namespace fsdp {

// A preset, a config.json (or a peer's), or a folder that holds one.
//   INVALID_ARGUMENT  as NoSuchModel; names what is wrong with the file
absl::StatusOr<ModelConfig> NamedModel(const std::string& name);

// --model NAME|FILE (required): a preset, a config.json, or its folder; --layers, --vocab, --dim
// and
// --heads instead of the preset's, --layers instead of the file's.
//   INVALID_ARGUMENT  names the flag or the model's field, the value and what it may be
absl::StatusOr<ModelConfig> ModelFromFlags(const ToolFlags& flags);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TOOL_MODEL_H_
