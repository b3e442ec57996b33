#ifndef FSDPCTL_WORKER_PLAN_CONFIG_JSON_H_
#define FSDPCTL_WORKER_PLAN_CONFIG_JSON_H_

// A model's description as Hugging Face's config.json, both ways: model_type gpt2, llama, mistral,
// qwen2 and qwen3, and minillm with keys of its own.
//
// Reading is strict: a key that changes the mathematics is honoured or refused by name, and so is
// one that is not known. Keys that say nothing about the mathematics (token ids, generation, who
// wrote it) are passed over. Dropout is left out of training with a warning in ModelConfig.
//
// Thread-safe: no state.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/plan/json_object.h"
#include "worker/plan/model_config.h"

namespace fsdp {

inline constexpr char kConfigName[] = "config.json";

//   INVALID_ARGUMENT  everything that is wrong, joined by "; ": key, value, what is possible
absl::StatusOr<ModelConfig> ModelFromConfigJson(std::string_view text);

// `path` is the file, or the folder that holds it.
//   NOT_FOUND, PERMISSION_DENIED  as the system says
//   INVALID_ARGUMENT              as above, and a file that is too large; names the file
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path);

// The members of a config.json other than "model_type", whose value is `type`, into a model. What
// is wrong is left in `in`, whose Finish the caller calls.
ModelConfig ReadConfigMembers(JsonObject& in, const std::string& type);

struct ConfigJsonOptions {
  // Of the weights beside it: "float32", "bfloat16", "float16".
  std::string dtype = "float32";
  // Of models whose ModelConfig has none (rope).
  std::int64_t max_positions = 0;
};

// What ReadModelConfig reads to the same model. tie_word_embeddings, rope_theta and rope_parameters
// are always spelled out, and rope_scaling for readers that do not know the last.
//   FAILED_PRECONDITION  no model_type describes such a model; says what stands in the way
absl::StatusOr<nlohmann::json> ModelToConfigJson(const ModelConfig& model,
                                                 const ConfigJsonOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_CONFIG_JSON_H_
