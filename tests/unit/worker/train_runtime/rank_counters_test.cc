// Counters beside a training, with a driver that reads what the test wrote.

#include "worker/train/rank_counters.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "proto/support/clock.h"
#include "tests/unit/worker/train_runtime/trainer_fixture.h"

namespace fsdp {
namespace {

// Shared with the driver, which lives on the windows' thread.
struct Script {
  std::atomic<int> begins{0};
  std::atomic<int> ends{0};
  absl::Status refusal;
};

// A gather that fills its window: one stream, one family, samples of 80 % HBM, at least 100 of
// them.
class ScriptedDriver final : public CounterDriver {
 public:
  explicit ScriptedDriver(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  absl::Status Begin(Pace /*pace*/) override {
    ++script_->begins;
    begin_ns_ = Now();
    return script_->refusal;
  }
  absl::StatusOr<CounterReading> End() override {
    CounterReading reading;
    reading.begin_ns = begin_ns_;
    const std::int64_t num_samples = std::max<std::int64_t>(100, (Now() - begin_ns_) / kSampleNs);
    reading.end_ns = begin_ns_ + num_samples * kSampleNs;
    // The compute stream's records say where the window is whole.
    reading.kernels.push_back({reading.begin_ns, reading.begin_ns + 1, kComputeStream, 1});
    reading.kernels.push_back({reading.begin_ns, reading.end_ns, kGatherStream, 2});
    reading.kernels.push_back({reading.end_ns - 1, reading.end_ns, kComputeStream, 3});
    for (std::int64_t i = 0; i < num_samples; ++i) {
      const std::int64_t at = begin_ns_ + i * kSampleNs;
      reading.samples.push_back({at, at + kSampleNs, 0.05, 0.8, 0});
    }
    ++script_->ends;
    return reading;
  }

  static constexpr std::uint32_t kComputeStream = 7;
  static constexpr std::uint32_t kGatherStream = 8;

 private:
  static constexpr std::int64_t kSampleNs = 100'000;
  static std::int64_t Now() { return absl::ToInt64Nanoseconds(Clock::Real().Now().since_start()); }
  const std::shared_ptr<Script> script_;
  std::int64_t begin_ns_ = 0;
};

class RankCountersTest : public TrainerTest {
 protected:
  // One rank of a job with windows back to back; what it reported. `profile`: after two steps, if
  // it names one; its end ends the training.
  std::vector<v1::StepReport> Train(bool enabled, std::int64_t steps,
                                    const v1::TrainerProfile& profile = {}) {
    v1::TrainingJob job = Job(steps);
    job.mutable_spec()->mutable_profile()->set_enabled(enabled);
    job.mutable_spec()->mutable_profile()->set_every_seconds(0);
    Epoch epoch(job);
    epoch.counters = [this](Device& device) {
      CounterSource source;
      source.driver = std::make_unique<ScriptedDriver>(script_);
      source.stream_id = [&device](Stream& stream) -> absl::StatusOr<std::uint32_t> {
        if (&stream == &device.compute()) return ScriptedDriver::kComputeStream;
        return &stream == &device.gather() ? ScriptedDriver::kGatherStream : 9U;
      };
      return source;
    };
    const bool profiled = !profile.profile().empty();
    if (profiled) {
      epoch.links[0]->ProfileAfter(2, profile);
      epoch.links[0]->StopAfterProfile();
    }
    epoch.Run();
    EXPECT_EQ(epoch.done().finished(), !profiled);
    return epoch.links[0]->Steps();
  }

  [[nodiscard]] v1::TrainerProfile CountedRequest() const {
    v1::TrainerProfile profile;
    profile.set_profile("p1");
    profile.mutable_options()->set_steps(20);
    profile.mutable_options()->set_counters(true);
    profile.set_path(directory_ + "/recording");
    return profile;
  }
  [[nodiscard]] v1::RankProfile Recording() const {
    std::ifstream file(directory_ + "/recording", std::ios::binary);
    v1::RankProfile profile;
    EXPECT_TRUE(profile.ParseFromString(std::string(std::istreambuf_iterator<char>(file), {})));
    return profile;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
};

TEST_F(RankCountersTest, NothingIsAskedForUnlessTheJobWantsIt) {
  const std::vector<v1::StepReport> steps = Train(false, 20);
  EXPECT_EQ(script_->begins, 0);
  EXPECT_EQ(steps.back().profiler().state(), "analytic");
}

TEST_F(RankCountersTest, WindowsBeginOnceTheOrderIsKnownAndTheirCountsAreReported) {
  const std::vector<v1::StepReport> steps = Train(true, 400);
  EXPECT_GT(script_->ends, 0);
  const v1::ProfilerHealth& health = steps.back().profiler();
  EXPECT_THAT(health.state(), ::testing::AnyOf("idle", "sampling"));
  EXPECT_GT(health.windows(), 0);
  EXPECT_GT(health.samples(), 30);
  EXPECT_EQ(steps[3].profiler().windows(), 0) << "no window before the order is known";
}

TEST_F(RankCountersTest, ARecordingHasAWindowOfItsOwn) {
  // The window opens on another thread while the steps go on.
  const std::vector<v1::StepReport> steps = Train(false, 1'000'000, CountedRequest());
  EXPECT_EQ(script_->begins, 1);
  EXPECT_EQ(script_->ends, 1);
  EXPECT_EQ(steps.back().profiler().state(), "analytic");
  const v1::RankProfile profile = Recording();
  EXPECT_EQ(profile.steps_size(), 20);
  EXPECT_EQ(profile.counter_source(), v1::METRIC_SOURCE_PM_SAMPLING);
  ASSERT_EQ(profile.counters_size(), 4) << "memory, sm, hbm, tensor";
  EXPECT_EQ(profile.counters(2).name(), "hbm");
  EXPECT_THAT(profile.counters(2).values(), ::testing::Each(0.8));
  EXPECT_FALSE(profile.families().empty());
}

TEST_F(RankCountersTest, ARecordingWithoutCountersSaysWhy) {
  script_->refusal = absl::PermissionDeniedError("counters are for administrators");
  Train(false, 1'000'000, CountedRequest());
  const v1::RankProfile profile = Recording();
  EXPECT_EQ(profile.steps_size(), 20);
  EXPECT_EQ(profile.counter_source(), v1::METRIC_SOURCE_ANALYTIC);
  EXPECT_THAT(profile.notes(), ::testing::Contains(::testing::HasSubstr("administrators")));
}

TEST_F(RankCountersTest, ADriverThatRefusesLeavesTrainingAlone) {
  script_->refusal = absl::PermissionDeniedError("counters are for administrators");
  const std::vector<v1::StepReport> steps = Train(true, 60);
  EXPECT_EQ(steps.size(), 60U);
  EXPECT_EQ(steps.back().profiler().state(), "denied");
  EXPECT_THAT(steps.back().profiler().message(), ::testing::HasSubstr("administrators"));
  EXPECT_EQ(script_->begins, 1);
}

}  // namespace
}  // namespace fsdp
