#include "worker/daemon/inventory.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::daemon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = DeviceRequest::Kind;

class FakeNvml : public Nvml {
 public:
  explicit FakeNvml(int count) : count_(count) {}
  [[nodiscard]] int device_count() const override { return count_; }
  absl::StatusOr<v1::DeviceInfo> Describe(int index) const override {
    v1::DeviceInfo device;
    device.set_type(v1::DEVICE_TYPE_CUDA);
    device.set_index(index);
    device.set_uuid(absl::StrCat("GPU-", index));
    return device;
  }
  absl::StatusOr<std::vector<Process>> Processes(int) const override {
    return std::vector<Process>();
  }

 private:
  int count_;
};

TEST(ParseDevicesTest, Forms) {
  EXPECT_EQ(ParseDevices("all")->kind, Kind::kAll);
  EXPECT_EQ(ParseDevices("cpu")->num_slots, 1);
  EXPECT_EQ(ParseDevices("cpu:4")->kind, Kind::kCpu);
  EXPECT_EQ(ParseDevices("cpu:4")->num_slots, 4);
  EXPECT_EQ(ParseDevices("cuda:3")->kind, Kind::kCuda);
  EXPECT_EQ(ParseDevices("cuda:3")->index, 3);
}

TEST(ParseDevicesTest, AnythingElseIsNamedWithTheRemedy) {
  for (const std::string bad : {"", "cpu:0", "cpu:-1", "cpu:1025", "cpu:x", "cuda", "cuda:-1",
                                "gpu:0", "ALL", "cpu:", ":1", "cpu:99999999999999999999"}) {
    const absl::Status status = ParseDevices(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--devices=" + bad + ":"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("cpu:N"));
  }
}

TEST(FindDevicesTest, CpuSlotsNeedNoNvml) {
  const auto devices = FindDevices(ParseDevices("cpu:3").value(), nullptr).value();
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[2].index(), 2);
  EXPECT_EQ(DeviceLabel(devices[2]), "cpu-2");
  EXPECT_GE(devices[2].cpu_threads(), 1);
  // Ranks on all slots must fit together.
  const std::int64_t host_bytes = CpuSlot(0, 1).memory_bytes();
  EXPECT_EQ(devices[2].memory_bytes(), host_bytes / 3);
  EXPECT_NE(devices[2].model(), "");
}

TEST(FindDevicesTest, AllMeansCudaDevices) {
  const FakeNvml nvml(2);
  const auto devices = FindDevices(ParseDevices("all").value(), &nvml).value();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].uuid(), "GPU-1");
  EXPECT_EQ(DeviceLabel(devices[1]), "cuda-1");
  EXPECT_EQ(FindDevices(ParseDevices("cuda:1").value(), &nvml)->at(0).index(), 1);
}

TEST(FindDevicesTest, AHostWithoutGpusSaysSo) {
  const FakeNvml none(0);
  for (const Nvml* nvml : {static_cast<const Nvml*>(nullptr), static_cast<const Nvml*>(&none)}) {
    const absl::Status status = FindDevices(ParseDevices("all").value(), nvml).status();
    EXPECT_TRUE(absl::IsNotFound(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--devices=cpu:N"));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(nvml == nullptr ? "there is no NVIDIA driver" : "shows no device"));
  }
  const FakeNvml two(2);
  EXPECT_THAT(std::string(FindDevices(ParseDevices("cuda:2").value(), &two).status().message()),
              HasSubstr("0 to 1"));
}

std::vector<v1::DeviceInfo> CudaDevices(int count) {
  const FakeNvml nvml(count);
  return FindDevices(ParseDevices("all").value(), &nvml).value();
}

std::vector<int> Indices(const absl::StatusOr<std::vector<v1::DeviceInfo>>& devices) {
  std::vector<int> indices;
  for (const v1::DeviceInfo& device : devices.value()) indices.push_back(device.index());
  return indices;
}

TEST(SpreadWorkersTest, OneEachFewerOrInTurnWhereSharingIsAllowed) {
  EXPECT_THAT(Indices(SpreadWorkers(CudaDevices(3), 0, false)), ElementsAre(0, 1, 2));
  EXPECT_THAT(Indices(SpreadWorkers(CudaDevices(3), 2, false)), ElementsAre(0, 1));
  EXPECT_THAT(Indices(SpreadWorkers(CudaDevices(1), 1, false)), ElementsAre(0));
  EXPECT_THAT(Indices(SpreadWorkers(CudaDevices(1), 4, true)), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Indices(SpreadWorkers(CudaDevices(2), 5, true)), ElementsAre(0, 1, 0, 1, 0));
}

TEST(SpreadWorkersTest, WhatCannotBeSaysWhatCan) {
  const auto message = [](const auto& spread) { return std::string(spread.status().message()); };
  EXPECT_THAT(message(SpreadWorkers(CudaDevices(2), 3, false)),
              AllOf(HasSubstr("--workers=3: there are 2 devices"), HasSubstr("--share-device")));
  EXPECT_THAT(message(SpreadWorkers(CudaDevices(1), -1, true)), HasSubstr("use 1 to 1024"));
  EXPECT_THAT(message(SpreadWorkers({CpuSlot(0, 1)}, 3, true)), HasSubstr("--devices=cpu:3"));
}

TEST(DeviceLinesTest, AreJsonWhateverADriverCallsItsDevice) {
  v1::DeviceInfo device = CudaDevices(1).front();
  device.set_model("H200 \"x\" \xff");
  device.set_memory_bytes(150);
  EXPECT_EQ(DeviceLines({device}),
            "{\"type\":\"cuda\",\"index\":0,\"model\":\"H200 \\\"x\\\" \xef\xbf\xbd\","
            "\"uuid\":\"GPU-0\",\"memory_bytes\":150}\n");
}

TEST(ForeignMemoryTest, ProcessesAndMemoryMakeADeviceUnplaceable) {
  v1::DeviceInfo device;
  device.set_type(v1::DEVICE_TYPE_CUDA);
  device.set_memory_used_bytes(std::int64_t{600} << 20);
  EXPECT_EQ(ForeignMemoryReason(device, {}), "");
  const std::string reason = ForeignMemoryReason(device, {{.pid = 42, .used_bytes = 5 << 20}});
  EXPECT_THAT(reason, HasSubstr("pid 42 has 5 MiB"));
  EXPECT_THAT(reason, HasSubstr("--share-device"));
  // In a container the driver names no processes.
  device.set_memory_used_bytes(std::int64_t{5000} << 20);
  EXPECT_THAT(ForeignMemoryReason(device, {}), HasSubstr("5000 MiB of cuda-0"));
  device.set_type(v1::DEVICE_TYPE_CPU);
  EXPECT_EQ(ForeignMemoryReason(device, {}), "");
}

}  // namespace
}  // namespace fsdp::daemon
