// The committed oracles (made by PyTorch) on every small world size, in threads and processes.

#include "worker/train/oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

OracleFile LoadOracle(const std::string& name) {
  auto oracle =
      OracleFile::Load(std::string(FSDP_SOURCE_DIR) + "/tests/oracle/" + name + ".safetensors");
  EXPECT_TRUE(oracle.ok()) << oracle.status();
  return *std::move(oracle);
}

OracleReport Replay(const OracleFile& oracle, const OracleOptions& options) {
  auto report = RunOracle(oracle, options, CpuBackend());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : OracleReport{};
}

struct Case {
  const char* name;
  int world;
  CommunicatorKind communicator;
  DType dtype;
};

class OraclePeerTest : public testing::TestWithParam<Case> {};

TEST_P(OraclePeerTest, AgreesWithThePeer) {
  const Case& param = GetParam();
  OracleOptions options;
  options.world_size = param.world;
  options.communicator = param.communicator;
  options.parameter_dtype = param.dtype;
  const OracleReport report = Replay(LoadOracle(param.name), options);
  EXPECT_EQ(report.losses.size(), 20U);
  EXPECT_THAT(report.failures, testing::IsEmpty()) << report.ToJson();
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* name : {"minillm-tiny", "llama-tiny", "gpt2-tiny", "qwen3-tiny"}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        cases.push_back({name, world, CommunicatorKind::kInProcess, dtype});
        if (world > 1) cases.push_back({name, world, CommunicatorKind::kGloo, dtype});
      }
    }
  }
  // Odd vocabularies, sequence lengths, head counts; tied heads with an explicit head_dim; biases;
  // rope scaling.
  for (const char* name : {"llama-odd", "llama-headdim-tied", "llama-bias", "minillm-odd",
                           "qwen3-yarn", "qwen2-llama3", "mistral-linear"}) {
    for (const int world : {1, 3}) {
      cases.push_back({name, world, CommunicatorKind::kInProcess, DType::kF32});
      cases.push_back({name, world, CommunicatorKind::kInProcess, DType::kBf16});
    }
  }
  return cases;
}

std::string NameOfCase(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  for (char& letter : name) letter = letter == '-' ? '_' : letter;
  return name + "_world" + std::to_string(info.param.world) +
         (info.param.communicator == CommunicatorKind::kGloo ? "_gloo_" : "_threads_") +
         NameOf(info.param.dtype);
}

INSTANTIATE_TEST_SUITE_P(Peers, OraclePeerTest, testing::ValuesIn(Cases()), NameOfCase);

// The comparison itself must be able to fail.
TEST(OracleTest, OnePerturbedLossFails) {
  OracleFile oracle = LoadOracle("llama-tiny");
  oracle.loss_fp32[13] *= 1 + 5e-5F;
  const OracleReport report = Replay(oracle, {});
  EXPECT_THAT(report.failures, testing::ElementsAre(testing::HasSubstr("loss error")));
}

TEST(OracleTest, OnePerturbedInitialWeightFails) {
  OracleFile oracle = LoadOracle("llama-tiny");
  oracle.initial.at("model.layers.1.self_attn.q_proj.weight")[77] += 0.01F;
  EXPECT_FALSE(Replay(oracle, {}).passed());
}

TEST(OracleTest, OnePerturbedFinalWeightFailsItsTensor) {
  OracleFile oracle = LoadOracle("minillm-tiny");
  oracle.final.at("layers.0.norm1.weight")[3] += 0.01F;
  const OracleReport report = Replay(oracle, {});
  EXPECT_EQ(report.worst_final, "layers.0.norm1.weight");
  EXPECT_FALSE(report.passed());
}

TEST(OracleTest, OnePerturbedGradientFails) {
  OracleFile oracle = LoadOracle("minillm-tiny");
  std::vector<float>& gradient = oracle.first_gradient.at("head.weight");
  for (float& value : gradient) value *= 1 + 5e-5F;
  const OracleReport report = Replay(oracle, {});
  EXPECT_THAT(report.failures, testing::ElementsAre(testing::HasSubstr("head.weight")));
}

// fp32 is too good to pass as bf16.
TEST(OracleTest, Bf16RuleHasAFloor) {
  OracleFile oracle = LoadOracle("llama-tiny");
  OracleOptions options;
  options.parameter_dtype = DType::kBf16;
  for (std::size_t i = 0; i < oracle.loss_bf16.size(); ++i) oracle.loss_bf16[i] += 1;
  EXPECT_THAT(Replay(oracle, options).failures,
              testing::ElementsAre(testing::HasSubstr("this is not bf16")));
}

TEST(OracleTest, VariantsOfTheScheduleAgreeToo) {
  const OracleFile oracle = LoadOracle("llama-tiny");
  for (int variant = 0; variant < 5; ++variant) {
    OracleOptions options;
    options.world_size = 2;
    if (variant == 0) options.micro_batch = 1;
    if (variant == 1) options.recompute = v1::RECOMPUTE_POLICY_FULL;
    if (variant == 2) options.prefetch = 0;
    if (variant == 3) options.num_communicators = 1;
    if (variant == 4) options.reshard_after_forward = false;
    EXPECT_THAT(Replay(oracle, options).failures, testing::IsEmpty()) << "variant " << variant;
  }
}

TEST(OracleFileTest, UnknownConfigurationKeysAreNamed) {
  const auto model =
      ModelFromPeerConfig(R"({"family":"minillm","vocab_size":8,"dim":8,"n_heads":2,"n_layer":1})");
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()),
              testing::AllOf(testing::HasSubstr("n_layers is missing")));
}

TEST(OracleFileTest, MissingFileIsNotFound) {
  EXPECT_EQ(OracleFile::Load("/nonexistent.safetensors").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fsdp
