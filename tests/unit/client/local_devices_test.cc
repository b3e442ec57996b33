#include "client/commands/local_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LocalDevices Gpus(int count) {
  LocalDevices devices;
  devices.gpus.assign(static_cast<std::size_t>(count), "NVIDIA H200");
  devices.has_cuda_trainer = true;
  return devices;
}

std::string Error(const LocalWorkersRequest& request, const LocalDevices& devices,
                  absl::StatusCode code) {
  const absl::Status status = ChooseLocalWorkers(request, devices).status();
  EXPECT_EQ(status.code(), code);
  return std::string(status.message());
}

TEST(ParseDeviceListTest, ReadsNamesOrTheReason) {
  const LocalDevices two = ParseDeviceList(
      "{\"type\":\"cuda\",\"index\":0,\"model\":\"NVIDIA H200\"}\n"
      "{\"type\":\"cuda\",\"index\":1}\n{\"type\":\"cpu\"}\n");
  EXPECT_THAT(two.gpus, ElementsAre("NVIDIA H200", "GPU"));
  const LocalDevices none = ParseDeviceList("a warning\nfsdp-worker: no driver\n");
  EXPECT_THAT(none.gpus, IsEmpty());
  EXPECT_EQ(none.reason, "fsdp-worker: no driver");
  EXPECT_THAT(ParseDeviceList("").gpus, IsEmpty());
}

TEST(ChooseLocalWorkersTest, EveryGpuGetsAWorker) {
  const LocalWorkers workers = ChooseLocalWorkers({}, Gpus(2)).value();
  EXPECT_EQ(workers.num_workers, 2);
  EXPECT_EQ(workers.device, "cuda");
  EXPECT_THAT(workers.flags, ElementsAre("--devices=all", "--workers=2"));
  EXPECT_EQ(workers.description, "2 GPU workers (2 x NVIDIA H200)");
  EXPECT_EQ(workers.note, "");
  EXPECT_THAT(ChooseLocalWorkers({.num_workers = 1}, Gpus(2))->flags,
              ElementsAre("--devices=all", "--workers=1"));
}

TEST(ChooseLocalWorkersTest, SeveralOnOneGpuMustBeAskedFor) {
  EXPECT_THAT(Error({.num_workers = 4}, Gpus(1), absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("--workers=4: there is 1 GPU;"), HasSubstr("--share-device")));
  const LocalWorkers workers =
      ChooseLocalWorkers({.num_workers = 4, .share_device = true}, Gpus(1)).value();
  EXPECT_EQ(workers.num_workers, 4);
  EXPECT_THAT(workers.flags, ElementsAre("--devices=all", "--workers=4", "--share-device"));
  EXPECT_EQ(workers.description, "4 GPU workers sharing NVIDIA H200");
}

TEST(ChooseLocalWorkersTest, WithoutGpusTheCpu) {
  const LocalWorkers workers = ChooseLocalWorkers({}, {}).value();
  EXPECT_EQ(workers.num_workers, 4);
  EXPECT_EQ(workers.device, "cpu");
  EXPECT_THAT(workers.flags, ElementsAre("--devices=cpu:4"));
  EXPECT_EQ(workers.description, "4 CPU workers");
  EXPECT_EQ(ChooseLocalWorkers({.devices = "cpu", .num_workers = 1}, Gpus(1))->description,
            "1 CPU worker");
}

TEST(ChooseLocalWorkersTest, ABuildWithoutCudaSaysThatTheGpuIsUnused) {
  LocalDevices devices = Gpus(1);
  devices.has_cuda_trainer = false;
  const LocalWorkers workers = ChooseLocalWorkers({}, devices).value();
  EXPECT_EQ(workers.device, "cpu");
  EXPECT_THAT(workers.note, HasSubstr("NVIDIA H200 stays unused"));
  EXPECT_EQ(ChooseLocalWorkers({.devices = "cpu"}, devices)->note, "");
  EXPECT_THAT(Error({.devices = "cuda"}, devices, absl::StatusCode::kFailedPrecondition),
              HasSubstr("no fsdp-trainer-cuda"));
}

TEST(ChooseLocalWorkersTest, GpusThatAreAskedForAndMissingAreAnErrorWithTheCause) {
  LocalDevices none;
  none.reason = "there is no NVIDIA driver";
  EXPECT_EQ(Error({.devices = "cuda"}, none, absl::StatusCode::kFailedPrecondition),
            "--devices=cuda: there is no NVIDIA driver");
  EXPECT_EQ(Error({.share_device = true}, none, absl::StatusCode::kFailedPrecondition),
            "--share-device: there is no NVIDIA driver");
  EXPECT_THAT(
      Error({.devices = "cpu", .share_device = true}, none, absl::StatusCode::kInvalidArgument),
      HasSubstr("--share-device is for GPUs"));
}

}  // namespace
}  // namespace fsdp
