// Gradients of the whole model against central differences, everything in f64.
//
// The five-point rule with h = 1e-4 truncates at h^4 ~ 1e-16 times the fifth derivative, and rounds
// at 1e-16 x loss / h ~ 1e-10 (the loss sum is about 100): 1e-7 relative to the largest gradient of
// the tensor leaves two orders of room.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/parity/engine_harness.h"

namespace fsdp {
namespace {

using testing_support::GlobalBatch;
using testing_support::MakeBatch;
using testing_support::MakeSolo;
using testing_support::RunOptions;

ModelConfig TinyModel(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_family(name == "minillm" ? v1::MODEL_FAMILY_MINILLM
                  : name == "gpt2"  ? v1::MODEL_FAMILY_GPT2
                                    : v1::MODEL_FAMILY_LLAMA);
  spec.set_vocab_size(13);
  spec.set_dim(12);
  spec.set_num_layers(2);
  spec.set_num_heads(2);
  spec.set_mlp_dim(20);
  if (name == "gpt2") spec.set_max_positions(9);
  if (name == "llama" || name == "qwen" || name == "qwen3") {
    spec.set_num_kv_heads(1);
    spec.set_head_dim(4);
  }
  if (name == "qwen") {
    spec.set_qkv_bias(true);
    spec.set_tie_embeddings(true);
  }
  if (name == "qwen3") {
    spec.set_qk_norm(true);
    spec.set_num_heads(4);
    spec.set_num_kv_heads(2);
    spec.set_head_dim(6);
    // The angles' magnitude is not 1, which forward and backward must both know.
    spec.mutable_rope_scaling()->set_type(v1::ROPE_SCALING_TYPE_YARN);
    spec.mutable_rope_scaling()->set_factor(4);
    spec.mutable_rope_scaling()->set_original_max_positions(64);
  }
  ModelConfig model = *ResolveModel(spec);
  if (name == "llama") {
    model.qkv_bias = true;
    model.attn_out_bias = true;
    model.mlp_bias = true;
  }
  return model;
}

struct Case {
  const char* model;
  bool reset_attention = false;
  bool reset_positions = false;
};

class FiniteDifferenceTest : public testing::TestWithParam<Case> {};

TEST_P(FiniteDifferenceTest, WholeModelGradientAgrees) {
  RunOptions options;
  options.plan.model = TinyModel(GetParam().model);
  options.plan.reset_attention = GetParam().reset_attention;
  options.plan.reset_positions = GetParam().reset_positions;
  options.plan.parameter_dtype = DType::kF64;
  options.plan.sequence_length = 7;
  options.plan.global_batch = 2;
  options.plan.logits_chunk_bytes = 13 * 8 * 5;  // several chunks
  options.ignore_every = 5;
  auto solo = MakeSolo(options.plan);
  ASSERT_TRUE(solo.ok()) << solo.status();
  Engine& engine = *solo->engine;
  // Away from the initial values, where some gradients vanish.
  const auto weights = engine.OpenWeights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (const ShardTensor& tensor : *weights) {
    auto* values = static_cast<double*>(tensor.master.data);
    for (std::int64_t i = 0; i < tensor.master.size; ++i) {
      values[i] += 0.3 * std::sin(static_cast<double>(i * 7 + tensor.master.size));
    }
  }
  ASSERT_TRUE(engine.WeightsChanged().ok());
  const GlobalBatch batch = MakeBatch(options, 1);
  // A learning rate of zero leaves the weights where they are; weight decay is scaled by it.
  const auto step = engine.Step({1, 0.0, batch.tokens, batch.targets, batch.document_begins});
  ASSERT_TRUE(step.ok()) << step.status();

  const auto loss = [&] {
    const auto result = engine.Evaluate(batch.tokens, batch.targets, batch.document_begins, 1);
    EXPECT_TRUE(result.ok()) << result.status();
    return result->loss_sum;
  };
  // Evaluate may use their memory.
  std::vector<std::vector<double>> gradients;
  for (const ShardTensor& tensor : engine.gradient_tensors()) {
    const auto* values = static_cast<const double*>(tensor.master.data);
    gradients.emplace_back(values, values + tensor.master.size);
  }
  constexpr double kStep = 1e-4;
  for (std::size_t i = 0; i < weights->size(); ++i) {
    auto* values = static_cast<double*>((*weights)[i].master.data);
    const std::vector<double>& gradient = gradients[i];
    const auto size = static_cast<std::int64_t>(gradient.size());
    double largest = 1e-2;
    for (std::int64_t j = 0; j < size; ++j) largest = std::max(largest, std::abs(gradient[j]));
    // Every element of small tensors, a spread of large ones.
    for (std::int64_t j = 0; j < size; j += std::max<std::int64_t>(1, size / 23)) {
      const double value = values[j];
      const auto at = [&](double steps) {
        values[j] = value + steps * kStep;
        return loss();
      };
      const double difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
      values[j] = value;
      EXPECT_NEAR(gradient[j], difference, 1e-7 * largest)
          << (*weights)[i].name << " element " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FiniteDifferenceTest,
                         testing::Values(Case{"minillm"}, Case{"gpt2"}, Case{"llama"}, Case{"qwen"},
                                         Case{"qwen3"}, Case{"gpt2", true}, Case{"qwen3", true},
                                         Case{"gpt2", true, true}),
                         [](const auto& info) {
                           return std::string(info.param.model) +
                                  (info.param.reset_attention ? "_documents" : "") +
                                  (info.param.reset_positions ? "_positions" : "");
                         });

}  // namespace
}  // namespace fsdp
