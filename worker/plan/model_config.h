#ifndef FSDPCTL_WORKER_PLAN_MODEL_CONFIG_H_
#define FSDPCTL_WORKER_PLAN_MODEL_CONFIG_H_

// What a model is: one transformer with switches, its parameters by unit, and its FLOPs.
// Pure arithmetic; linked by the trainer, the coordinator and the client. Thread-safe (no state).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"

namespace fsdp {

enum class ModelFamily : std::uint8_t { kMiniLlm, kGpt2, kLlama };
enum class NormKind : std::uint8_t { kRms, kLayer };
enum class PositionKind : std::uint8_t { kNone, kLearned, kRope };
enum class MlpKind : std::uint8_t { kSilu, kGelu, kSwiGlu };

const char* NameOf(ModelFamily family);

struct RopeScalingConfig {
  enum class Type : std::uint8_t { kNone, kLinear, kLlama3, kYarn };
  Type type = Type::kNone;
  double factor = 1;
  double low_freq_factor = 1;                  // llama3
  double high_freq_factor = 4;                 // llama3
  std::int64_t original_max_positions = 8192;  // llama3, yarn
  double beta_fast = 32;                       // yarn
  double beta_slow = 1;                        // yarn
  // What cosines and sines are multiplied by (yarn); 0: 0.1 ln(factor) + 1.
  double attention_factor = 0;
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kMiniLlm;
  // The preset it came from; "custom" when there was none.
  std::string name = "custom";
  std::int64_t vocab_size = 0;  // V
  std::int64_t dim = 0;         // D
  int num_layers = 0;           // L
  int num_heads = 0;            // Hq
  int num_kv_heads = 0;         // Hkv, divides Hq
  std::int64_t head_dim = 0;    // Dh; Hq x Dh need not equal D
  std::int64_t mlp_dim = 0;     // F
  // Rows of the learned position table (gpt2); the longest sequence allowed where it is > 0.
  std::int64_t max_positions = 0;

  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-5;
  PositionKind position = PositionKind::kNone;
  double rope_theta = 10000;
  RopeScalingConfig rope_scaling;
  bool causal = true;
  // Standard deviation of random matrices (gpt2, llama).
  double init_std = 0.02;
  MlpKind mlp = MlpKind::kSilu;
  // Keys that are further back than this are not seen; 0: all are. Sequences must not be longer:
  // the engine's masks know no window.
  std::int64_t sliding_window = 0;
  // q and k are normalised per head, by RMSNorm over Dh, before rope (Qwen3).
  bool qk_norm = false;
  bool qkv_bias = false;
  bool attn_out_bias = false;
  bool mlp_bias = false;
  bool final_norm = true;
  bool tie_embeddings = false;
  // q, k and v are one stored parameter (minillm, gpt2), or three (llama).
  bool packed_qkv = false;
  // What a config.json asks for and training leaves out (dropout); a plan repeats it.
  std::vector<std::string> warnings;
  // Stored as [in, out] (GPT-2's Conv1D) instead of torch.nn.Linear's [out, in].
  bool weights_in_out = false;

  [[nodiscard]] std::int64_t q_dim() const { return num_heads * head_dim; }
  [[nodiscard]] std::int64_t kv_dim() const { return num_kv_heads * head_dim; }
  [[nodiscard]] std::int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
  // Columns of the MLP's first matmul: 2F for SwiGLU ([gate | up]), else F.
  [[nodiscard]] std::int64_t mlp_in_dim() const {
    return mlp == MlpKind::kSwiGlu ? 2 * mlp_dim : mlp_dim;
  }
};

// What a parameter does in its unit; the model code finds parameters by it.
enum class ParameterRole : std::uint8_t {
  kEmbedding,
  kPositions,
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,  // packed, or the first of q, k, v
  kKWeight,
  kVWeight,
  kQkvBias,
  kKBias,
  kVBias,
  kQNormWeight,
  kKNormWeight,
  kAttnOutWeight,
  kAttnOutBias,
  kNorm2Weight,
  kNorm2Bias,
  kMlpInWeight,  // packed, or the gate of gate, up
  kMlpUpWeight,
  kMlpInBias,  // packed, or the gate's
  kMlpUpBias,
  kMlpOutWeight,
  kMlpOutBias,
  kFinalNormWeight,
  kFinalNormBias,
  kHeadWeight,
};

struct InitRule {
  enum class Kind : std::uint8_t { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kZeros;
  // Standard deviation, or the bound of the uniform distribution on (-scale, scale).
  double scale = 0;
};

struct ParameterSpec {
  std::string name;  // as in the state dicts of Hugging Face / torch
  ParameterRole role = ParameterRole::kEmbedding;
  std::vector<std::int64_t> shape;  // dim 0 are the rows
  InitRule init;
  // Parameters of one fused group lie back to back in the given order, so that one matmul serves
  // them; 0: alone.
  int fused_group = 0;

  [[nodiscard]] std::int64_t rows() const { return shape[0]; }
  [[nodiscard]] std::int64_t row_elements() const {
    std::int64_t elements = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) elements *= shape[i];
    return elements;
  }
  [[nodiscard]] std::int64_t elements() const { return rows() * row_elements(); }
  // Vectors (norm weights, biases) as opposed to matrices: OptimizerSpec.decay_vectors.
  [[nodiscard]] bool is_vector() const { return shape.size() == 1; }
};

// Parameters that are gathered together.
struct UnitSpec {
  std::string name;  // "embed", "layers.0", ..., "head"
  std::vector<ParameterSpec> parameters;
};

// Preset names for `fsdpctl plan --list-presets`, sorted.
std::vector<std::string> PresetNames();
// INVALID_ARGUMENT for `name` of --model, which is neither a preset nor a file: what was probably
// meant, and the presets.
absl::Status NoSuchModel(const std::string& name);

// The preset's values, then the family's defaults for what neither gives, then the spec's own
// fields.
//   INVALID_ARGUMENT  names every bad field as "spec.model.<field>", its value and the remedy,
//                     joined by "; "
absl::StatusOr<ModelConfig> ResolveModel(const v1::ModelSpec& spec);

// The checks that ResolveModel applies to the finished configuration.
absl::Status ValidateModel(const ModelConfig& model);

// All parameters by unit, in the order in which forward uses the units. With a tied head there is
// no "head" unit: the final norm lives in "embed", which is gathered again for the head.
std::vector<UnitSpec> UnitsOf(const ModelConfig& model);

std::int64_t NumParameters(const ModelConfig& model);
// Parameters that a matmul multiplies with (embedding look-ups left out, a tied head counted).
std::int64_t NumMatmulParameters(const ModelConfig& model);
// Forward and backward: 6 x matmul parameters + 12 x L x Hq Dh x S (halved when causal), the usual
// MFU convention; recomputation is never counted.
double ModelFlopsPerToken(const ModelConfig& model, std::int64_t sequence_length);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PLAN_MODEL_CONFIG_H_
