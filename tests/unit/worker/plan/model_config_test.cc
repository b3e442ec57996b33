#include "worker/plan/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace fsdp {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

v1::ModelSpec PresetSpec(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_preset(name);
  return spec;
}

std::string Message(const v1::ModelSpec& spec) {
  return std::string(ResolveModel(spec).status().message());
}

const ParameterSpec* Find(const ModelConfig& model, const std::string& name) {
  static std::vector<UnitSpec> units;
  units = UnitsOf(model);
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.name == name) return &parameter;
    }
  }
  return nullptr;
}

TEST(ResolveModel, EveryPresetIsValidAndNamesAreUnique) {
  EXPECT_THAT(PresetNames(), AllOf(Contains("minillm"), Contains("llama1b"), Contains("llama8b"),
                                   Contains("llama-bytes"), Contains("gpt2")));
  EXPECT_TRUE(std::ranges::is_sorted(PresetNames()));
  for (const std::string& name : PresetNames()) {
    const auto model = ResolveModel(PresetSpec(name));
    ASSERT_TRUE(model.ok()) << name << ": " << model.status();
    EXPECT_EQ(model->name, name);
    std::set<std::string> names;
    for (const UnitSpec& unit : UnitsOf(*model)) {
      for (const ParameterSpec& parameter : unit.parameters) {
        EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
        EXPECT_GT(parameter.elements(), 0) << parameter.name;
      }
    }
  }
}

// The counts that the models' publishers give.
TEST(ResolveModel, ParameterCounts) {
  EXPECT_EQ(NumParameters(*ResolveModel(PresetSpec("llama8b"))), 8030261248);
  EXPECT_EQ(NumParameters(*ResolveModel(PresetSpec("qwen05b"))), 494032768);
  // 32000 x 2048 twice, and 12 blocks of 12 d^2 + 6 d.
  EXPECT_EQ(NumParameters(*ResolveModel(PresetSpec("minillm"))),
            2LL * 32000 * 2048 + 12LL * (12LL * 2048 * 2048 + 6 * 2048));
  const std::pair<const char*, std::int64_t> gpt2_sizes[] = {{"gpt2", 124439808},
                                                             {"gpt2-medium", 354823168},
                                                             {"gpt2-large", 774030080},
                                                             {"gpt2-xl", 1557611200}};
  for (const auto& [name, parameters] : gpt2_sizes) {
    v1::ModelSpec gpt2 = PresetSpec(name);
    gpt2.set_vocab_size(50257);
    EXPECT_EQ(NumParameters(*ResolveModel(gpt2)), parameters) << name;
  }
}

TEST(ResolveModel, MiniLlmIsTheFoundingModel) {
  const ModelConfig model = *ResolveModel(PresetSpec("minillm"));
  EXPECT_FALSE(model.causal);
  EXPECT_FALSE(model.final_norm);
  EXPECT_EQ(model.position, PositionKind::kNone);
  EXPECT_DOUBLE_EQ(model.norm_eps, 1.1920929e-07);
  ASSERT_NE(Find(model, "layers.11.attn.in_proj_weight"), nullptr);
  EXPECT_EQ(Find(model, "layers.11.attn.in_proj_weight")->shape,
            (std::vector<std::int64_t>{6144, 2048}));
  EXPECT_EQ(Find(model, "layers.0.ffn.2.weight")->shape, (std::vector<std::int64_t>{2048, 8192}));
  EXPECT_NE(Find(model, "layers.0.attn.out_proj.bias"), nullptr);
  EXPECT_NE(Find(model, "head.weight"), nullptr);
  EXPECT_EQ(Find(model, "norm.weight"), nullptr);
}

TEST(ResolveModel, TiedHeadMovesTheFinalNormToTheEmbedding) {
  v1::ModelSpec spec = PresetSpec("llama-tiny");
  spec.set_tie_embeddings(true);
  const ModelConfig model = *ResolveModel(spec);
  const std::vector<UnitSpec> units = UnitsOf(model);
  EXPECT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].parameters.back().name, "model.norm.weight");
  EXPECT_EQ(Find(model, "lm_head.weight"), nullptr);
  EXPECT_EQ(NumMatmulParameters(model),
            NumMatmulParameters(*ResolveModel(PresetSpec("llama-tiny"))));
}

TEST(ResolveModel, OverridesScaleAPreset) {
  v1::ModelSpec spec = PresetSpec("minillm");
  spec.set_dim(128);
  spec.set_num_heads(4);
  const ModelConfig model = *ResolveModel(spec);
  EXPECT_EQ(model.head_dim, 32);
  EXPECT_EQ(model.num_kv_heads, 4);
  EXPECT_EQ(model.mlp_dim, 512);
  EXPECT_EQ(model.vocab_size, 32000);
}

TEST(ResolveModel, ExplicitHeadDimNeedNotMakeUpTheDim) {
  v1::ModelSpec spec = PresetSpec("llama-tiny");
  spec.set_head_dim(10);
  const ModelConfig model = *ResolveModel(spec);
  EXPECT_EQ(model.q_dim(), 40);
  EXPECT_EQ(Find(model, "model.layers.0.self_attn.o_proj.weight")->shape,
            (std::vector<std::int64_t>{64, 40}));
}

TEST(ResolveModel, QkNormAddsAWeightPerHeadDim) {
  v1::ModelSpec spec = PresetSpec("llama-tiny");
  spec.set_qk_norm(true);
  spec.set_head_dim(24);
  const ModelConfig model = *ResolveModel(spec);
  for (const char* name :
       {"model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn.k_norm.weight"}) {
    ASSERT_NE(Find(model, name), nullptr) << name;
    EXPECT_EQ(Find(model, name)->shape, std::vector<std::int64_t>{24});
  }
  spec = PresetSpec("gpt2-tiny");
  spec.set_qk_norm(true);
  EXPECT_THAT(Message(spec), HasSubstr("spec.model.qkNorm: true needs family llama, not gpt2"));
}

TEST(ResolveModel, RopeScalingRefusesWhatBelongsToAnotherType) {
  v1::ModelSpec spec = PresetSpec("llama-tiny");
  v1::RopeScaling& scaling = *spec.mutable_rope_scaling();
  scaling.set_type(v1::ROPE_SCALING_TYPE_YARN);
  scaling.set_factor(4);
  EXPECT_THAT(Message(spec), HasSubstr("ropeScaling.originalMaxPositions: is missing"));
  scaling.set_original_max_positions(128);
  EXPECT_TRUE(ResolveModel(spec).ok()) << ResolveModel(spec).status();
  scaling.set_beta_slow(40);
  EXPECT_THAT(Message(spec), HasSubstr("ropeScaling.betaFast: 32 must be greater than betaSlow"));
  scaling.set_type(v1::ROPE_SCALING_TYPE_LINEAR);
  EXPECT_THAT(Message(spec), HasSubstr("ropeScaling.betaSlow: belongs to type yarn"));
}

TEST(ResolveModel, MessagesNameFieldValueAndRemedy) {
  v1::ModelSpec spec;
  EXPECT_THAT(Message(spec), HasSubstr("spec.model.family: is missing"));
  EXPECT_THAT(Message(PresetSpec("lama1b")),
              AllOf(HasSubstr("spec.model.preset"), HasSubstr("lama1b"), HasSubstr("llama1b")));
  spec = PresetSpec("llama-tiny");
  spec.set_num_heads(5);
  EXPECT_THAT(Message(spec), HasSubstr("spec.model.numHeads: 5 does not divide dim 64"));
  spec = PresetSpec("llama-tiny");
  spec.set_num_kv_heads(3);
  EXPECT_THAT(Message(spec), HasSubstr("spec.model.numKvHeads: 3 does not divide numHeads 4"));
  spec = PresetSpec("llama-tiny");
  spec.set_head_dim(15);
  EXPECT_THAT(Message(spec), HasSubstr("spec.model.headDim: 15 is odd"));
  spec = PresetSpec("llama-tiny");
  spec.set_vocab_size(-3);
  spec.set_norm_eps(-1);
  EXPECT_THAT(Message(spec), AllOf(HasSubstr("spec.model.vocabSize: -3 is outside 1..16777216"),
                                   HasSubstr("spec.model.normEps: -1")));
  spec.Clear();
  spec.set_family(v1::MODEL_FAMILY_LLAMA);
  spec.set_vocab_size(10);
  spec.set_dim(8);
  spec.set_num_layers(1);
  spec.set_num_heads(2);
  EXPECT_THAT(Message(spec), HasSubstr("spec.model.mlpDim: is missing"));
}

TEST(ModelFlops, FollowThePeersConvention) {
  const ModelConfig model = *ResolveModel(PresetSpec("minillm"));
  const double matmul = 12.0 * 12 * 2048 * 2048 + 32000.0 * 2048;
  EXPECT_DOUBLE_EQ(ModelFlopsPerToken(model, 1024), 6 * matmul + 12.0 * 12 * 2048 * 1024);
  const ModelConfig causal = *ResolveModel(PresetSpec("llama8b"));
  EXPECT_DOUBLE_EQ(ModelFlopsPerToken(causal, 100) - ModelFlopsPerToken(causal, 0),
                   12.0 * 32 * 4096 * 100 * 0.5);
}

}  // namespace
}  // namespace fsdp
