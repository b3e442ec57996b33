#include "worker/train/oracle_file.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

// Reads an object's members by name, and finds those that nobody asked for.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Fail(absl::StrCat(where_, " is not an object"));
  }

  double Number(const char* name, std::optional<double> fallback = std::nullopt) {
    const Json* value = Take(name, fallback.has_value());
    if (value == nullptr) return fallback.value_or(0);
    if (value->is_number()) return value->get<double>();
    Fail(absl::StrCat(where_, ".", name, " is not a number"));
    return 0;
  }
  std::int64_t Integer(const char* name, std::optional<std::int64_t> fallback = std::nullopt) {
    const Json* value = Take(name, fallback.has_value());
    if (value == nullptr) return fallback.value_or(0);
    if (value->is_number_integer()) return value->get<std::int64_t>();
    Fail(absl::StrCat(where_, ".", name, " is not an integer"));
    return 0;
  }
  bool Bool(const char* name, bool fallback) {
    const Json* value = Take(name, true);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    Fail(absl::StrCat(where_, ".", name, " is not true or false"));
    return fallback;
  }
  std::string Text(const char* name, const std::string& fallback) {
    const Json* value = Take(name, true);
    if (value == nullptr) return fallback;
    if (value->is_string()) return value->get<std::string>();
    Fail(absl::StrCat(where_, ".", name, " is not a string"));
    return fallback;
  }
  const Json* Object(const char* name, bool optional) { return Take(name, optional); }
  void Ignore(const char* name) { Take(name, true); }
  void Refuse(const std::string& text) { Fail(absl::StrCat(where_, ": ", text)); }

  absl::Status Finish() {
    if (problems_.empty() && object_.is_object()) {
      for (const auto& [name, value] : object_.items()) {
        if (!taken_.contains(name)) Fail(absl::StrCat(where_, ".", name, " is not understood"));
      }
    }
    if (problems_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(problems_, "; "));
  }

 private:
  // Null when it is absent or null.
  const Json* Take(const char* name, bool optional) {
    taken_.insert(name);
    if (object_.is_object()) {
      const auto found = object_.find(name);
      if (found != object_.end() && !found->is_null()) return &*found;
    }
    if (!optional) Fail(absl::StrCat(where_, ".", name, " is missing"));
    return nullptr;
  }
  void Fail(std::string text) { problems_.push_back(std::move(text)); }

  const Json& object_;
  std::string where_;
  std::set<std::string> taken_;
  std::vector<std::string> problems_;
};

void SetCommon(v1::ModelSpec& spec, std::int64_t vocab, std::int64_t dim, std::int64_t layers,
               std::int64_t heads) {
  spec.set_vocab_size(vocab);
  spec.set_dim(dim);
  spec.set_num_layers(static_cast<int>(layers));
  spec.set_num_heads(static_cast<int>(heads));
}

void ReadMiniLlm(ObjectReader& in, v1::ModelSpec& spec) {
  spec.set_family(v1::MODEL_FAMILY_MINILLM);
  SetCommon(spec, in.Integer("vocab_size"), in.Integer("dim"), in.Integer("n_layers"),
            in.Integer("n_heads"));
}

void ReadGpt2(ObjectReader& in, v1::ModelSpec& spec) {
  spec.set_family(v1::MODEL_FAMILY_GPT2);
  SetCommon(spec, in.Integer("vocab_size", 50257), in.Integer("n_embd", 768),
            in.Integer("n_layer", 12), in.Integer("n_head", 12));
  spec.set_max_positions(in.Integer("n_positions", 1024));
  spec.set_norm_eps(in.Number("layer_norm_epsilon", 1e-5));
  spec.set_mlp_dim(in.Integer("n_inner", 4 * spec.dim()));
  spec.set_tie_embeddings(in.Bool("tie_word_embeddings", true));
  const std::string activation = in.Text("activation_function", "gelu_new");
  if (activation != "gelu_new") in.Refuse("activation_function " + activation + " is not gelu_new");
}

void ReadRopeScaling(const Json& json, ObjectReader& outer, v1::ModelSpec& spec) {
  ObjectReader in(json, "config.model.rope_scaling");
  std::string type = in.Text("rope_type", "");
  if (type.empty()) type = in.Text("type", "default");
  in.Ignore("type");
  if (const double theta = in.Number("rope_theta", 0); theta > 0) spec.set_rope_theta(theta);
  v1::RopeScaling scaling;
  scaling.set_factor(in.Number("factor", 0));
  scaling.set_low_freq_factor(in.Number("low_freq_factor", 0));
  scaling.set_high_freq_factor(in.Number("high_freq_factor", 0));
  scaling.set_original_max_positions(in.Integer("original_max_position_embeddings", 0));
  if (type == "linear") {
    scaling.set_type(v1::ROPE_SCALING_TYPE_LINEAR);
  } else if (type == "llama3") {
    scaling.set_type(v1::ROPE_SCALING_TYPE_LLAMA3);
  } else if (type != "default") {
    in.Refuse("type " + type + " is none of default, linear, llama3");
  }
  if (scaling.type() != v1::ROPE_SCALING_TYPE_UNSPECIFIED) *spec.mutable_rope_scaling() = scaling;
  if (const absl::Status status = in.Finish(); !status.ok()) {
    outer.Refuse(std::string(status.message()));
  }
}

// LlamaConfig's keys, and Qwen2Config's (which has biases on q, k and v).
void ReadLlama(ObjectReader& in, v1::ModelSpec& spec, bool qwen) {
  spec.set_family(v1::MODEL_FAMILY_LLAMA);
  SetCommon(spec, in.Integer("vocab_size"), in.Integer("hidden_size"),
            in.Integer("num_hidden_layers"), in.Integer("num_attention_heads"));
  spec.set_num_kv_heads(static_cast<int>(in.Integer("num_key_value_heads", spec.num_heads())));
  if (const std::int64_t head_dim = in.Integer("head_dim", 0); head_dim > 0) {
    spec.set_head_dim(static_cast<int>(head_dim));
  }
  spec.set_mlp_dim(in.Integer("intermediate_size"));
  spec.set_norm_eps(in.Number("rms_norm_eps", 1e-6));
  spec.set_rope_theta(in.Number("rope_theta", 10000));
  spec.set_tie_embeddings(in.Bool("tie_word_embeddings", false));
  spec.set_qkv_bias(qwen);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (const Json* scaling = in.Object(name, true)) ReadRopeScaling(*scaling, in, spec);
  }
  const std::string activation = in.Text("hidden_act", "silu");
  if (activation != "silu") in.Refuse("hidden_act " + activation + " is not silu");
  in.Ignore("max_position_embeddings");
}

absl::StatusOr<ModelConfig> ReadModel(const Json& json) {
  ObjectReader in(json, "config.model");
  bool attention_bias = false, mlp_bias = false;
  const std::string family = in.Text("family", "");
  v1::ModelSpec spec;
  if (family == "minillm") {
    ReadMiniLlm(in, spec);
  } else if (family == "gpt2") {
    ReadGpt2(in, spec);
  } else if (family == "llama" || family == "qwen2") {
    ReadLlama(in, spec, family == "qwen2");
    if (family == "llama") {
      attention_bias = in.Bool("attention_bias", false);
      mlp_bias = in.Bool("mlp_bias", false);
      if (attention_bias) spec.set_qkv_bias(true);
    }
  } else {
    in.Refuse("family \"" + family + "\" is none of minillm, gpt2, llama, qwen2");
  }
  RETURN_IF_ERROR(in.Finish());
  ASSIGN_OR_RETURN(ModelConfig model, ResolveModel(spec));
  // LlamaConfig's two switches, which job specs do not have.
  model.attn_out_bias |= attention_bias;
  model.mlp_bias |= mlp_bias;
  return model;
}

absl::StatusOr<OptimizerConfig> ReadOptimizer(const Json& json) {
  ObjectReader in(json, "config.optimizer");
  OptimizerConfig config;
  config.lr = in.Number("lr");
  config.beta1 = in.Number("beta1");
  config.beta2 = in.Number("beta2");
  config.eps = in.Number("eps");
  config.weight_decay = in.Number("weight_decay");
  config.max_grad_norm = in.Number("grad_clip", 0);
  RETURN_IF_ERROR(in.Finish());
  return config;
}

absl::Status Misshapen(const std::string& path, const SafetensorsTensor& tensor,
                       const std::vector<std::int64_t>& expected) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", tensor.name, " has shape [",
                                                 absl::StrJoin(tensor.shape, ", "), "], expected [",
                                                 absl::StrJoin(expected, ", "), "]"));
}

absl::StatusOr<std::vector<float>> ReadFloats(const SafetensorsFile& file, const std::string& name,
                                              const std::vector<std::int64_t>& shape) {
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file.Get(name));
  if (tensor->shape != shape) return Misshapen(file.path(), *tensor, shape);
  return file.ReadFloats(*tensor);
}

absl::StatusOr<std::vector<std::int32_t>> ReadTokens(const SafetensorsFile& file,
                                                     const std::string& name,
                                                     const std::vector<std::int64_t>& shape) {
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file.Get(name));
  if (tensor->shape != shape) return Misshapen(file.path(), *tensor, shape);
  ASSIGN_OR_RETURN(const std::vector<std::int64_t> wide, file.ReadIntegers(*tensor));
  std::vector<std::int32_t> narrow;
  narrow.reserve(wide.size());
  for (const std::int64_t value : wide) narrow.push_back(static_cast<std::int32_t>(value));
  return narrow;
}

absl::Status ReadWeights(const SafetensorsFile& file, OracleFile& oracle) {
  std::set<std::string> known;
  for (const UnitSpec& unit : UnitsOf(oracle.model)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const std::string& name = parameter.name;
      known.insert(name);
      ASSIGN_OR_RETURN(oracle.initial[name], ReadFloats(file, "init." + name, parameter.shape));
      ASSIGN_OR_RETURN(oracle.first_gradient[name],
                       ReadFloats(file, "grad0." + name, parameter.shape));
      ASSIGN_OR_RETURN(oracle.final[name], ReadFloats(file, "final." + name, parameter.shape));
    }
  }
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.name.rfind("init.", 0) == 0 && !known.contains(tensor.name.substr(5))) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": ", tensor.name, " is no parameter of this model"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ModelFromPeerConfig(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("config.model is not JSON");
  return ReadModel(json);
}

absl::StatusOr<OracleFile> OracleFile::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  const auto config = file->metadata().find("config");
  if (config == file->metadata().end()) {
    return absl::InvalidArgumentError(path +
                                      ": metadata \"config\" is missing: not an oracle file");
  }
  const Json json = Json::parse(config->second, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(path + ": \"config\" is not JSON");
  ObjectReader in(json, "config");
  OracleFile oracle;
  oracle.path = path;
  oracle.batch = in.Integer("batch");
  oracle.sequence_length = in.Integer("seq");
  oracle.steps = in.Integer("steps");
  in.Ignore("seed");
  in.Ignore("torch");
  const Json* model = in.Object("model", false);
  const Json* optimizer = in.Object("optimizer", false);
  RETURN_IF_ERROR(Annotate(in.Finish(), path));
  if (oracle.batch < 1 || oracle.sequence_length < 1 || oracle.steps < 1) {
    return absl::InvalidArgumentError(path + ": config.batch, seq and steps must be positive");
  }
  ASSIGN_OR_RETURN(oracle.model, ReadModel(*model));
  ASSIGN_OR_RETURN(oracle.optimizer, ReadOptimizer(*optimizer));

  const std::vector<std::int64_t> batches{oracle.steps, oracle.batch, oracle.sequence_length};
  ASSIGN_OR_RETURN(oracle.tokens, ReadTokens(*file, "tokens", batches));
  ASSIGN_OR_RETURN(oracle.targets, ReadTokens(*file, "targets", batches));
  ASSIGN_OR_RETURN(oracle.loss_fp32, ReadFloats(*file, "loss_fp32", {oracle.steps}));
  ASSIGN_OR_RETURN(oracle.grad_norm_fp32, ReadFloats(*file, "grad_norm_fp32", {oracle.steps}));
  ASSIGN_OR_RETURN(oracle.loss_bf16, ReadFloats(*file, "loss_bf16", {oracle.steps}));
  RETURN_IF_ERROR(ReadWeights(*file, oracle));
  return oracle;
}

}  // namespace fsdp
