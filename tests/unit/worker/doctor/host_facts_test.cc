#include "worker/doctor/host_facts.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_folder.h"

namespace fsdp::doctor {
namespace {

using ::testing::HasSubstr;

class FakeNvml : public daemon::Nvml {
 public:
  [[nodiscard]] int device_count() const override { return 2; }
  absl::StatusOr<v1::DeviceInfo> Describe(int index) const override {
    if (index == 1) return absl::InternalError("GPU is lost");
    v1::DeviceInfo device;
    device.set_type(v1::DEVICE_TYPE_CUDA);
    device.set_uuid("GPU-0");
    return device;
  }
  absl::StatusOr<std::vector<Process>> Processes(int) const override {
    return std::vector<Process>{{.pid = 9, .used_bytes = 5}};
  }
  absl::StatusOr<daemon::DeviceReading> ReadHealth(int) const override {
    daemon::DeviceReading reading;
    reading.ecc_errors["uncorrected"] = 1;
    return reading;
  }
};

TEST(HostFactsTest, DevicesWithWhatHoldsThemAndThoseThatAreLost) {
  HostFacts facts;
  const FakeNvml nvml;
  ReadGpus(&nvml, &facts);
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_TRUE(facts.nvml_opened);
  EXPECT_EQ(facts.gpus[0].device.uuid(), "GPU-0");
  EXPECT_EQ(facts.gpus[0].processes.at(0).pid, 9);
  EXPECT_EQ(facts.gpus[0].reading.ecc_errors.at("uncorrected"), 1);
  EXPECT_EQ(facts.gpus[1].error, "GPU is lost");
  EXPECT_EQ(facts.gpus[1].device.index(), 1);
  HostFacts none;
  ReadGpus(nullptr, &none);
  EXPECT_FALSE(none.nvml_opened);
  EXPECT_TRUE(none.gpus.empty());
}

TEST(HostFactsTest, QuotaOfTheControlGroup) {
  EXPECT_EQ(ParseCpuQuota("max 100000\n"), std::nullopt);
  EXPECT_EQ(ParseCpuQuota(""), std::nullopt);
  EXPECT_EQ(ParseCpuQuota("0 100000\n"), std::nullopt);
  EXPECT_DOUBLE_EQ(*ParseCpuQuota("250000 100000\n"), 2.5);
}

TEST(HostFactsTest, VersionOfTheKernelsModule) {
  EXPECT_EQ(ParseDriverModule("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04 "
                              " Release Build  (root@host)\nGCC version: gcc 12.2.0\n"),
            "580.159.04");
  EXPECT_EQ(ParseDriverModule("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1  Tue\n"),
            "535.1");
  EXPECT_EQ(ParseDriverModule(""), "");
}

TEST(HostFactsTest, VersionsAsPeopleWriteThem) {
  EXPECT_EQ(CudaVersionText(13000), "13.0");
  EXPECT_EQ(CudaVersionText(12080), "12.8");
  EXPECT_EQ(NcclVersionText(22803), "2.28.3");
}

TEST(HostFactsTest, AFolderIsMeasuredAndLeftAsItWas) {
  const TemporaryFolder folder;
  const DiskFacts facts = ReadDisk(folder.path());
  EXPECT_EQ(facts.error, "");
  EXPECT_GT(facts.total_bytes, 0);
  EXPECT_GE(facts.total_bytes, facts.free_bytes);
  EXPECT_NE(facts.file_system, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(HostFactsTest, WhatIsNoFolderSaysSo) {
  const TemporaryFolder folder;
  const std::string missing = absl::StrCat(folder.path(), "/a/b");
  EXPECT_EQ(ReadDisk(missing).error,
            absl::StrCat("does not exist (measured at ", std::string(folder.path()), ")"));
  EXPECT_GT(ReadDisk(missing).total_bytes, 0);
  const std::string file = absl::StrCat(folder.path(), "/file");
  std::ofstream(file) << "x";
  EXPECT_EQ(ReadDisk(file).error, "is no folder");
  // Not even root may write there.
  EXPECT_THAT(ReadDisk("/proc").error, HasSubstr("cannot be written to: "));
}

TEST(HostFactsTest, ThisMachine) {
  const HostFacts facts =
      ReadHostFacts({.paths = {"/tmp"}, .network = {.interface = "no-such-if"}});
  EXPECT_NE(facts.host, "");
  EXPECT_NE(facts.open_files, 0);
  EXPECT_GT(facts.memory_bytes, facts.memory_available_bytes);
  EXPECT_GE(facts.processors_online, 1);
  EXPECT_GT(facts.processors_allowed, 0);
  ASSERT_EQ(facts.disks.size(), 1u);
  EXPECT_EQ(facts.disks[0].path, "/tmp");
  EXPECT_FALSE(facts.interfaces.empty());
  EXPECT_THAT(std::string(facts.network.status().message()), HasSubstr("--interface=no-such-if"));
}

TEST(HostFactsTest, EveryLibraryIsLookedForAndNoneHasToBeThere) {
  std::vector<std::string> names;
  for (const LibraryFacts& library : ReadLibraries()) {
    names.push_back(library.name);
    EXPECT_THAT(library.file, HasSubstr(".so."));
  }
  EXPECT_THAT(names, ::testing::ElementsAre("CUDA driver", "cuBLASLt", "NCCL", "cuDNN", "CUPTI"));
}

}  // namespace
}  // namespace fsdp::doctor
