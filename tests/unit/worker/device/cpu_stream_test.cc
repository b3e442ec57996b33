#include "worker/device/cpu/cpu_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/device/device.h"
#include "worker/device/ops.h"

namespace fsdp {
namespace {

// Holds a stream's thread until it is opened.
class Gate {
 public:
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  absl::Status Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    return absl::OkStatus();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class CpuStreamTest : public ::testing::TestWithParam<CpuStream::Mode> {};

TEST_P(CpuStreamTest, RunsInOrder) {
  CpuStream stream("fsdp-test", GetParam());
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(stream
                    .Enqueue([&order, i] {
                      order.push_back(i);
                      return absl::OkStatus();
                    })
                    .ok());
  }
  ASSERT_TRUE(stream.Synchronize().ok());
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(CpuStreamTest, FirstErrorSticksUntilSynchronize) {
  CpuStream stream("fsdp-test", GetParam());
  std::atomic<int> ran = 0;
  const auto fail = [](const char* message) {
    return [message] { return absl::UnavailableError(message); };
  };
  (void)stream.Enqueue(fail("first"));
  (void)stream.Enqueue(fail("second"));
  (void)stream.Enqueue([&] {
    ++ran;
    return absl::OkStatus();
  });
  absl::Status marked;
  stream.AddMark([&](const absl::Status& status) { marked = status; });
  EXPECT_EQ(stream.Synchronize(), absl::UnavailableError("first"));
  EXPECT_EQ(ran, 0) << "work after an error ran";
  EXPECT_EQ(marked, absl::UnavailableError("first"));
  EXPECT_TRUE(stream.Synchronize().ok()) << "the error was given twice";
  EXPECT_TRUE(stream
                  .Enqueue([&] {
                    ++ran;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_TRUE(stream.Synchronize().ok());
  EXPECT_EQ(ran, 1);
}

TEST_P(CpuStreamTest, DestructorRunsWhatIsQueued) {
  int ran = 0;
  {
    CpuStream stream("fsdp-test", GetParam());
    for (int i = 0; i < 10; ++i) {
      (void)stream.Enqueue([&] {
        ++ran;
        return absl::OkStatus();
      });
    }
  }
  EXPECT_EQ(ran, 10);
}

INSTANTIATE_TEST_SUITE_P(Modes, CpuStreamTest,
                         ::testing::Values(CpuStream::Mode::kInline, CpuStream::Mode::kThread));

TEST(CpuStreamModeTest, InlineRunsAtOnceAndReturnsTheStatus) {
  CpuStream stream("fsdp-test", CpuStream::Mode::kInline);
  const std::thread::id caller = std::this_thread::get_id();
  EXPECT_EQ(stream.Enqueue([&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    return absl::InternalError("now");
  }),
            absl::InternalError("now"));
}

TEST(CpuStreamModeTest, ThreadDoesNotBlockTheCaller) {
  Gate gate;
  CpuStream stream("fsdp-test", CpuStream::Mode::kThread);
  ASSERT_TRUE(stream.Enqueue([&] { return gate.Pass(); }).ok());  // returns though it cannot pass
  gate.Open();
  EXPECT_TRUE(stream.Synchronize().ok());
}

class CpuDeviceStreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCpuDevice({.num_threads = 2});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
  }
  CpuStream& Of(Stream& stream) { return **AsCpuStream(stream); }

  std::unique_ptr<Device> device_;
};

TEST_F(CpuDeviceStreamsTest, WaitHoldsTheOtherStreamBack) {
  Gate gate;
  std::atomic<bool> first_done = false;
  std::atomic<bool> saw_first = false;
  auto event = device_->CreateEvent();
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(Of(device_->gather())
                  .Enqueue([&] {
                    const absl::Status status = gate.Pass();
                    first_done = true;
                    return status;
                  })
                  .ok());
  ASSERT_TRUE(device_->Record(**event, device_->gather()).ok());
  ASSERT_TRUE(device_->Wait(device_->scatter(), **event).ok());
  ASSERT_TRUE(Of(device_->scatter())
                  .Enqueue([&] {
                    saw_first = first_done.load();
                    return absl::OkStatus();
                  })
                  .ok());
  gate.Open();
  ASSERT_TRUE(device_->Synchronize(device_->scatter()).ok());
  EXPECT_TRUE(saw_first);
}

TEST_F(CpuDeviceStreamsTest, ErrorsTravelThroughEvents) {
  auto event = device_->CreateEvent();
  ASSERT_TRUE(event.ok());
  (void)Of(device_->gather()).Enqueue([] { return absl::UnavailableError("rank 3 is gone"); });
  ASSERT_TRUE(device_->Record(**event, device_->gather()).ok());
  // The compute stream is inline: its Wait blocks and returns the error of what it waited for.
  EXPECT_EQ(device_->Wait(device_->compute(), **event), absl::UnavailableError("rank 3 is gone"));
  EXPECT_EQ(device_->Synchronize(device_->compute()), absl::UnavailableError("rank 3 is gone"));
  EXPECT_EQ(device_->Synchronize(device_->gather()), absl::UnavailableError("rank 3 is gone"));
  EXPECT_TRUE(device_->Synchronize(device_->gather()).ok());
}

TEST_F(CpuDeviceStreamsTest, IdsOutOfRangeAreAnErrorOfTheStream) {
  float table[3 * 2] = {};
  float out[2 * 2] = {};
  const std::vector<std::int32_t> tokens = {1, 3};
  const absl::Status status = device_->ops().EmbeddingForward(
      device_->compute(), tokens, Matrix::Packed(table, DType::kF32, 3, 2), {}, 2, {},
      Matrix::Packed(out, DType::kF32, 2, 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("tokens[1] is 3"));
}

class ForeignStream final : public Stream {};
class ForeignEvent final : public Event {};

TEST_F(CpuDeviceStreamsTest, RefusesStreamsAndEventsOfAnotherBackend) {
  ForeignStream stream;
  ForeignEvent event;
  EXPECT_EQ(device_->Zero(nullptr, 0, stream).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Record(event, device_->copy()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Synchronize(stream).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuDeviceOptionsTest, RefusesImpossibleThreadCounts) {
  EXPECT_EQ(CreateCpuDevice({.num_threads = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuDevice({.num_threads = 5000}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuDevice({.ranks_on_machine = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto device = CreateCpuDevice({.ranks_on_machine = 1000});
  ASSERT_TRUE(device.ok());
  EXPECT_THAT((*device)->name(), ::testing::HasSubstr("(1 thread)"));
}

}  // namespace
}  // namespace fsdp
