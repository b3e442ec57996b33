// The command lines of oracle, bench and collectives: flags, exit codes, and oracle files that were
// tampered with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/checkpoint/catalog.h"
#include "worker/train/bench.h"
#include "worker/train/collectives.h"
#include "worker/train/oracle.h"
#include "worker/train/tool_flags.h"
#include "worker/train/weights_checksum.h"

namespace fsdp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kOracle = std::string(FSDP_SOURCE_DIR) + "/tests/oracle/llama-tiny.safetensors";

int Oracle(std::vector<std::string> arguments) { return OracleMain(arguments, CpuBackend()); }
int Bench(std::vector<std::string> arguments) { return BenchMain(arguments, CpuBackend()); }

// A copy of the oracle in which element `index` of `tensor` has been changed.
class TamperedOracle {
 public:
  TamperedOracle(const std::string& tensor, std::size_t index, float factor, float offset) {
    path_ = testing::TempDir() + "tampered-" + std::to_string(::getpid()) + ".safetensors";
    std::ifstream in(kOracle, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto file = SafetensorsFile::Open(kOracle);
    EXPECT_TRUE(file.ok()) << file.status();
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const std::size_t at = 8 + header + (*file)->Find(tensor)->begin + index * sizeof(float);
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    value = value * factor + offset;
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TamperedOracle() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(OracleMain, ExitCodes) {
  EXPECT_EQ(Oracle({kOracle}), 0);
  EXPECT_EQ(Oracle({kOracle, "--local-ranks", "2", "--communicator=in_process"}), 0);
  EXPECT_EQ(Oracle({kOracle, "--precision", "bf16"}), 0);
  EXPECT_EQ(Oracle({}), 2);
  EXPECT_EQ(Oracle({kOracle, "--precision", "fp8"}), 2);
  EXPECT_EQ(Oracle({kOracle, "--communicator", "mpi"}), 2);
  EXPECT_EQ(Oracle({kOracle, "--local-ranks", "0"}), 2);
  EXPECT_EQ(Oracle({kOracle, "--lokal-ranks", "2"}), 2);
  EXPECT_EQ(Oracle({"/nonexistent.safetensors"}), 2);
  EXPECT_EQ(Oracle({kOracle, "--communicator", "nccl", "--local-ranks", "2"}), 2);
}

TEST(OracleMain, APerturbedLossFails) {
  const TamperedOracle tampered("loss_fp32", 13, 1 + 5e-5F, 0);
  EXPECT_EQ(Oracle({tampered.path()}), 20);
}

TEST(OracleMain, APerturbedWeightFails) {
  for (const char* tensor : {"init.lm_head.weight", "final.model.norm.weight"}) {
    const TamperedOracle tampered(tensor, 5, 1, 0.01F);
    EXPECT_EQ(Oracle({tampered.path()}), 20) << tensor;
  }
}

TEST(OracleMain, ATruncatedFileIsAnError) {
  const std::string path = testing::TempDir() + "cut-" + std::to_string(::getpid());
  std::filesystem::copy_file(kOracle, path, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  EXPECT_EQ(Oracle({path}), 10);
  std::filesystem::remove(path);
}

TEST(BenchMain, ExitCodes) {
  EXPECT_EQ(Bench({"--model", "llama-tiny", "--batch", "1", "--seq", "16", "--steps", "1",
                   "--warmup", "0", "--json"}),
            0);
  EXPECT_EQ(Bench({"--model", "no-such-model"}), 2);
  EXPECT_EQ(Bench({"--model", "llama-tiny", "--steps", "many"}), 2);
  EXPECT_EQ(Bench({"--model", "llama-tiny", "surplus"}), 2);
  // What the plan refuses, as the trainer's own exit code.
  EXPECT_EQ(Bench({"--model", "gpt2-tiny", "--seq", "1048576", "--steps", "1"}), 3);
  EXPECT_EQ(Bench({"--model", "llama-tiny", "--checkpoint-every", "2"}), 2);
  EXPECT_EQ(Bench({"--model", "llama-tiny", "--checkpoint-async"}), 2);
}

// Of overlap-bench, which has devices of its own.
TEST(BenchMain, OneRankNeedsNoBackend) {
  const auto options =
      ParseBenchOptions(std::vector<std::string>{"--model", "llama-tiny"}, LocalBackend{});
  EXPECT_TRUE(options.ok()) << options.status();
}

// A default would train something for minutes that nobody asked for.
TEST(BenchMain, NeedsAModel) {
  const auto options = ParseBenchOptions(std::vector<std::string>{}, CpuBackend());
  EXPECT_THAT(std::string(options.status().message()),
              AllOf(HasSubstr("--model is missing"), HasSubstr("llama1b"),
                    HasSubstr("as in --model llama-tiny")));
  EXPECT_EQ(Bench({}), 2);
  EXPECT_EQ(CollectivesMain(std::vector<std::string>{"--local-ranks", "2"}, CpuBackend()), 2);
}

TEST(Bench, LineHasThePeersFields) {
  v1::ModelSpec spec;
  spec.set_preset("minillm-tiny");
  BenchOptions options;
  options.model = *ResolveModel(spec);
  options.batch = 2;
  options.sequence_length = 16;
  options.steps = 3;
  options.warmup = 1;
  options.accumulate = 2;
  options.world_size = 2;
  const auto report = RunBench(options, CpuBackend());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->step_seconds.size(), 3U);
  EXPECT_EQ(report->losses.size(), 4U);
  const auto json = nlohmann::json::parse(report->ToJson());
  for (const char* field :
       {"model", "fsdp", "compile", "ac", "world", "batch", "seq", "params_M", "step_ms", "min_ms",
        "tok_s_gpu", "tflops", "peak_GB", "reserved_GB", "first_step_s", "losses",
        "start_to_first_step_s", "device_GB", "predicted_ms"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json["world"], 2);
  EXPECT_EQ(json["fsdp"], true);
  EXPECT_EQ(json["losses"].size(), 4U);
  EXPECT_TRUE(json["families"].contains("gather"));
  for (const char* pass : {"forward", "backward"}) {
    EXPECT_EQ(json["attention"][pass].get<std::string>().rfind("own fp32, ", 0), 0U) << json;
  }
}

TEST(Bench, SavesAndSaysWhatItCost) {
  for (const bool async : {false, true}) {
    for (const int world : {1, 2}) {
      std::string root = std::filesystem::temp_directory_path() / "fsdp-bench-XXXXXX";
      ASSERT_NE(::mkdtemp(root.data()), nullptr);
      v1::ModelSpec spec;
      spec.set_preset("llama-tiny");
      BenchOptions options;
      options.model = *ResolveModel(spec);
      options.batch = 1;
      options.sequence_length = 16;
      options.steps = 5;
      options.warmup = 1;
      options.world_size = world;
      options.checkpoint_directory = root;
      options.checkpoint_every = 2;
      options.checkpoint_async = async;
      const auto report = RunBench(options, CpuBackend());
      ASSERT_TRUE(report.ok()) << report.status();
      ASSERT_TRUE(report->checkpoints.has_value());
      EXPECT_EQ(report->checkpoints->blocking_seconds.size(), 2U);
      EXPECT_EQ(report->checkpoints->durable_seconds.size(), 2U);
      // Counted from the first measured step: 3 and 5, of which the newer one stays.
      const auto entries = ListCheckpoints(BlobStore::Posix(), root);
      ASSERT_TRUE(entries.ok()) << entries.status();
      ASSERT_EQ(entries->size(), 1U);
      EXPECT_EQ(entries->front().step, 5);
      EXPECT_EQ(entries->front().manifest->world_size, world);
      EXPECT_EQ(entries->front().manifest->size_bytes(), report->checkpoints->size_bytes);
      const auto json = nlohmann::json::parse(report->ToJson());
      EXPECT_EQ(json["checkpoint"]["saves"], 2);
      EXPECT_EQ(json["checkpoint"]["async"], async);
      for (const char* field : {"blocking_s", "longest_blocking_s", "durable_s", "GB", "GBps"}) {
        EXPECT_TRUE(json["checkpoint"].contains(field)) << field;
      }
      std::filesystem::remove_all(root);
    }
  }
}

TEST(CollectivesMain, ExitCodes) {
  const auto run = [](std::vector<std::string> arguments) {
    return CollectivesMain(arguments, CpuBackend());
  };
  EXPECT_EQ(run({"--model", "llama-tiny", "--communicator", "in_process", "--rounds", "2"}), 0);
  EXPECT_EQ(run({"--model", "no-such-model"}), 2);
  EXPECT_EQ(run({"--local-ranks", "1"}), 2);
  EXPECT_EQ(run({"surplus"}), 2);
  EXPECT_EQ(run({"--model", "llama-tiny", "--communicator", "in_process", "--rounds", "1",
                 "--nccl-registration", "window"}),
            0);
  EXPECT_EQ(run({"--nccl-registration", "half"}), 2);
  EXPECT_EQ(run({"--model", "llama-tiny", "--communicator", "nccl"}), 2);
}

TEST(Collectives, EverySizeOfUnitOnce) {
  v1::ModelSpec spec;
  spec.set_preset("llama-tiny");
  CollectivesOptions options;
  options.model = *ResolveModel(spec);
  options.world_size = 3;
  options.rounds = 3;
  const auto report = MeasureCollectives(options, CpuBackend());
  ASSERT_TRUE(report.ok()) << report.status();
  std::int64_t units = 0;
  double last_bytes = 0;
  for (const UnitRate& rate : report->rates) {
    units += rate.count;
    EXPECT_NE(static_cast<double>(rate.gather_bytes), last_bytes) << rate.unit;
    last_bytes = static_cast<double>(rate.gather_bytes);
    EXPECT_EQ(rate.scatter_bytes, 2 * rate.gather_bytes) << "fp32 beside bf16";
    for (const double seconds : {rate.gather_seconds, rate.scatter_seconds, rate.both_seconds}) {
      EXPECT_GT(seconds, 0) << rate.unit;
    }
  }
  EXPECT_EQ(units, static_cast<std::int64_t>(UnitsOf(options.model).size()));
  // 2 of 3 ranks' shards cross the bus.
  EXPECT_DOUBLE_EQ(report->BusBytesPerSecond(300, 2), 100);
  const auto json = nlohmann::json::parse(report->ToJson());
  ASSERT_EQ(json["units"].size(), report->rates.size());
  for (const char* field : {"unit", "count", "gather_MB", "gather_us", "gather_GBps",
                            "scatter_GBps", "both_us", "both_GBps"}) {
    EXPECT_TRUE(json["units"][0].contains(field)) << field;
  }
}

// The checksum of all weights, m and v after the steps and one before them.
std::uint32_t ChecksumOf(std::uint64_t seed, DType dtype, std::int64_t steps) {
  v1::ModelSpec spec;
  spec.set_preset("llama-tiny");
  BenchOptions options;
  options.model = *ResolveModel(spec);
  options.batch = 2;
  options.sequence_length = 16;
  options.steps = steps;
  options.warmup = 1;
  options.parameter_dtype = dtype;
  options.synchronous = false;
  options.deterministic = true;
  options.checksum = true;
  options.seed = seed;
  const auto report = RunBench(options, CpuBackend());
  EXPECT_TRUE(report.ok()) << report.status();
  if (!report.ok() || !report->checksum) return 0;
  EXPECT_EQ(nlohmann::json::parse(report->ToJson())["checksum"].get<std::string>().size(), 8U);
  return *report->checksum;
}

TEST(Bench, ChecksumIsThatOfTheRun) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const std::uint32_t once = ChecksumOf(1, dtype, 3);
    EXPECT_NE(once, 0U);
    EXPECT_EQ(ChecksumOf(1, dtype, 3), once);
    EXPECT_NE(ChecksumOf(2, dtype, 3), once) << "another seed";
    EXPECT_NE(ChecksumOf(1, dtype, 2), once) << "a step less";
  }
}

// m, v and the masters' low bits each count.
TEST(WeightsChecksum, SeesEveryPart) {
  v1::ModelSpec spec;
  spec.set_preset("minillm-tiny");
  const auto device = CreateCpuDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  PlanInput input;
  input.model = *ResolveModel(spec);
  input.sequence_length = 16;
  input.global_batch = 1;
  input.parameter_dtype = DType::kF32;
  const auto plan = Engine::PlanFor(input, **device);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto engine = Engine::Create(*plan, {}, **device, nullptr, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->InitializeWeights(0).ok());
  const std::uint32_t before = *WeightsChecksum(**engine, **device);
  const std::vector<ShardTensor> tensors = *(*engine)->OpenWeights();
  for (const ShardTensor* tensor : {&tensors.front(), &tensors.back()}) {
    for (const Vector& part : {tensor->master, tensor->m, tensor->v}) {
      auto* last = static_cast<std::uint8_t*>(part.data) + part.size_bytes() - 4;
      *last ^= 1U;
      EXPECT_NE(*WeightsChecksum(**engine, **device), before) << tensor->name;
      *last ^= 1U;
    }
  }
  EXPECT_EQ(*WeightsChecksum(**engine, **device), before);
}

TEST(ToolFlags, NamesWhatIsWrong) {
  const std::vector<std::string> unknown{"--sets", "1"};
  EXPECT_THAT(std::string(ToolFlags::Parse(unknown, {"seq"}, {"json"}).status().message()),
              HasSubstr("unknown flag --sets; known: --seq --json"));
  const std::vector<std::string> missing{"--seq"};
  EXPECT_THAT(std::string(ToolFlags::Parse(missing, {"seq"}, {}).status().message()),
              HasSubstr("--seq needs a value"));
  const std::vector<std::string> good{"a", "--seq=12", "--json"};
  const auto flags = ToolFlags::Parse(good, {"seq"}, {"json"});
  ASSERT_TRUE(flags.ok());
  EXPECT_EQ(*flags->Integer("seq", 0, 1, 20), 12);
  EXPECT_THAT(std::string(flags->Integer("seq", 0, 1, 11).status().message()),
              HasSubstr("--seq 12 is not a whole number in 1..11"));
  EXPECT_TRUE(flags->Has("json"));
  EXPECT_EQ(flags->positional(), (std::vector<std::string>{"a"}));
  const std::vector<std::string> valued_switch{"--json=1"};
  EXPECT_THAT(std::string(ToolFlags::Parse(valued_switch, {}, {"json"}).status().message()),
              HasSubstr("--json takes no value"));
}

TEST(ToolFlags, KeepsEveryValueOfAFlag) {
  const std::vector<std::string> arguments{"run", "--set=a=b", "--set", "c=d", "--n=1", "--n=2"};
  const auto flags = ToolFlags::Parse(arguments, {"set", "n"}, {});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(flags->Texts("set"), testing::ElementsAre("a=b", "c=d"));
  EXPECT_EQ(flags->Text("set", ""), "c=d");
  EXPECT_EQ(*flags->Integer("n", 0, 0, 9), 2);
  EXPECT_TRUE(flags->Texts("absent").empty());
  EXPECT_EQ(*flags->Integer("absent", 5, 0, 7), 5);
}

}  // namespace
}  // namespace fsdp
