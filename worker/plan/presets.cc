#include "worker/plan/presets.h"

#include <algorithm>

namespace fsdp::internal {
namespace {

struct Sizes {
  std::int64_t vocab, dim;
  int layers, heads, kv_heads;
  std::int64_t head_dim, mlp_dim;
};

ModelConfig Sized(const char* name, ModelFamily family, const Sizes& sizes) {
  ModelConfig model = FamilyDefaults(family);
  model.name = name;
  model.vocab_size = sizes.vocab;
  model.dim = sizes.dim;
  model.num_layers = sizes.layers;
  model.num_heads = sizes.heads;
  model.num_kv_heads = sizes.kv_heads;
  model.head_dim = sizes.head_dim;
  model.mlp_dim = sizes.mlp_dim;
  return model;
}

ModelConfig Llama(const char* name, const Sizes& sizes, double rope_theta) {
  ModelConfig model = Sized(name, ModelFamily::kLlama, sizes);
  model.rope_theta = rope_theta;
  return model;
}

// Qwen2.5: biases on q, k and v, tied head.
ModelConfig Qwen(const char* name, const Sizes& sizes) {
  ModelConfig model = Llama(name, sizes, 1e6);
  model.norm_eps = 1e-6;
  model.qkv_bias = true;
  model.tie_embeddings = true;
  return model;
}

ModelConfig Gpt2(const char* name, const Sizes& sizes, std::int64_t positions) {
  ModelConfig model = Sized(name, ModelFamily::kGpt2, sizes);
  model.max_positions = positions;
  return model;
}

std::vector<ModelConfig> MakePresets() {
  const auto mini = ModelFamily::kMiniLlm;
  return {
      Sized("minillm", mini, {32000, 2048, 12, 16, 16, 128, 8192}),
      Sized("minillm-tiny", mini, {256, 64, 2, 4, 4, 16, 256}),
      // GPT-2's 50257 tokens padded to a multiple of 64, as benchmarks of it do; released weights
      // are imported with their own config.json.
      Gpt2("gpt2", {50304, 768, 12, 12, 12, 64, 3072}, 1024),
      Gpt2("gpt2-medium", {50304, 1024, 24, 16, 16, 64, 4096}, 1024),
      Gpt2("gpt2-large", {50304, 1280, 36, 20, 20, 64, 5120}, 1024),
      Gpt2("gpt2-xl", {50304, 1600, 48, 25, 25, 64, 6400}, 1024),
      Gpt2("gpt2-tiny", {256, 64, 2, 4, 4, 16, 256}, 64),
      Llama("llama-tiny", {256, 64, 2, 4, 2, 16, 176}, 10000),
      Llama("llama-bytes", {256, 256, 4, 4, 2, 64, 768}, 10000),
      Llama("llama1b", {128256, 2048, 16, 32, 8, 64, 8192}, 500000),
      Llama("llama8b", {128256, 4096, 32, 32, 8, 128, 14336}, 500000),
      Qwen("qwen05b", {151936, 896, 24, 14, 2, 64, 4864}),
      Qwen("qwen15b", {151936, 1536, 28, 12, 2, 128, 8960}),
  };
}

const std::vector<ModelConfig>& Presets() {
  static const std::vector<ModelConfig>* presets = new std::vector<ModelConfig>(MakePresets());
  return *presets;
}

}  // namespace

ModelConfig FamilyDefaults(ModelFamily family) {
  ModelConfig model;
  model.family = family;
  switch (family) {
    case ModelFamily::kMiniLlm:
      model.norm_eps = 1.1920929e-07;
      model.causal = false;
      model.qkv_bias = true;
      model.attn_out_bias = true;
      model.final_norm = false;
      model.packed_qkv = true;
      break;
    case ModelFamily::kGpt2:
      model.norm = NormKind::kLayer;
      model.position = PositionKind::kLearned;
      model.mlp = MlpKind::kGelu;
      model.qkv_bias = true;
      model.attn_out_bias = true;
      model.mlp_bias = true;
      model.tie_embeddings = true;
      model.packed_qkv = true;
      model.weights_in_out = true;
      model.max_positions = 1024;
      break;
    case ModelFamily::kLlama:
      model.position = PositionKind::kRope;
      model.mlp = MlpKind::kSwiGlu;
      break;
  }
  return model;
}

const ModelConfig* FindPreset(const std::string& name) {
  for (const ModelConfig& preset : Presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

std::vector<std::string> SortedPresetNames() {
  std::vector<std::string> names;
  for (const ModelConfig& preset : Presets()) names.push_back(preset.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace fsdp::internal
