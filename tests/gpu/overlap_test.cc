// The link's bookkeeping, and the overlap's measurement on the CPU, where the streams are threads.

#include "tests/gpu/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "proto/support/status.h"
#include "worker/device/cpu/cpu_stream.h"

namespace fsdp {
namespace {

using Kind = LinkCommunicator::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

// Notes what it is asked for and holds nothing.
class NotedOccupancy final : public LinkOccupancy {
 public:
  absl::Status Begin(Stream& /*stream*/) override {
    ++begun;
    return absl::OkStatus();
  }
  absl::Status End(Stream& /*stream*/, double seconds) override {
    held.push_back(seconds);
    return absl::OkStatus();
  }
  int begun = 0;
  std::vector<double> held;
};

// Keeps the stream's thread busy. Counts, over all objects, how often.
class CpuOccupancy final : public LinkOccupancy {
 public:
  explicit CpuOccupancy(int& count) : count_(count) {}
  absl::Status Begin(Stream& stream) override {
    ++count_;
    ASSIGN_OR_RETURN(CpuStream * queue, AsCpuStream(stream));
    return queue->Enqueue([this] {
      begin_ = Clock::now();
      return absl::OkStatus();
    });
  }
  absl::Status End(Stream& stream, double seconds) override {
    ASSIGN_OR_RETURN(CpuStream * queue, AsCpuStream(stream));
    return queue->Enqueue([this, seconds] {
      while (Clock::now() - begin_ < std::chrono::duration<double>(seconds)) {
      }
      return absl::OkStatus();
    });
  }

 private:
  using Clock = std::chrono::steady_clock;
  int& count_;
  Clock::time_point begin_;
};

class LinkCommunicatorTest : public testing::Test {
 protected:
  LinkCommunicatorTest() : device_(*CreateCpuDevice({})) {}

  std::unique_ptr<Device> device_;
  NotedOccupancy occupancy_;
};

TEST_F(LinkCommunicatorTest, MovesAndHoldsByTheUnitsBytes) {
  LinkCommunicator link(*device_, occupancy_, 2, /*bytes_per_second=*/100);
  std::vector<float> shard{1, 2, 3};
  std::vector<float> unit(6, -1);
  link.SetLabel("layers.0");
  ASSERT_TRUE(link.AllGather({shard.data(), DType::kF32, 3}, {unit.data(), DType::kF32, 6},
                             device_->gather())
                  .ok());
  ASSERT_TRUE(device_->Synchronize(device_->gather()).ok());
  EXPECT_THAT(unit, ElementsAre(1, 2, 3, 1, 2, 3));

  std::iota(unit.begin(), unit.end(), 10.0F);
  link.SetLabel("head");
  ASSERT_TRUE(link.ReduceScatter({unit.data(), DType::kF32, 6}, {shard.data(), DType::kF32, 3},
                                 device_->scatter())
                  .ok());
  ASSERT_TRUE(device_->Synchronize(device_->scatter()).ok());
  EXPECT_THAT(shard, ElementsAre(10, 11, 12));

  ASSERT_TRUE(link.AllReduce({shard.data(), DType::kF32, 3}, device_->scatter()).ok());
  EXPECT_THAT(shard, ElementsAre(10, 11, 12));

  EXPECT_EQ(occupancy_.begun, 2);
  EXPECT_THAT(occupancy_.held, ElementsAre(0.24, 0.24));  // 24 bytes at 100 a second
  ASSERT_EQ(link.records().size(), 3U);
  EXPECT_EQ(link.records()[0].kind, Kind::kGather);
  EXPECT_EQ(link.records()[0].label, "layers.0");
  EXPECT_EQ(link.records()[1].kind, Kind::kScatter);
  EXPECT_EQ(link.records()[1].label, "head");
  EXPECT_EQ(link.records()[1].bytes, 24);
  EXPECT_EQ(link.records()[2].kind, Kind::kReduce);
  EXPECT_EQ(link.records()[2].seconds, 0);
}

TEST_F(LinkCommunicatorTest, WithoutASpeedNothingIsHeld) {
  LinkCommunicator link(*device_, occupancy_, 2, /*bytes_per_second=*/0);
  std::vector<float> shard{1};
  std::vector<float> unit(2);
  ASSERT_TRUE(link.AllGather({shard.data(), DType::kF32, 1}, {unit.data(), DType::kF32, 2},
                             device_->gather())
                  .ok());
  ASSERT_TRUE(device_->Synchronize(device_->gather()).ok());
  EXPECT_EQ(occupancy_.begun, 0);
  EXPECT_EQ(link.records()[0].seconds, 0);
}

TEST_F(LinkCommunicatorTest, RefusesWhatDoesNotFitAndStaysAborted) {
  LinkCommunicator link(*device_, occupancy_, 2, 100);
  std::vector<float> data(5);
  EXPECT_EQ(link.AllGather({data.data(), DType::kF32, 1}, {data.data() + 1, DType::kF32, 3},
                           device_->gather())
                .code(),
            absl::StatusCode::kInvalidArgument);
  link.Abort("a test");
  EXPECT_EQ(link.AllReduce({data.data(), DType::kF32, 1}, device_->scatter()).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(link.Health().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(link.records().empty());
}

OverlapReport Figures(double linked, double unprefetched) {
  OverlapReport report;
  report.base_seconds = 1;
  report.first_gather_seconds = 0.1;
  report.last_scatters_seconds = 0.2;
  report.linked_seconds = linked;
  report.unprefetched_seconds = unprefetched;
  return report;
}

TEST(OverlapReport, VerdictIsTheIssuesRule) {
  EXPECT_TRUE(Figures(1.325, 1.5).Verdict().ok());
  EXPECT_THAT(std::string(Figures(1.335, 1.5).Verdict().message()), HasSubstr("3.50 %"));
  EXPECT_THAT(std::string(Figures(1.325, 1.335).Verdict().message()), HasSubstr("loses 1.00 %"));
  OverlapReport nothing = Figures(1.325, 1.5);
  nothing.base_seconds = 0;
  EXPECT_FALSE(nothing.Verdict().ok());
  EXPECT_NEAR(Figures(1.325, 1.5).Growth(1.5), 0.2, 1e-12);
}

TEST(Overlap, MeasuresTheEnginesStep) {
  v1::ModelSpec spec;
  spec.set_preset("llama-tiny");
  OverlapOptions options;
  options.bench.model = *ResolveModel(spec);
  options.bench.batch = 1;
  options.bench.sequence_length = 16;
  options.bench.steps = 2;
  options.bench.warmup = 1;
  options.link_bytes_per_second = 20e6;  // units of 30 to 150 KB: milliseconds each
  const auto device = CreateCpuDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  int held = 0;
  const auto report = MeasureOverlap(options, CpuBackend(), **device, [&] {
    return absl::StatusOr<std::unique_ptr<LinkOccupancy>>(std::make_unique<CpuOccupancy>(held));
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_steps, 4);

  // Embedding, 2 blocks, head: gathers forward, and backward of all blocks but the last, which
  // stays; one scatter each. Two rounds of two linked runs of three steps.
  const int collectives = (4 + 1) + 4;
  EXPECT_EQ(held, 2 * 2 * 3 * collectives);

  const auto bytes = [&](std::size_t unit, DType dtype) {
    PlanInput input;
    input.model = options.bench.model;
    input.world_size = 2;
    input.sequence_length = 16;
    input.global_batch = 2;
    const Plan plan = *Engine::PlanFor(input, **device);
    return static_cast<double>(plan.units[unit].layout.unit_elements()) *
           static_cast<double>(SizeOf(dtype));
  };
  const double rate = options.link_bytes_per_second;
  EXPECT_DOUBLE_EQ(report->first_gather_seconds, bytes(0, DType::kBf16) / rate);
  EXPECT_DOUBLE_EQ(report->last_scatters_seconds,
                   (bytes(0, DType::kF32) + bytes(1, DType::kF32)) / rate);
  EXPECT_GT(report->gathers_seconds, report->first_gather_seconds);
  EXPECT_GT(report->scatters_seconds, report->last_scatters_seconds);

  // Each stream runs one collective after the other, and no step ends before its last scatter,
  // which starts after every gather.
  const double least = report->gathers_seconds + report->last_scatters_seconds;
  EXPECT_GE(report->linked_seconds, least);
  EXPECT_GE(report->unprefetched_seconds, least);
  EXPECT_GT(report->waited_gather_seconds, 0);
  EXPECT_GT(report->waited_scatter_seconds, 0);
  const auto json = nlohmann::json::parse(report->ToJson());
  EXPECT_EQ(json["ok"].get<bool>(), report->Verdict().ok());
  EXPECT_GT(json["base_ms"].get<double>(), 0);
}

TEST(Overlap, WithoutALinkOnlyTheBaseLine) {
  v1::ModelSpec spec;
  spec.set_preset("minillm-tiny");
  OverlapOptions options;
  options.bench.model = *ResolveModel(spec);
  options.bench.batch = 1;
  options.bench.sequence_length = 16;
  options.bench.steps = 1;
  options.bench.warmup = 0;
  options.link_bytes_per_second = 0;
  const auto device = CreateCpuDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  int held = 0;
  const auto report = MeasureOverlap(options, CpuBackend(), **device, [&] {
    return absl::StatusOr<std::unique_ptr<LinkOccupancy>>(std::make_unique<CpuOccupancy>(held));
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(held, 0);
  EXPECT_TRUE(report->Verdict().ok());
  EXPECT_FALSE(nlohmann::json::parse(report->ToJson()).contains("linked_ms"));
}

}  // namespace
}  // namespace fsdp
