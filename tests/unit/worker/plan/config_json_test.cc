// config.json as transformers 4 and 5 write it, both ways.

#include "worker/plan/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "worker/plan/plan.h"

namespace fsdp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// As save_pretrained of transformers 5 writes them.
json Llama() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", 128000},
          {"dtype", "float32"},
          {"eos_token_id", {128001, 128008}},
          {"head_dim", 64},
          {"hidden_act", "silu"},
          {"hidden_size", 2048},
          {"initializer_range", 0.02},
          {"intermediate_size", 8192},
          {"max_position_embeddings", 131072},
          {"mlp_bias", false},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 16},
          {"num_key_value_heads", 8},
          {"pretraining_tp", 1},
          {"rms_norm_eps", 1e-5},
          {"rope_parameters",
           {{"factor", 32.0},
            {"high_freq_factor", 4.0},
            {"low_freq_factor", 1.0},
            {"original_max_position_embeddings", 8192},
            {"rope_theta", 500000.0},
            {"rope_type", "llama3"}}},
          {"tie_word_embeddings", true},
          {"transformers_version", "5.0.0"},
          {"use_cache", true},
          {"vocab_size", 128256}};
}

json Qwen(const char* type) {
  json config = Llama();
  config["model_type"] = type;
  config["architectures"] = {std::string(type) == "qwen2" ? "Qwen2ForCausalLM"
                                                          : "Qwen3ForCausalLM"};
  config.erase("mlp_bias");
  config.erase("pretraining_tp");
  if (std::string(type) == "qwen2") config.erase("attention_bias");
  config["rope_parameters"] = {{"rope_theta", 1e6}, {"rope_type", "default"}};
  config["use_sliding_window"] = false;
  config["sliding_window"] = nullptr;
  config["max_window_layers"] = 28;
  config["layer_types"] = {"full_attention", "full_attention"};
  return config;
}

json Gpt2() {
  return {{"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"layer_norm_epsilon", 1e-5},
          {"n_ctx", 1024},
          {"n_embd", 768},
          {"n_head", 12},
          {"n_inner", nullptr},
          {"n_layer", 12},
          {"n_positions", 1024},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"summary_type", "cls_index"},
          {"reorder_and_upcast_attn", false},
          {"vocab_size", 50257}};
}

ModelConfig Read(const json& config) {
  const auto model = ModelFromConfigJson(config.dump());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : ModelConfig{};
}

std::string Refusal(const json& config) {
  return std::string(ModelFromConfigJson(config.dump()).status().message());
}

// `config` with one member changed.
json With(json config, const char* name, json value) {
  config[name] = std::move(value);
  return config;
}

TEST(ConfigJson, LlamaOfTransformers5) {
  const ModelConfig model = Read(Llama());
  EXPECT_EQ(NumParameters(model), 1235814400);
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_EQ(model.rope_theta, 500000);
  EXPECT_EQ(model.rope_scaling.type, RopeScalingConfig::Type::kLlama3);
  EXPECT_EQ(model.rope_scaling.factor, 32);
  EXPECT_EQ(model.rope_scaling.original_max_positions, 8192);
  EXPECT_EQ(model.max_positions, 131072);
  EXPECT_THAT(model.warnings, IsEmpty());
}

TEST(ConfigJson, OlderFilesSayRopeInTwoMembers) {
  json older = Llama();
  older["rope_theta"] = older["rope_parameters"]["rope_theta"];
  older["rope_scaling"] = older["rope_parameters"];
  older["rope_scaling"].erase("rope_theta");
  older.erase("rope_parameters");
  older["torch_dtype"] = "bfloat16";
  const ModelConfig model = Read(older);
  EXPECT_EQ(model.rope_theta, 500000);
  EXPECT_EQ(model.rope_scaling.high_freq_factor, 4);
  // "type" before it was "rope_type".
  older["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(Read(older).rope_scaling.type, RopeScalingConfig::Type::kLinear);
  older["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 3.0}};
  EXPECT_THAT(Refusal(older), HasSubstr("rope_parameters and rope_scaling differ"));
}

TEST(ConfigJson, QwenAndMistralHaveTheirSwitches) {
  const ModelConfig qwen2 = Read(Qwen("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.attn_out_bias);
  EXPECT_FALSE(qwen2.qk_norm);
  json qwen3 = Qwen("qwen3");
  EXPECT_TRUE(Read(qwen3).qk_norm);
  EXPECT_FALSE(Read(qwen3).qkv_bias);
  // Qwen3Config's own default, which is not hidden_size / heads.
  qwen3.erase("head_dim");
  EXPECT_EQ(Read(qwen3).head_dim, 128);
  EXPECT_THAT(Refusal(With(Qwen("qwen2"), "use_sliding_window", true)),
              HasSubstr("use_sliding_window true"));

  json mistral = Qwen("qwen3");
  for (const char* name : {"attention_bias", "use_sliding_window", "max_window_layers",
                           "layer_types", "architectures"}) {
    mistral.erase(name);
  }
  mistral["model_type"] = "mistral";
  EXPECT_EQ(Read(mistral).sliding_window, 0);
  mistral.erase("sliding_window");
  EXPECT_EQ(Read(mistral).sliding_window, 4096);
}

TEST(ConfigJson, AnActiveSlidingWindowIsRefusedByThePlan) {
  PlanInput input;
  v1::ModelSpec spec;
  spec.set_preset("llama-tiny");
  input.model = *ResolveModel(spec);
  input.model.sliding_window = 32;
  input.global_batch = 1;
  input.sequence_length = 32;
  EXPECT_TRUE(BuildPlan(input).ok());
  input.sequence_length = 33;
  EXPECT_THAT(std::string(BuildPlan(input).status().message()),
              AllOf(HasSubstr("spec.data.sequenceLength: 33"), HasSubstr("window of 32")));
}

TEST(ConfigJson, YarnWithItsAttentionFactor) {
  json config = Qwen("qwen3");
  config["max_position_embeddings"] = 131072;
  config["rope_parameters"] = {{"rope_theta", 1e6},
                               {"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 32768}};
  ModelConfig model = Read(config);
  EXPECT_EQ(model.rope_scaling.type, RopeScalingConfig::Type::kYarn);
  EXPECT_EQ(model.rope_scaling.beta_fast, 32);
  EXPECT_EQ(model.rope_scaling.attention_factor, 0);
  EXPECT_THAT(model.warnings, IsEmpty());
  config["rope_parameters"]["mscale"] = 1.0;
  config["rope_parameters"]["mscale_all_dim"] = 0.5;
  EXPECT_NEAR(Read(config).rope_scaling.attention_factor,
              (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1), 1e-12);
  config["max_position_embeddings"] = 65536;
  EXPECT_THAT(Read(config).warnings, ElementsAre(HasSubstr("factor 4 is used")));
  config["rope_parameters"]["truncate"] = false;
  EXPECT_THAT(Refusal(config), HasSubstr("truncate false"));
}

TEST(ConfigJson, Gpt2WithItsDropoutLeftOut) {
  EXPECT_EQ(NumParameters(Read(Gpt2())), 124439808);
  const ModelConfig model = Read(With(Gpt2(), "attn_pdrop", 0.1));
  EXPECT_THAT(model.warnings, ElementsAre(HasSubstr("attn_pdrop of 0.1 is left out")));
  PlanInput input;
  input.model = model;
  input.global_batch = 1;
  input.sequence_length = 8;
  EXPECT_THAT(BuildPlan(input)->warnings, testing::Contains(HasSubstr("attn_pdrop")));
}

TEST(ConfigJson, WhatChangesTheMathematicsIsRefusedByName) {
  const std::pair<json, const char*> cases[] = {
      {With(Llama(), "hidden_act", "gelu"), "hidden_act \"gelu\""},
      {With(Llama(), "partial_rotary_factor", 0.5), "partial_rotary_factor must be 1"},
      {With(Llama(), "quantization_config", {{"bits", 4}}), "quantization_config"},
      {With(Llama(), "architectures", {"LlamaForSequenceClassification"}), "architectures"},
      {With(Llama(), "some_new_key", 3), "config.some_new_key is not understood"},
      {With(Llama(), "hidden_size", "many"), "config.hidden_size is not an integer"},
      {With(Llama(), "rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}}),
       "rope_type \"dynamic\" is none of"},
      {With(Llama(), "rope_parameters", {{"rope_type", "llama3"}, {"factor", 2.0}}),
       "rope_parameters.low_freq_factor is missing"},
      {With(Llama(), "model_type", "bert"), "model_type \"bert\" is none of"},
      {With(Llama(), "num_key_value_heads", 5), "5 does not divide numHeads 32"},
      {With(Qwen("qwen2"), "attention_bias", true), "config.attention_bias is not understood"},
      {With(Gpt2(), "activation_function", "relu"), "activation_function \"relu\""},
      {With(Gpt2(), "scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse_layer_idx"},
      {With(Gpt2(), "reorder_and_upcast_attn", true), "reorder_and_upcast_attn true"},
      {With(Gpt2(), "scale_attn_weights", false), "scale_attn_weights false"}};
  for (const auto& [config, words] : cases) EXPECT_THAT(Refusal(config), HasSubstr(words));
  EXPECT_THAT(std::string(ModelFromConfigJson("{\"a\":1,\"a\":2}").status().message()),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(Refusal({{"hidden_size", 8}}), HasSubstr("config.model_type is missing"));
}

bool SameMathematics(const ModelConfig& a, const ModelConfig& b) {
  PlanInput left;
  left.global_batch = 1;
  left.sequence_length = 8;
  PlanInput right = left;
  left.model = a;
  right.model = b;
  return BuildPlan(left)->schedule_hash == BuildPlan(right)->schedule_hash &&
         a.qk_norm == b.qk_norm && a.tie_embeddings == b.tie_embeddings && a.norm == b.norm;
}

TEST(ConfigJson, EveryPresetAndEveryTypeComesBackAsItWas) {
  std::vector<ModelConfig> models = {Read(Llama()), Read(Qwen("qwen2")), Read(Qwen("qwen3")),
                                     Read(Gpt2())};
  for (const std::string& name : PresetNames()) {
    v1::ModelSpec spec;
    spec.set_preset(name);
    models.push_back(*ResolveModel(spec));
  }
  for (const ModelConfig& model : models) {
    ConfigJsonOptions options;
    options.max_positions = 512;
    const auto config = ModelToConfigJson(model, options);
    ASSERT_TRUE(config.ok()) << model.name << ": " << config.status();
    EXPECT_TRUE(SameMathematics(model, Read(*config))) << config->dump(2);
    EXPECT_TRUE(config->contains("tie_word_embeddings"));
  }
  const json llama = *ModelToConfigJson(Read(Llama()), {});
  EXPECT_EQ(llama["rope_theta"], 500000);
  EXPECT_EQ(llama["rope_parameters"]["rope_type"], "llama3");
  EXPECT_EQ(llama["rope_scaling"], llama["rope_parameters"]);
  EXPECT_EQ(llama["max_position_embeddings"], 131072);
}

TEST(ConfigJson, AModelThatNoTypeDescribesIsNotWritten) {
  ModelConfig model = Read(Llama());
  model.causal = false;
  EXPECT_EQ(ModelToConfigJson(model, {}).status().code(), absl::StatusCode::kFailedPrecondition);
  model = Read(Qwen("qwen3"));
  model.qkv_bias = true;
  EXPECT_THAT(std::string(ModelToConfigJson(model, {}).status().message()),
              HasSubstr("q/k norm with these biases"));
}

TEST(ConfigJson, ASpecTakesItByPathAndOverridesIt) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("config-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / kConfigName) << Qwen("qwen3").dump();
  v1::ModelSpec spec;
  spec.set_config_path(folder.string());
  spec.set_num_layers(2);
  auto model = ResolveModel(spec);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->qk_norm);
  EXPECT_EQ(model->num_layers, 2);
  EXPECT_EQ(model->head_dim, 64);
  spec.set_config_path((folder / kConfigName).string());
  EXPECT_TRUE(ResolveModel(spec).ok());
  spec.set_family(v1::MODEL_FAMILY_GPT2);
  EXPECT_THAT(std::string(ResolveModel(spec).status().message()),
              HasSubstr("spec.model.family: gpt2 is not the family of"));
  std::filesystem::remove_all(folder);
  EXPECT_THAT(std::string(ResolveModel(spec).status().message()),
              AllOf(HasSubstr("spec.model.configPath: "), HasSubstr(folder.string())));
}

}  // namespace
}  // namespace fsdp
