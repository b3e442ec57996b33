#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_STREAMS_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_STREAMS_H_

// Memory, streams and events of a device.

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/contract/device_ops/device_ops_fixture.h"

namespace fsdp {

TEST_P(DeviceOpsContract, MemoryIsZeroAlignedAndCounted) {
  const std::size_t bytes_before = device_->allocated_bytes();
  const std::int64_t calls_before = device_->num_allocations();
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, std::size_t{5} << 20}) {
    auto buffer = device_->Allocate(size);
    FSDP_ASSERT_OK(buffer.status());
    EXPECT_EQ((*buffer)->size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*buffer)->data()) % 256, 0U);
    std::vector<std::byte> bytes(size, std::byte{1});
    FSDP_ASSERT_OK(device_->Copy(bytes.data(), (*buffer)->data(), size, device_->copy()));
    FSDP_ASSERT_OK(device_->Synchronize(device_->copy()));
    EXPECT_EQ(bytes, std::vector<std::byte>(size, std::byte{0}));
  }
  EXPECT_EQ(device_->allocated_bytes() - bytes_before, 1U + 1000U + (std::size_t{5} << 20));
  EXPECT_EQ(device_->num_allocations() - calls_before, 3);
  const std::int64_t calls = device_->num_allocations();
  FSDP_ASSERT_OK(device_->AllocateHost(4096).status());
  EXPECT_EQ(device_->num_allocations(), calls);  // host memory is not device memory
  EXPECT_EQ(device_->Allocate(std::size_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->num_allocations(), calls);
}

// A chain through all four streams, ordered by events alone.
TEST_P(DeviceOpsContract, EventsOrderStreams) {
  constexpr std::int64_t kSize = 1 << 18;
  constexpr int kRounds = 20;
  Env env(*device_, DType::kF32);
  Stream* const streams[] = {&device_->gather(), &device_->compute(), &device_->scatter(),
                             &device_->copy()};
  const Vector one = env.Vec(Values(kSize, 1.0));
  const Vector sum = env.Vec(Values(kSize, 0.0));
  const Vector doubled = env.OutVec(DType::kF32, kSize);
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < 4; ++i) {
    auto event = device_->CreateEvent();
    FSDP_ASSERT_OK(event.status());
    events.push_back(std::move(*event));
  }
  // sum = 2 sum + 1, sixty times and more would leave f32's exact integers: 20 rounds do not.
  for (int round = 0; round < kRounds; ++round) {
    FSDP_ASSERT_OK(device_->Copy(doubled.data, sum.data, sum.size_bytes(), *streams[0]));
    FSDP_ASSERT_OK(device_->Record(*events[0], *streams[0]));
    FSDP_ASSERT_OK(device_->Wait(*streams[1], *events[0]));
    FSDP_ASSERT_OK(env.ops().Accumulate(*streams[1], doubled, sum));
    FSDP_ASSERT_OK(device_->Record(*events[1], *streams[1]));
    FSDP_ASSERT_OK(device_->Wait(*streams[2], *events[1]));
    FSDP_ASSERT_OK(env.ops().Accumulate(*streams[2], one, sum));
    FSDP_ASSERT_OK(device_->Record(*events[2], *streams[2]));
    FSDP_ASSERT_OK(device_->Wait(*streams[3], *events[2]));
    FSDP_ASSERT_OK(device_->Zero(doubled.data, doubled.size_bytes(), *streams[3]));
    FSDP_ASSERT_OK(device_->Record(*events[3], *streams[3]));
    FSDP_ASSERT_OK(device_->Wait(*streams[0], *events[3]));
  }
  for (Stream* stream : streams) FSDP_ASSERT_OK(device_->Synchronize(*stream));
  EXPECT_EQ(env.Get(sum), Values(kSize, std::exp2(kRounds) - 1));
}

// What a writer of checkpoints does: it waits for a copy that the step thread asked for.
TEST_P(DeviceOpsContract, AnotherThreadWaitsForAnEvent) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  auto from = device_->Allocate(kBytes);
  auto to = device_->AllocateHost(kBytes);
  auto copied = device_->CreateEvent();
  FSDP_ASSERT_OK(from.status());
  FSDP_ASSERT_OK(to.status());
  FSDP_ASSERT_OK(copied.status());
  FSDP_ASSERT_OK(device_->Synchronize(**copied));  // never recorded: passes
  std::memset((*to)->data(), 1, kBytes);
  FSDP_ASSERT_OK(device_->Copy((*to)->data(), (*from)->data(), kBytes, device_->copy()));
  FSDP_ASSERT_OK(device_->Record(**copied, device_->copy()));
  absl::Status waited = absl::UnknownError("did not run");
  bool cleared = false;
  std::thread([&] {
    waited = device_->Synchronize(**copied);
    const auto* bytes = static_cast<const std::byte*>((*to)->data());
    cleared = std::all_of(bytes, bytes + kBytes, [](std::byte b) { return b == std::byte{0}; });
  }).join();
  FSDP_ASSERT_OK(waited);
  EXPECT_TRUE(cleared);
}

TEST_P(DeviceOpsContract, EventsTellTime) {
  auto begin = device_->CreateEvent();
  auto end = device_->CreateEvent();
  FSDP_ASSERT_OK(begin.status());
  FSDP_ASSERT_OK(end.status());
  EXPECT_FALSE(device_->ElapsedSeconds(**begin, **end).ok());  // neither was reached
  // A wait for an event that was never recorded passes.
  FSDP_ASSERT_OK(device_->Wait(device_->gather(), **begin));
  FSDP_ASSERT_OK(device_->Synchronize(device_->gather()));
  auto buffer = device_->Allocate(std::size_t{32} << 20);
  FSDP_ASSERT_OK(buffer.status());
  FSDP_ASSERT_OK(device_->Record(**begin, device_->copy()));
  FSDP_ASSERT_OK(device_->Zero((*buffer)->data(), (*buffer)->size_bytes(), device_->copy()));
  FSDP_ASSERT_OK(device_->Record(**end, device_->copy()));
  FSDP_ASSERT_OK(device_->Synchronize(device_->copy()));
  const auto seconds = device_->ElapsedSeconds(**begin, **end);
  FSDP_ASSERT_OK(seconds.status());
  EXPECT_GT(*seconds, 0.0);
  const auto reversed = device_->ElapsedSeconds(**end, **begin);
  FSDP_ASSERT_OK(reversed.status());
  EXPECT_LT(*reversed, 0.0);
}

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_CASES_STREAMS_H_
