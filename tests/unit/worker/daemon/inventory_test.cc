#include "worker/daemon/inventory.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdp::daemon {
namespace {

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
  }
  const FakeNvml two(2);
  EXPECT_THAT(std::string(FindDevices(ParseDevices("cuda:2").value(), &two).status().message()),
              HasSubstr("0 to 1"));
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
