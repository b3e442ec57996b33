#include "worker/plan/model_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"
#include "worker/plan/config_json.h"
#include "worker/plan/presets.h"

namespace fsdp {
namespace {

class Problems {
 public:
  template <typename... Args>
  void Add(const char* field, const Args&... args) {
    texts_.push_back(absl::StrCat("spec.model.", field, ": ", args...));
  }
  [[nodiscard]] absl::Status ToStatus() const {
    if (texts_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(texts_, "; "));
  }

 private:
  std::vector<std::string> texts_;
};

void CheckRange(Problems& problems, const char* field, std::int64_t value, std::int64_t max) {
  if (value < 1 || value > max) {
    problems.Add(field, value, " is outside 1..", max);
  }
}

void CheckHeads(Problems& problems, const ModelConfig& model) {
  if (model.num_heads < 1 || model.num_kv_heads < 1) return;  // reported as out of range
  if (model.num_heads % model.num_kv_heads != 0) {
    problems.Add("numKvHeads", model.num_kv_heads, " does not divide numHeads ", model.num_heads);
  }
  if (model.packed_qkv && model.num_kv_heads != model.num_heads) {
    problems.Add("numKvHeads", model.num_kv_heads, " must equal numHeads ", model.num_heads,
                 " in family ", NameOf(model.family), ": its q, k and v are one square parameter");
  }
  if (model.packed_qkv && model.head_dim > 0 && model.q_dim() != model.dim) {
    problems.Add("headDim", model.head_dim, " x numHeads ", model.num_heads, " must be dim ",
                 model.dim, " in family ", NameOf(model.family));
  }
  if (model.qk_norm && model.family != ModelFamily::kLlama) {
    problems.Add("qkNorm", "true needs family llama, not ", NameOf(model.family));
  }
  if (model.position == PositionKind::kRope && model.head_dim % 2 != 0) {
    problems.Add("headDim", model.head_dim, " is odd: rope rotates pairs, so it must be even");
  }
}

void CheckYarn(Problems& problems, const RopeScalingConfig& scaling) {
  if (!(scaling.beta_slow > 0 && scaling.beta_fast > scaling.beta_slow)) {
    problems.Add("ropeScaling.betaFast", scaling.beta_fast, " must be greater than betaSlow ",
                 scaling.beta_slow, " > 0");
  }
  if (!(scaling.attention_factor >= 0 && scaling.attention_factor <= 1e6)) {
    problems.Add("ropeScaling.attentionFactor", scaling.attention_factor, " is outside 0..1e6");
  }
}

void CheckReals(Problems& problems, const ModelConfig& model) {
  if (!(model.norm_eps > 0 && model.norm_eps <= 0.1)) {
    problems.Add("normEps", model.norm_eps, " is outside (0, 0.1]");
  }
  if (!(model.rope_theta >= 1 && model.rope_theta <= 1e12)) {
    problems.Add("ropeTheta", model.rope_theta, " is outside 1..1e12");
  }
  const RopeScalingConfig& scaling = model.rope_scaling;
  if (scaling.type == RopeScalingConfig::Type::kNone) return;
  if (!(scaling.factor >= 1 && scaling.factor <= 1e6)) {
    problems.Add("ropeScaling.factor", scaling.factor, " is outside 1..1e6");
  }
  if (scaling.type == RopeScalingConfig::Type::kLinear) return;
  CheckRange(problems, "ropeScaling.originalMaxPositions", scaling.original_max_positions,
             std::int64_t{1} << 30);
  if (scaling.type == RopeScalingConfig::Type::kYarn) {
    CheckYarn(problems, scaling);
    return;
  }
  if (!(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor)) {
    problems.Add("ropeScaling.highFreqFactor", scaling.high_freq_factor,
                 " must be greater than lowFreqFactor ", scaling.low_freq_factor, " > 0");
  }
}

void CheckModel(Problems& problems, const ModelConfig& model) {
  CheckRange(problems, "vocabSize", model.vocab_size, std::int64_t{1} << 24);
  CheckRange(problems, "dim", model.dim, 1 << 17);
  CheckRange(problems, "numLayers", model.num_layers, 4096);
  CheckRange(problems, "numHeads", model.num_heads, 4096);
  CheckRange(problems, "numKvHeads", model.num_kv_heads, 4096);
  CheckRange(problems, "mlpDim", model.mlp_dim, 1 << 20);
  CheckRange(problems, "headDim", model.head_dim, 4096);
  if (model.position == PositionKind::kLearned) {
    CheckRange(problems, "maxPositions", model.max_positions, 1 << 24);
  }
  CheckHeads(problems, model);
  CheckReals(problems, model);
}

bool FamilyFromProto(v1::ModelFamily family, ModelFamily* out) {
  switch (family) {
    case v1::MODEL_FAMILY_MINILLM:
      *out = ModelFamily::kMiniLlm;
      return true;
    case v1::MODEL_FAMILY_GPT2:
      *out = ModelFamily::kGpt2;
      return true;
    case v1::MODEL_FAMILY_LLAMA:
      *out = ModelFamily::kLlama;
      return true;
    default:
      return false;
  }
}

ModelConfig ConfigOf(const v1::ModelSpec& spec, Problems& problems) {
  const absl::StatusOr<ModelConfig> config = ReadModelConfig(spec.config_path());
  if (!config.ok()) {
    // One problem, however many keys it names.
    problems.Add("configPath", absl::StrReplaceAll(config.status().message(), {{"; ", ", "}}));
    return {};
  }
  ModelFamily family = config->family;
  if (FamilyFromProto(spec.family(), &family) && family != config->family) {
    problems.Add("family", NameOf(family), " is not the family of ", spec.config_path(), " (",
                 NameOf(config->family), "): leave it out");
  }
  return *config;
}

// The preset or the family's defaults that the spec's fields then override.
ModelConfig BaseOf(const v1::ModelSpec& spec, Problems& problems) {
  ModelFamily family = ModelFamily::kMiniLlm;
  const bool has_family = FamilyFromProto(spec.family(), &family);
  if (!spec.config_path().empty()) return ConfigOf(spec, problems);
  if (!spec.preset().empty()) {
    const ModelConfig* preset = internal::FindPreset(spec.preset());
    if (preset == nullptr) {
      problems.Add("preset", "\"", spec.preset(), "\" is none of ",
                   absl::StrJoin(PresetNames(), ", "));
      return internal::FamilyDefaults(family);
    }
    if (has_family && family != preset->family) {
      problems.Add("family", NameOf(family), " is not the family of preset ", spec.preset(), " (",
                   NameOf(preset->family), "): leave one of them out");
    }
    return *preset;
  }
  if (!has_family) problems.Add("family", "is missing: give minillm, gpt2 or llama, or a preset");
  return internal::FamilyDefaults(family);
}

void ApplyRopeScaling(const v1::ModelSpec& spec, ModelConfig& model, Problems& problems) {
  if (!spec.has_rope_scaling()) return;
  const v1::RopeScaling& from = spec.rope_scaling();
  RopeScalingConfig& to = model.rope_scaling;
  switch (from.type()) {
    case v1::ROPE_SCALING_TYPE_UNSPECIFIED:
      return;
    case v1::ROPE_SCALING_TYPE_LINEAR:
      to.type = RopeScalingConfig::Type::kLinear;
      break;
    case v1::ROPE_SCALING_TYPE_LLAMA3:
      to.type = RopeScalingConfig::Type::kLlama3;
      break;
    default:
      to.type = RopeScalingConfig::Type::kYarn;
      if (from.original_max_positions() == 0) {
        problems.Add("ropeScaling.originalMaxPositions",
                     "is missing: yarn needs the context that the model had before it");
      }
  }
  if (model.position != PositionKind::kRope) {
    problems.Add("ropeScaling", "family ", NameOf(model.family), " has no rope");
  }
  const bool yarn = to.type == RopeScalingConfig::Type::kYarn;
  const bool llama3 = to.type == RopeScalingConfig::Type::kLlama3;
  const auto only = [&](bool given, bool belongs, const char* field, const char* owner) {
    if (given && !belongs) problems.Add(field, "belongs to type ", owner, ": leave it out");
  };
  only(from.low_freq_factor() != 0, llama3, "ropeScaling.lowFreqFactor", "llama3");
  only(from.high_freq_factor() != 0, llama3, "ropeScaling.highFreqFactor", "llama3");
  only(from.beta_fast() != 0, yarn, "ropeScaling.betaFast", "yarn");
  only(from.beta_slow() != 0, yarn, "ropeScaling.betaSlow", "yarn");
  only(from.has_attention_factor(), yarn, "ropeScaling.attentionFactor", "yarn");
  if (from.factor() != 0) to.factor = from.factor();
  if (from.low_freq_factor() != 0) to.low_freq_factor = from.low_freq_factor();
  if (from.high_freq_factor() != 0) to.high_freq_factor = from.high_freq_factor();
  if (from.original_max_positions() != 0) to.original_max_positions = from.original_max_positions();
  if (from.beta_fast() != 0) to.beta_fast = from.beta_fast();
  if (from.beta_slow() != 0) to.beta_slow = from.beta_slow();
  if (from.has_attention_factor()) to.attention_factor = from.attention_factor();
}

void ApplySwitches(const v1::ModelSpec& spec, ModelConfig& model, Problems& problems) {
  if (spec.has_norm_eps()) model.norm_eps = spec.norm_eps();
  if (spec.has_rope_theta()) model.rope_theta = spec.rope_theta();
  if (spec.has_max_positions()) model.max_positions = spec.max_positions();
  if (spec.has_tie_embeddings()) model.tie_embeddings = spec.tie_embeddings();
  if (spec.mask() != v1::ATTENTION_MASK_UNSPECIFIED) {
    model.causal = spec.mask() == v1::ATTENTION_MASK_CAUSAL;
  }
  if (spec.has_qkv_bias()) model.qkv_bias = spec.qkv_bias();
  if (spec.has_qk_norm()) model.qk_norm = spec.qk_norm();
  ApplyRopeScaling(spec, model, problems);
}

// head_dim and mlp_dim that neither the spec nor a preset of unchanged width gives.
void ApplySizes(const v1::ModelSpec& spec, ModelConfig& model, Problems& problems) {
  const bool preset = model.name != "custom";
  const std::int64_t old_dim = model.dim;
  const int old_heads = model.num_heads;
  if (spec.has_vocab_size()) model.vocab_size = spec.vocab_size();
  if (spec.has_dim()) model.dim = spec.dim();
  if (spec.has_num_layers()) model.num_layers = spec.num_layers();
  if (spec.has_num_heads()) model.num_heads = spec.num_heads();
  const bool same_width = preset && old_dim == model.dim && old_heads == model.num_heads;
  if (spec.has_num_kv_heads()) {
    model.num_kv_heads = spec.num_kv_heads();
  } else if (!preset || old_heads != model.num_heads) {
    model.num_kv_heads = model.num_heads;
  }
  if (spec.has_head_dim()) {
    model.head_dim = spec.head_dim();
  } else if (!same_width && model.num_heads > 0) {
    if (model.dim % model.num_heads != 0) {
      problems.Add("numHeads", model.num_heads, " does not divide dim ", model.dim,
                   ": change one of them or give headDim");
    }
    model.head_dim = std::max<std::int64_t>(1, model.dim / model.num_heads);
  }
  if (spec.has_mlp_dim()) {
    model.mlp_dim = spec.mlp_dim();
  } else if (!preset || old_dim != model.dim) {
    if (model.mlp == MlpKind::kSwiGlu && !preset) {
      problems.Add("mlpDim", "is missing: family llama has no default");
    } else if (model.mlp == MlpKind::kSwiGlu) {
      // A preset's ratio, in whole multiples of 16.
      model.mlp_dim = std::max<std::int64_t>(16, model.mlp_dim * model.dim / old_dim / 16 * 16);
      return;
    }
    model.mlp_dim = 4 * model.dim;
  }
}

}  // namespace

const char* NameOf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kMiniLlm:
      return "minillm";
    case ModelFamily::kGpt2:
      return "gpt2";
    case ModelFamily::kLlama:
      return "llama";
  }
  return "unknown";
}

std::vector<std::string> PresetNames() { return internal::SortedPresetNames(); }

absl::Status NoSuchModel(const std::string& name) {
  const std::vector<std::string> presets = PresetNames();
  return absl::InvalidArgumentError(absl::StrCat(
      "--model=", name, ": is neither a preset nor a readable config.json or its folder; presets: ",
      absl::StrJoin(presets, ", "), DidYouMean(name, presets)));
}

absl::StatusOr<ModelConfig> ResolveModel(const v1::ModelSpec& spec) {
  Problems problems;
  ModelConfig model = BaseOf(spec, problems);
  const bool known = problems.ToStatus().ok();
  if (!known) return problems.ToStatus();
  ApplySizes(spec, model, problems);
  ApplySwitches(spec, model, problems);
  CheckModel(problems, model);
  RETURN_IF_ERROR(problems.ToStatus());
  return model;
}

absl::Status ValidateModel(const ModelConfig& model) {
  Problems problems;
  CheckModel(problems, model);
  return problems.ToStatus();
}

std::int64_t NumParameters(const ModelConfig& model) {
  std::int64_t elements = 0;
  for (const UnitSpec& unit : UnitsOf(model)) {
    for (const ParameterSpec& parameter : unit.parameters) elements += parameter.elements();
  }
  return elements;
}

std::int64_t NumMatmulParameters(const ModelConfig& model) {
  std::int64_t elements = 0;
  for (const UnitSpec& unit : UnitsOf(model)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const bool look_up = parameter.role == ParameterRole::kEmbedding ||
                           parameter.role == ParameterRole::kPositions;
      if (!parameter.is_vector() && !look_up) elements += parameter.elements();
    }
  }
  if (model.tie_embeddings) elements += model.vocab_size * model.dim;
  return elements;
}

double ModelFlopsPerToken(const ModelConfig& model, std::int64_t sequence_length) {
  const double attention = 12.0 * model.num_layers * static_cast<double>(model.q_dim()) *
                           static_cast<double>(sequence_length) * (model.causal ? 0.5 : 1.0);
  return 6.0 * static_cast<double>(NumMatmulParameters(model)) + attention;
}

}  // namespace fsdp
