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

class OracleTest : public testing::TestWithParam<Case> {};

TEST_P(OracleTest, AgreesWithThePeer) {
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
  for (const char* name : {"minillm-tiny", "llama-tiny"}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        cases.push_back({name, world, CommunicatorKind::kInProcess, dtype});
        if (world > 1) cases.push_back({name, world, CommunicatorKind::kGloo, dtype});
      }
    }
  }
  return cases;
}

std::string NameOfCase(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  name.erase(name.find('-'));
  return name + "_world" + std::to_string(info.param.world) +
         (info.param.communicator == CommunicatorKind::kGloo ? "_gloo_" : "_threads_") +
         NameOf(info.param.dtype);
}

INSTANTIATE_TEST_SUITE_P(Peers, OracleTest, testing::ValuesIn(Cases()), NameOfCase);

}  // namespace
}  // namespace fsdp
