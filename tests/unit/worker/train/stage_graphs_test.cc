#include "worker/train/stage_graphs.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

constexpr auto kNorm = KernelFamily::kNorm;
constexpr auto kMlp = KernelFamily::kMatMulMlp;

// A device of graphs only: a capture is where kernels are counted.
class GraphDevice final : public Device {
 public:
  // What an operation puts into the stream.
  void Kernels(int count) {
    if (capturing_) num_captured_ += count;
  }
  void ForgetToCount() { counts_ = false; }
  [[nodiscard]] int num_launches() const { return num_launches_; }

  [[nodiscard]] bool has_graphs() const override { return true; }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> Capture(Stream& /*stream*/,
                                                       const DeviceGraph::Issue& issue) override {
    capturing_ = true;
    num_captured_ = 0;
    const absl::Status status = issue();
    capturing_ = false;
    if (!status.ok()) return status;
    return std::make_unique<DeviceGraph>();
  }
  absl::Status Launch(DeviceGraph& /*graph*/, Stream& /*stream*/) override {
    ++num_launches_;
    return absl::OkStatus();
  }
  absl::StatusOr<int> CapturedKernels(Stream& /*stream*/) override {
    if (!capturing_ || !counts_) return absl::FailedPreconditionError("not now");
    return num_captured_;
  }

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCuda; }
  [[nodiscard]] std::string name() const override { return "graphs"; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(std::size_t) override { return Never(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(std::size_t) override {
    return Never();
  }
  [[nodiscard]] std::size_t allocated_bytes() const override { return 0; }
  [[nodiscard]] std::int64_t num_allocations() const override { return 0; }
  Stream& compute() override { return stream_; }
  Stream& gather() override { return stream_; }
  Stream& scatter() override { return stream_; }
  Stream& copy() override { return stream_; }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override { return Never(); }
  absl::Status Record(Event&, Stream&) override { return Never(); }
  absl::Status Wait(Stream&, Event&) override { return Never(); }
  absl::StatusOr<double> ElapsedSeconds(Event&, Event&) override { return Never(); }
  absl::Status Copy(void*, const void*, std::size_t, Stream&) override { return Never(); }
  absl::Status Zero(void*, std::size_t, Stream&) override { return Never(); }
  absl::Status Synchronize(Stream&) override { return Never(); }
  absl::Status Synchronize(Event&) override { return Never(); }
  Ops& ops() override { std::abort(); }

 private:
  static absl::Status Never() { return absl::UnimplementedError("not of this device"); }
  Stream stream_;
  bool capturing_ = false;
  bool counts_ = true;
  int num_captured_ = 0;
  int num_launches_ = 0;
};

class StageGraphsTest : public ::testing::Test {
 protected:
  // A norm of one kernel, a kernel of no launch, a matmul of `matmul_kernels`, and another of none.
  absl::Status Layer(int stage, int matmul_kernels) {
    const auto launch = [this](KernelFamily family, int kernels) {
      return Launch(recorder_, {.family = family, .flops = 1}, [this, kernels] {
        device_.Kernels(kernels);
        return absl::OkStatus();
      });
    };
    return graphs_.Run({.stage = stage}, [&]() -> absl::Status {
      absl::Status status = launch(kNorm, 1);
      device_.Kernels(1);
      status.Update(launch(kMlp, matmul_kernels));
      device_.Kernels(1);
      return status;
    });
  }
  std::vector<ExpectedRun> Order() {
    graphs_.BeginOrder();
    EXPECT_TRUE(Layer(0, 2).ok());
    EXPECT_TRUE(Layer(1, 3).ok());
    return graphs_.EndOrder();
  }

  GraphDevice device_;
  FamilyRecorder recorder_{false};
  StageGraphs graphs_{device_, recorder_, true};
};

void ExpectLaunch(const ExpectedLaunch& launch, std::optional<KernelFamily> family, int kernels) {
  EXPECT_EQ(launch.family, family);
  EXPECT_EQ(launch.num_kernels, kernels);
}

TEST_F(StageGraphsTest, TheOrderOfAStepHasTheKernelsOfEachLaunch) {
  // As it is, captured, launched.
  std::vector<ExpectedRun> order = Order();
  ASSERT_EQ(order.size(), 2U);
  EXPECT_FALSE(order[0].is_graph);
  ASSERT_EQ(order[0].launches.size(), 1U);
  ExpectLaunch(order[0].launches[0], std::nullopt, ExpectedLaunch::kUnknownKernels);
  for (int i = 0; i < 2; ++i) {
    order = Order();
    ASSERT_EQ(order.size(), 2U);
    for (const ExpectedRun& run : order) {
      EXPECT_TRUE(run.is_graph);
      ASSERT_EQ(run.launches.size(), 4U);
      ExpectLaunch(run.launches[0], kNorm, 1);
      ExpectLaunch(run.launches[1], std::nullopt, 1);
      ExpectLaunch(run.launches[3], std::nullopt, 1);
    }
    ExpectLaunch(order[0].launches[2], kMlp, 2);
    ExpectLaunch(order[1].launches[2], kMlp, 3);
  }
  EXPECT_EQ(device_.num_launches(), 4);
  EXPECT_EQ(recorder_.timer(), nullptr);
  // Counting counts nothing twice: three times two layers.
  EXPECT_EQ(recorder_.totals()[static_cast<std::size_t>(kMlp)].launches, 6);
}

TEST_F(StageGraphsTest, AnOrderIsOfItsOwnStepOnly) {
  EXPECT_EQ(Order().size(), 2U);
  EXPECT_TRUE(Layer(0, 2).ok());
  EXPECT_EQ(Order().size(), 2U);
  graphs_.Pause(true);
  const std::vector<ExpectedRun> paused = Order();
  ASSERT_EQ(paused.size(), 2U);
  EXPECT_FALSE(paused[0].is_graph);
}

TEST_F(StageGraphsTest, ADeviceThatCannotCountStopsNoStep) {
  device_.ForgetToCount();
  static_cast<void>(Order());
  const std::vector<ExpectedRun> order = Order();
  ASSERT_EQ(order.size(), 2U);
  EXPECT_EQ(graphs_.num_graphs(), 2U);
  ASSERT_EQ(order[0].launches.size(), 1U);
  ExpectLaunch(order[0].launches[0], std::nullopt, ExpectedLaunch::kUnknownKernels);
}

TEST_F(StageGraphsTest, AFailedCaptureLeavesTheTimerAlone) {
  const auto fail = [] { return absl::InternalError("no"); };
  EXPECT_TRUE(absl::IsInternal(graphs_.Run({.stage = 9}, fail)));
  EXPECT_TRUE(absl::IsInternal(graphs_.Run({.stage = 9}, fail)));
  EXPECT_EQ(recorder_.timer(), nullptr);
  EXPECT_EQ(graphs_.num_graphs(), 0U);
}

}  // namespace
}  // namespace fsdp
