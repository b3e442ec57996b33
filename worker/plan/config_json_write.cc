// The other direction of config_json.cc.

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "worker/plan/config_json.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

absl::Status CannotDescribe(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat("no config.json describes ", what));
}

Json MiniLlmJson(const ModelConfig& m) {
  return {{"model_type", "minillm"},  {"vocab_size", m.vocab_size}, {"dim", m.dim},
          {"n_layers", m.num_layers}, {"n_heads", m.num_heads},     {"mlp_dim", m.mlp_dim},
          {"norm_eps", m.norm_eps},   {"causal", m.causal}};
}

Json Gpt2Json(const ModelConfig& m) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"layer_norm_epsilon", m.norm_eps},
          {"n_embd", m.dim},
          {"n_head", m.num_heads},
          {"n_inner", m.mlp_dim},
          {"n_layer", m.num_layers},
          {"n_positions", m.max_positions},
          {"scale_attn_weights", true},
          {"vocab_size", m.vocab_size}};
}

Json RopeJson(const ModelConfig& m) {
  const RopeScalingConfig& s = m.rope_scaling;
  Json json = {{"rope_theta", m.rope_theta}, {"rope_type", "default"}};
  switch (s.type) {
    case RopeScalingConfig::Type::kNone:
      return json;
    case RopeScalingConfig::Type::kLinear:
      json["rope_type"] = "linear";
      json["factor"] = s.factor;
      return json;
    case RopeScalingConfig::Type::kLlama3:
      json["rope_type"] = "llama3";
      json["low_freq_factor"] = s.low_freq_factor;
      json["high_freq_factor"] = s.high_freq_factor;
      break;
    case RopeScalingConfig::Type::kYarn:
      json["rope_type"] = "yarn";
      json["beta_fast"] = s.beta_fast;
      json["beta_slow"] = s.beta_slow;
      if (s.attention_factor > 0) json["attention_factor"] = s.attention_factor;
      break;
  }
  json["factor"] = s.factor;
  json["original_max_position_embeddings"] = s.original_max_positions;
  return json;
}

// The type whose switches the model has.
absl::StatusOr<std::string> LlamaTypeOf(const ModelConfig& m) {
  if (!m.causal) return CannotDescribe("a llama that sees the future (mask full)");
  const bool window = m.sliding_window > 0;
  if (m.qk_norm) {
    if (m.qkv_bias != m.attn_out_bias || m.mlp_bias || window) {
      return CannotDescribe("a q/k norm with these biases or a sliding window");
    }
    return "qwen3";
  }
  if (m.qkv_bias == m.attn_out_bias) {
    const bool plain = !m.qkv_bias && !m.mlp_bias;
    if (plain && (window || m.name == "mistral")) return "mistral";
    if (window) return CannotDescribe("biases with a sliding window");
    return "llama";
  }
  if (!m.qkv_bias || m.mlp_bias || window) {
    return CannotDescribe("these biases: on the output projection or the MLP, not on q, k, v");
  }
  return "qwen2";
}

absl::StatusOr<Json> LlamaJson(const ModelConfig& m, std::int64_t max_positions) {
  absl::StatusOr<std::string> type = LlamaTypeOf(m);
  if (!type.ok()) return type.status();
  const Json rope = RopeJson(m);
  const bool scaled = m.rope_scaling.type != RopeScalingConfig::Type::kNone;
  Json json = {{"model_type", *type},
               {"attention_dropout", 0.0},
               {"head_dim", m.head_dim},
               {"hidden_act", "silu"},
               {"hidden_size", m.dim},
               {"intermediate_size", m.mlp_dim},
               {"max_position_embeddings", m.max_positions > 0 ? m.max_positions : max_positions},
               {"num_attention_heads", m.num_heads},
               {"num_hidden_layers", m.num_layers},
               {"num_key_value_heads", m.num_kv_heads},
               {"rms_norm_eps", m.norm_eps},
               {"rope_parameters", rope},
               {"rope_scaling", scaled ? rope : Json()},
               {"rope_theta", m.rope_theta},
               {"vocab_size", m.vocab_size}};
  if (*type == "llama" || *type == "qwen3") json["attention_bias"] = m.qkv_bias;
  if (*type == "llama") json["mlp_bias"] = m.mlp_bias;
  if (*type == "mistral")
    json["sliding_window"] = m.sliding_window > 0 ? Json(m.sliding_window) : Json();
  if (*type == "qwen2" || *type == "qwen3") json["use_sliding_window"] = false;
  const std::string name = *type == "llama"     ? "Llama"
                           : *type == "mistral" ? "Mistral"
                           : *type == "qwen2"   ? "Qwen2"
                                                : "Qwen3";
  json["architectures"] = {name + "ForCausalLM"};
  return json;
}

}  // namespace

absl::StatusOr<Json> ModelToConfigJson(const ModelConfig& model, const ConfigJsonOptions& options) {
  absl::StatusOr<Json> json = Json();
  switch (model.family) {
    case ModelFamily::kMiniLlm:
      if (!model.qkv_bias) return CannotDescribe("a minillm without biases on q, k, v");
      json = MiniLlmJson(model);
      break;
    case ModelFamily::kGpt2:
      if (!model.qkv_bias) return CannotDescribe("a gpt2 without biases on q, k, v");
      if (!model.causal) return CannotDescribe("a gpt2 that sees the future (mask full)");
      json = Gpt2Json(model);
      break;
    case ModelFamily::kLlama:
      json = LlamaJson(model, options.max_positions);
      break;
  }
  if (!json.ok()) return json;
  (*json)["initializer_range"] = model.init_std;
  (*json)["tie_word_embeddings"] = model.tie_embeddings;
  // The older and the newer name.
  (*json)["torch_dtype"] = (*json)["dtype"] = options.dtype;
  (*json)["use_cache"] = true;
  return json;
}

}  // namespace fsdp
