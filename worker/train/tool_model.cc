#include "worker/train/tool_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "worker/plan/config_json.h"
#include "worker/train/oracle_file.h"

namespace fsdp {
namespace {

bool IsPreset(const std::string& name) {
  const std::vector<std::string> presets = PresetNames();
  return std::find(presets.begin(), presets.end(), name) != presets.end();
}

}  // namespace

absl::StatusOr<ModelConfig> NamedModel(const std::string& name) {
  if (IsPreset(name)) {
    v1::ModelSpec spec;
    spec.set_preset(name);
    return ResolveModel(spec);
  }
  const bool folder = std::filesystem::is_directory(name);
  const std::string path = folder ? absl::StrCat(name, "/", kConfigName) : name;
  std::ifstream file(path);
  if (!file) {
    return NoSuchModel(name);
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  absl::StatusOr<ModelConfig> model = ModelFromPeerConfig(text);
  if (!model.ok()) return Annotate(model.status(), path);
  return model;
}

absl::StatusOr<ModelConfig> ModelFromFlags(const ToolFlags& flags) {
  const std::string name = flags.Text("model", "");
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model is missing: give a preset (", absl::StrJoin(PresetNames(), ", "),
                     "), a config.json or its folder, as in --model llama-tiny"));
  }
  if (!IsPreset(name)) {
    ASSIGN_OR_RETURN(ModelConfig model, NamedModel(name));
    ASSIGN_OR_RETURN(const std::int64_t layers, flags.Integer("layers", model.num_layers, 1, 4096));
    model.num_layers = static_cast<int>(layers);
    return model;
  }
  v1::ModelSpec spec;
  spec.set_preset(name);
  ASSIGN_OR_RETURN(const std::int64_t layers, flags.Integer("layers", 0, 1, 4096));
  ASSIGN_OR_RETURN(const std::int64_t vocab, flags.Integer("vocab", 0, 2, 1 << 24));
  ASSIGN_OR_RETURN(const std::int64_t dim, flags.Integer("dim", 0, 1, 1 << 17));
  ASSIGN_OR_RETURN(const std::int64_t heads, flags.Integer("heads", 0, 1, 4096));
  if (layers > 0) spec.set_num_layers(static_cast<int>(layers));
  if (vocab > 0) spec.set_vocab_size(vocab);
  if (dim > 0) spec.set_dim(dim);
  if (heads > 0) spec.set_num_heads(static_cast<int>(heads));
  return ResolveModel(spec);
}

}  // namespace fsdp
