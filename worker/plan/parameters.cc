// The parameters of each family under the names of their state dicts.

#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/plan/model_config.h"

namespace fsdp {
namespace {

using Role = ParameterRole;

InitRule Normal(double std) { return {InitRule::Kind::kNormal, std}; }
InitRule Uniform(double bound) { return {InitRule::Kind::kUniform, bound}; }
InitRule Zeros() { return {InitRule::Kind::kZeros, 0}; }
InitRule Ones() { return {InitRule::Kind::kOnes, 0}; }
// torch.nn.Linear's default.
InitRule FanIn(std::int64_t fan_in) { return Uniform(1 / std::sqrt(static_cast<double>(fan_in))); }

ParameterSpec Make(std::string name, Role role, std::vector<std::int64_t> shape, InitRule init,
                   int fused_group = 0) {
  return {std::move(name), role, std::move(shape), init, fused_group};
}

UnitSpec MiniLlmBlock(const ModelConfig& m, int layer) {
  const std::string p = absl::StrCat("layers.", layer, ".");
  const std::int64_t d = m.dim;
  const double xavier = std::sqrt(6.0 / static_cast<double>(m.qkv_dim() + d));
  UnitSpec unit{absl::StrCat("layers.", layer), {}};
  auto& out = unit.parameters;
  out.push_back(Make(p + "norm1.weight", Role::kNorm1Weight, {d}, Ones()));
  out.push_back(
      Make(p + "attn.in_proj_weight", Role::kQkvWeight, {m.qkv_dim(), d}, Uniform(xavier)));
  if (m.qkv_bias) {
    out.push_back(Make(p + "attn.in_proj_bias", Role::kQkvBias, {m.qkv_dim()}, Zeros()));
  }
  out.push_back(
      Make(p + "attn.out_proj.weight", Role::kAttnOutWeight, {d, m.q_dim()}, FanIn(m.q_dim())));
  out.push_back(Make(p + "attn.out_proj.bias", Role::kAttnOutBias, {d}, Zeros()));
  out.push_back(Make(p + "norm2.weight", Role::kNorm2Weight, {d}, Ones()));
  out.push_back(Make(p + "ffn.0.weight", Role::kMlpInWeight, {m.mlp_dim, d}, FanIn(d)));
  out.push_back(Make(p + "ffn.2.weight", Role::kMlpOutWeight, {d, m.mlp_dim}, FanIn(m.mlp_dim)));
  return unit;
}

UnitSpec LlamaBlock(const ModelConfig& m, int layer) {
  const std::string p = absl::StrCat("model.layers.", layer, ".");
  const std::string attn = p + "self_attn.";
  const std::string mlp = p + "mlp.";
  const std::int64_t d = m.dim;
  const InitRule init = Normal(m.init_std);
  constexpr int kQkv = 1, kGateUp = 2, kQkvBias = 3, kGateUpBias = 4;
  UnitSpec unit{absl::StrCat("layers.", layer), {}};
  auto& out = unit.parameters;
  out.push_back(Make(p + "input_layernorm.weight", Role::kNorm1Weight, {d}, Ones()));
  out.push_back(Make(attn + "q_proj.weight", Role::kQkvWeight, {m.q_dim(), d}, init, kQkv));
  out.push_back(Make(attn + "k_proj.weight", Role::kKWeight, {m.kv_dim(), d}, init, kQkv));
  out.push_back(Make(attn + "v_proj.weight", Role::kVWeight, {m.kv_dim(), d}, init, kQkv));
  if (m.qkv_bias) {
    out.push_back(Make(attn + "q_proj.bias", Role::kQkvBias, {m.q_dim()}, Zeros(), kQkvBias));
    out.push_back(Make(attn + "k_proj.bias", Role::kKBias, {m.kv_dim()}, Zeros(), kQkvBias));
    out.push_back(Make(attn + "v_proj.bias", Role::kVBias, {m.kv_dim()}, Zeros(), kQkvBias));
  }
  if (m.qk_norm) {
    out.push_back(Make(attn + "q_norm.weight", Role::kQNormWeight, {m.head_dim}, Ones()));
    out.push_back(Make(attn + "k_norm.weight", Role::kKNormWeight, {m.head_dim}, Ones()));
  }
  out.push_back(Make(attn + "o_proj.weight", Role::kAttnOutWeight, {d, m.q_dim()}, init));
  if (m.attn_out_bias) {
    out.push_back(Make(attn + "o_proj.bias", Role::kAttnOutBias, {d}, Zeros()));
  }
  out.push_back(Make(p + "post_attention_layernorm.weight", Role::kNorm2Weight, {d}, Ones()));
  out.push_back(Make(mlp + "gate_proj.weight", Role::kMlpInWeight, {m.mlp_dim, d}, init, kGateUp));
  out.push_back(Make(mlp + "up_proj.weight", Role::kMlpUpWeight, {m.mlp_dim, d}, init, kGateUp));
  out.push_back(Make(mlp + "down_proj.weight", Role::kMlpOutWeight, {d, m.mlp_dim}, init));
  if (m.mlp_bias) {
    out.push_back(
        Make(mlp + "gate_proj.bias", Role::kMlpInBias, {m.mlp_dim}, Zeros(), kGateUpBias));
    out.push_back(Make(mlp + "up_proj.bias", Role::kMlpUpBias, {m.mlp_dim}, Zeros(), kGateUpBias));
    out.push_back(Make(mlp + "down_proj.bias", Role::kMlpOutBias, {d}, Zeros()));
  }
  return unit;
}

UnitSpec Gpt2Block(const ModelConfig& m, int layer) {
  const std::string p = absl::StrCat("transformer.h.", layer, ".");
  const std::int64_t d = m.dim;
  const InitRule init = Normal(m.init_std);
  const InitRule residual = Normal(m.init_std / std::sqrt(2.0 * m.num_layers));
  UnitSpec unit{absl::StrCat("layers.", layer), {}};
  auto& out = unit.parameters;
  out.push_back(Make(p + "ln_1.weight", Role::kNorm1Weight, {d}, Ones()));
  out.push_back(Make(p + "ln_1.bias", Role::kNorm1Bias, {d}, Zeros()));
  out.push_back(Make(p + "attn.c_attn.weight", Role::kQkvWeight, {d, m.qkv_dim()}, init));
  if (m.qkv_bias) {
    out.push_back(Make(p + "attn.c_attn.bias", Role::kQkvBias, {m.qkv_dim()}, Zeros()));
  }
  out.push_back(Make(p + "attn.c_proj.weight", Role::kAttnOutWeight, {m.q_dim(), d}, residual));
  out.push_back(Make(p + "attn.c_proj.bias", Role::kAttnOutBias, {d}, Zeros()));
  out.push_back(Make(p + "ln_2.weight", Role::kNorm2Weight, {d}, Ones()));
  out.push_back(Make(p + "ln_2.bias", Role::kNorm2Bias, {d}, Zeros()));
  out.push_back(Make(p + "mlp.c_fc.weight", Role::kMlpInWeight, {d, m.mlp_dim}, init));
  out.push_back(Make(p + "mlp.c_fc.bias", Role::kMlpInBias, {m.mlp_dim}, Zeros()));
  out.push_back(Make(p + "mlp.c_proj.weight", Role::kMlpOutWeight, {m.mlp_dim, d}, residual));
  out.push_back(Make(p + "mlp.c_proj.bias", Role::kMlpOutBias, {d}, Zeros()));
  return unit;
}

UnitSpec BlockOf(const ModelConfig& m, int layer) {
  switch (m.family) {
    case ModelFamily::kMiniLlm:
      return MiniLlmBlock(m, layer);
    case ModelFamily::kGpt2:
      return Gpt2Block(m, layer);
    case ModelFamily::kLlama:
      break;
  }
  return LlamaBlock(m, layer);
}

UnitSpec EmbedOf(const ModelConfig& m) {
  UnitSpec unit{"embed", {}};
  switch (m.family) {
    case ModelFamily::kMiniLlm:
      unit.parameters.push_back(
          Make("embed.weight", Role::kEmbedding, {m.vocab_size, m.dim}, Normal(1)));
      break;
    case ModelFamily::kGpt2:
      unit.parameters.push_back(Make("transformer.wte.weight", Role::kEmbedding,
                                     {m.vocab_size, m.dim}, Normal(m.init_std)));
      unit.parameters.push_back(Make("transformer.wpe.weight", Role::kPositions,
                                     {m.max_positions, m.dim}, Normal(m.init_std)));
      break;
    case ModelFamily::kLlama:
      unit.parameters.push_back(Make("model.embed_tokens.weight", Role::kEmbedding,
                                     {m.vocab_size, m.dim}, Normal(m.init_std)));
      break;
  }
  return unit;
}

void AppendHead(const ModelConfig& m, std::vector<ParameterSpec>& out) {
  const std::vector<std::int64_t> shape{m.vocab_size, m.dim};
  switch (m.family) {
    case ModelFamily::kMiniLlm:
      if (!m.tie_embeddings) {
        out.push_back(Make("head.weight", Role::kHeadWeight, shape, FanIn(m.dim)));
      }
      return;
    case ModelFamily::kGpt2:
      out.push_back(Make("transformer.ln_f.weight", Role::kFinalNormWeight, {m.dim}, Ones()));
      out.push_back(Make("transformer.ln_f.bias", Role::kFinalNormBias, {m.dim}, Zeros()));
      break;
    case ModelFamily::kLlama:
      out.push_back(Make("model.norm.weight", Role::kFinalNormWeight, {m.dim}, Ones()));
      break;
  }
  if (!m.tie_embeddings) {
    out.push_back(Make("lm_head.weight", Role::kHeadWeight, shape, Normal(m.init_std)));
  }
}

}  // namespace

std::vector<UnitSpec> UnitsOf(const ModelConfig& model) {
  std::vector<UnitSpec> units;
  units.push_back(EmbedOf(model));
  for (int layer = 0; layer < model.num_layers; ++layer) units.push_back(BlockOf(model, layer));
  if (model.tie_embeddings) {
    AppendHead(model, units.front().parameters);
  } else {
    units.push_back({"head", {}});
    AppendHead(model, units.back().parameters);
  }
  return units;
}

}  // namespace fsdp
