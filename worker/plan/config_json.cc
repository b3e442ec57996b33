#include "worker/plan/config_json.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "proto/support/strict_json.h"
#include "worker/plan/presets.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxNesting = 6;

// What every config.json may say besides: nothing of it is mathematics of the model.
constexpr const char* kPassedOver[] = {"_attn_implementation_autoset",
                                       "_name_or_path",
                                       "bad_words_ids",
                                       "begin_suppress_tokens",
                                       "bos_token_id",
                                       "chunk_size_feed_forward",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "dtype",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "eos_token_id",
                                       "exponential_decay_length_penalty",
                                       "finetuning_task",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "id2label",
                                       "is_decoder",
                                       "label2id",
                                       "length_penalty",
                                       "max_length",
                                       "min_length",
                                       "name_or_path",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_return_sequences",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_scores",
                                       "pad_token_id",
                                       "prefix",
                                       "pretraining_tp",
                                       "problem_type",
                                       "remove_invalid_values",
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
                                       "sep_token_id",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "tf_legacy_loss",
                                       "tokenizer_class",
                                       "top_k",
                                       "top_p",
                                       "torch_dtype",
                                       "torchscript",
                                       "transformers_version",
                                       "typical_p",
                                       "use_bfloat16",
                                       "use_cache"};

void WantText(JsonObject& in, const char* name, const char* wanted) {
  const std::string text = in.Text(name, wanted);
  if (text != wanted) {
    in.Refuse(absl::StrCat(name, " \"", text, "\" is not in this release: it must be ", wanted));
  }
}

void WantBool(JsonObject& in, const char* name, bool wanted) {
  if (in.Bool(name, wanted) == wanted) return;
  in.Refuse(absl::StrCat(name, wanted ? " false" : " true", " is not in this release"));
}

void WarnOfDropout(JsonObject& in, const char* name, ModelConfig& model) {
  const double probability = in.Number(name, 0);
  if (probability == 0) return;
  model.warnings.push_back(
      absl::StrCat(name, " of ", probability, " is left out: training here has no dropout"));
}

void CheckArchitectures(JsonObject& in, const char* wanted) {
  const Json* names = in.Member("architectures", true);
  if (names == nullptr || !names->is_array() || names->empty()) return;
  if (std::find(names->begin(), names->end(), Json(wanted)) == names->end()) {
    in.Refuse(absl::StrCat("architectures ", names->dump(), " must be [\"", wanted, "\"]"));
  }
}

// Members that every type has, or must not have.
void ReadCommon(JsonObject& in, ModelConfig& model) {
  for (const char* name : kPassedOver) in.Ignore(name);
  for (const char* name : {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"}) {
    WantBool(in, name, false);
  }
  if (const Json* heads = in.Member("pruned_heads", true); heads != nullptr && !heads->empty()) {
    in.Refuse("pruned_heads is not in this release");
  }
  if (in.Member("quantization_config", true) != nullptr) {
    in.Refuse("quantization_config is not in this release: give unquantised weights");
  }
  model.init_std = in.Number("initializer_range", 0.02);
}

void SetSizes(ModelConfig& model, std::int64_t vocab, std::int64_t dim, std::int64_t layers,
              std::int64_t heads) {
  model.vocab_size = vocab;
  model.dim = dim;
  model.num_layers = static_cast<int>(std::clamp<std::int64_t>(layers, 0, 1 << 30));
  model.num_heads = static_cast<int>(std::clamp<std::int64_t>(heads, 0, 1 << 30));
}

void SetHeadDim(JsonObject& in, ModelConfig& model, std::int64_t head_dim) {
  if (head_dim == 0 && model.num_heads > 0 && model.dim % model.num_heads != 0) {
    in.Refuse(absl::StrCat(model.num_heads, " heads do not divide ", model.dim));
  }
  model.head_dim = head_dim > 0 || model.num_heads < 1 ? head_dim : model.dim / model.num_heads;
}

void ReadMiniLlm(JsonObject& in, ModelConfig& model) {
  SetSizes(model, in.Integer("vocab_size"), in.Integer("dim"), in.Integer("n_layers"),
           in.Integer("n_heads"));
  model.num_kv_heads = model.num_heads;
  SetHeadDim(in, model, 0);
  model.mlp_dim = in.Integer("mlp_dim", 4 * model.dim);
  model.norm_eps = in.Number("norm_eps", model.norm_eps);
  model.causal = in.Bool("causal", model.causal);
  model.tie_embeddings = in.Bool("tie_word_embeddings", model.tie_embeddings);
}

void ReadGpt2(JsonObject& in, ModelConfig& model) {
  CheckArchitectures(in, "GPT2LMHeadModel");
  SetSizes(model, in.Integer("vocab_size", 50257), in.Integer("n_embd", 768),
           in.Integer("n_layer", 12), in.Integer("n_head", 12));
  model.num_kv_heads = model.num_heads;
  SetHeadDim(in, model, 0);
  model.max_positions = in.Integer("n_positions", 1024);
  model.norm_eps = in.Number("layer_norm_epsilon", 1e-5);
  model.mlp_dim = in.Integer("n_inner", 4 * model.dim);
  model.tie_embeddings = in.Bool("tie_word_embeddings", true);
  WantText(in, "activation_function", "gelu_new");
  WantBool(in, "scale_attn_weights", true);
  WantBool(in, "scale_attn_by_inverse_layer_idx", false);
  WantBool(in, "reorder_and_upcast_attn", false);
  for (const char* name : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    WarnOfDropout(in, name, model);
  }
  // Of the classification head, and what n_positions says again.
  for (const char* name : {"n_ctx", "summary_activation", "summary_first_dropout",
                           "summary_proj_to_labels", "summary_type", "summary_use_proj"}) {
    in.Ignore(name);
  }
}

// The attention factor that mscale and mscale_all_dim stand for.
double AttentionFactor(JsonObject& in, double factor) {
  const double given = in.Number("attention_factor", 0);
  const double one = in.Number("mscale", 0);
  const double all = in.Number("mscale_all_dim", 0);
  if (given != 0 || one == 0 || all == 0 || factor <= 1) return given;
  return (0.1 * one * std::log(factor) + 1) / (0.1 * all * std::log(factor) + 1);
}

struct Rope {
  double theta = 0;  // 0: not given
  RopeScalingConfig scaling;

  bool operator==(const Rope& other) const {
    const RopeScalingConfig& a = scaling;
    const RopeScalingConfig& b = other.scaling;
    return a.type == b.type && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
           a.high_freq_factor == b.high_freq_factor &&
           a.original_max_positions == b.original_max_positions && a.beta_fast == b.beta_fast &&
           a.beta_slow == b.beta_slow && a.attention_factor == b.attention_factor;
  }
};

void ReadScaling(JsonObject& in, const std::string& type, std::int64_t max_positions,
                 RopeScalingConfig& scaling) {
  const auto original = [&] {
    return in.Integer("original_max_position_embeddings", max_positions);
  };
  if (type == "linear") {
    scaling.type = RopeScalingConfig::Type::kLinear;
    scaling.factor = in.Number("factor");
    in.Ignore("original_max_position_embeddings");
  } else if (type == "llama3") {
    scaling.type = RopeScalingConfig::Type::kLlama3;
    scaling.factor = in.Number("factor");
    scaling.low_freq_factor = in.Number("low_freq_factor");
    scaling.high_freq_factor = in.Number("high_freq_factor");
    scaling.original_max_positions = original();
  } else if (type == "yarn") {
    scaling.type = RopeScalingConfig::Type::kYarn;
    scaling.factor = in.Number("factor");
    scaling.original_max_positions = original();
    scaling.beta_fast = in.Number("beta_fast", 32);
    scaling.beta_slow = in.Number("beta_slow", 1);
    scaling.attention_factor = AttentionFactor(in, scaling.factor);
    WantBool(in, "truncate", true);
    in.Ignore("finetuned");
  } else if (type != "default") {
    in.Refuse(absl::StrCat("rope_type \"", type, "\" is none of default, linear, llama3, yarn"));
  }
}

Rope ReadRope(const Json& json, const char* name, std::int64_t max_positions, JsonObject& outer) {
  JsonObject in(json, name);
  Rope rope;
  // "type" is what older files call it.
  const std::string older = in.Text("type", "default");
  const std::string type = in.Text("rope_type", older);
  if (in.Names("type") && type != older) in.Refuse("type and rope_type differ");
  rope.theta = in.Number("rope_theta", 0);
  if (in.Number("partial_rotary_factor", 1) != 1) {
    in.Refuse("partial_rotary_factor must be 1: heads are rotated whole");
  }
  ReadScaling(in, type, max_positions, rope.scaling);
  if (const absl::Status status = in.Finish(); !status.ok()) {
    outer.Refuse(std::string(status.message()));
  }
  return rope;
}

// transformers 5 writes rope_parameters; before it, rope_theta and rope_scaling.
void ReadRopes(JsonObject& in, ModelConfig& model) {
  std::optional<Rope> rope;
  double theta = in.Number("rope_theta", 0);
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const Json* json = in.Member(name, true);
    if (json == nullptr) continue;
    const Rope read = ReadRope(*json, name, model.max_positions, in);
    if (rope.has_value() && !(*rope == read)) in.Refuse("rope_parameters and rope_scaling differ");
    rope = read;
    if (read.theta == 0) continue;
    if (theta != 0 && theta != read.theta) in.Refuse("rope_theta is given twice and differs");
    theta = read.theta;
  }
  model.rope_theta = theta == 0 ? 10000 : theta;
  if (!rope.has_value()) return;
  model.rope_scaling = rope->scaling;
  if (model.max_positions == 0) return;
  const auto stretched = static_cast<double>(model.max_positions) /
                         static_cast<double>(model.rope_scaling.original_max_positions);
  if (model.rope_scaling.type == RopeScalingConfig::Type::kYarn &&
      stretched != model.rope_scaling.factor) {
    model.warnings.push_back(absl::StrCat(
        "rope's factor ", model.rope_scaling.factor, " is used; max_position_embeddings over the ",
        "original ones is ", stretched, ", which some versions of transformers take instead"));
  }
}

void ReadWindow(JsonObject& in, const std::string& type, ModelConfig& model) {
  if (type == "mistral") {
    // The class's default, unless the file says null.
    model.sliding_window = in.Integer("sliding_window", in.Names("sliding_window") ? 0 : 4096);
  } else if (type == "qwen2" || type == "qwen3") {
    in.Ignore("sliding_window");
    in.Ignore("max_window_layers");
    in.Ignore("layer_types");
    if (in.Bool("use_sliding_window", false)) {
      in.Refuse("use_sliding_window true is not in this release");
    }
    if (in.Bool("use_mrope", false)) in.Refuse("use_mrope true is not in this release");
  }
}

void ReadBiases(JsonObject& in, const std::string& type, ModelConfig& model) {
  model.qkv_bias = type == "qwen2";
  if (type == "llama" || type == "qwen3") {
    model.qkv_bias = model.attn_out_bias = in.Bool("attention_bias", false);
  }
  if (type == "llama") model.mlp_bias = in.Bool("mlp_bias", false);
}

const char* ArchitectureOf(const std::string& type) {
  if (type == "mistral") return "MistralForCausalLM";
  if (type == "qwen2") return "Qwen2ForCausalLM";
  return type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
}

void ReadLlama(JsonObject& in, const std::string& type, ModelConfig& model) {
  CheckArchitectures(in, ArchitectureOf(type));
  SetSizes(model, in.Integer("vocab_size"), in.Integer("hidden_size"),
           in.Integer("num_hidden_layers"), in.Integer("num_attention_heads"));
  const std::int64_t kv_heads = type == "llama" || in.Names("num_key_value_heads")
                                    ? in.Integer("num_key_value_heads", model.num_heads)
                                    : in.Integer("num_key_value_heads");
  model.num_kv_heads = static_cast<int>(std::clamp<std::int64_t>(kv_heads, 0, 1 << 30));
  // Qwen3Config has a head_dim of its own; the others derive it.
  const bool own_head_dim = type == "qwen3" && !in.Names("head_dim");
  SetHeadDim(in, model, in.Integer("head_dim", own_head_dim ? 128 : 0));
  model.mlp_dim = in.Integer("intermediate_size");
  model.norm_eps = in.Number("rms_norm_eps", 1e-6);
  model.tie_embeddings = in.Bool("tie_word_embeddings", false);
  model.max_positions = in.Integer("max_position_embeddings", 0);
  model.qk_norm = type == "qwen3";
  WantText(in, "hidden_act", "silu");
  WarnOfDropout(in, "attention_dropout", model);
  ReadBiases(in, type, model);
  ReadWindow(in, type, model);
  if (in.Number("partial_rotary_factor", 1) != 1) {
    in.Refuse("partial_rotary_factor must be 1: heads are rotated whole");
  }
  ReadRopes(in, model);
}

}  // namespace

ModelConfig ReadConfigMembers(JsonObject& in, const std::string& type) {
  const bool llama = type == "llama" || type == "mistral" || type == "qwen2" || type == "qwen3";
  ModelConfig model = internal::FamilyDefaults(type == "minillm" ? ModelFamily::kMiniLlm
                                               : type == "gpt2"  ? ModelFamily::kGpt2
                                                                 : ModelFamily::kLlama);
  model.name = type;
  ReadCommon(in, model);
  if (type == "minillm") {
    ReadMiniLlm(in, model);
  } else if (type == "gpt2") {
    ReadGpt2(in, model);
  } else if (llama) {
    ReadLlama(in, type, model);
  } else {
    in.Refuse(absl::StrCat("model_type \"", type,
                           "\" is none of gpt2, llama, mistral, qwen2, qwen3, minillm"));
  }
  return model;
}

absl::StatusOr<ModelConfig> ModelFromConfigJson(std::string_view text) {
  const absl::StatusOr<Json> json = ParseStrictJson(text, kMaxNesting);
  if (!json.ok()) return absl::InvalidArgumentError(json.status().message());
  JsonObject in(*json, "config");
  const Json* type = in.Member("model_type", false);
  if (type == nullptr || !type->is_string()) return in.Finish();
  ModelConfig model = ReadConfigMembers(in, type->get<std::string>());
  RETURN_IF_ERROR(in.Finish());
  RETURN_IF_ERROR(ValidateModel(model));
  return model;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path) {
  struct stat info{};
  std::string file_path = path;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    file_path = absl::StrCat(path, "/", kConfigName);
  }
  if (::stat(file_path.c_str(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat(", file_path, ")"));
  }
  if (!S_ISREG(info.st_mode) || info.st_size > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_path, ": must be a file of at most ", kMaxConfigBytes, " bytes"));
  }
  std::ifstream file(file_path, std::ios::binary);
  if (!file) return ErrnoToStatus(errno, absl::StrCat("open(", file_path, ")"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return ErrnoToStatus(errno, absl::StrCat("read(", file_path, ")"));
  absl::StatusOr<ModelConfig> model = ModelFromConfigJson(text);
  if (!model.ok()) return Annotate(model.status(), file_path);
  return model;
}

}  // namespace fsdp
