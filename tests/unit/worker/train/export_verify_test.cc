// --verify of an export: it goes by what was written, and what differs does not appear.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/fakes/watched_blob_store.h"
#include "tests/support/temporary_folder.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/device/device.h"
#include "worker/train/model_files.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

class ExportVerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCpuDevice({.num_threads = 1});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
    v1::ModelSpec spec;
    spec.set_preset("llama-tiny");
    model_ = *ResolveModel(spec);
    WriteSource();
  }

  // Weights of a size that keeps logits finite, no two alike.
  void WriteSource() {
    std::filesystem::create_directories(folder_.Path("source"));
    BlobStore& store = BlobStore::Posix();
    auto blob = store.Create(folder_.Path("source/model.safetensors")).value();
    const std::vector<ShardTensor> tensors = TensorsOf(model_);
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const ShardTensor& tensor : tensors) {
      declarations.push_back({tensor.name, "F32", tensor.shape});
    }
    auto writer = SafetensorsWriter::Create(*blob, declarations, {}).value();
    double at = 0;
    for (const ShardTensor& tensor : tensors) {
      std::int64_t size = 1;
      for (const std::int64_t extent : tensor.shape) size *= extent;
      std::vector<float> values;
      for (std::int64_t i = 0; i < size; ++i) {
        values.push_back(static_cast<float>(0.1 * std::sin(at += 0.7)));
      }
      ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
    }
    ASSERT_TRUE(writer->Finish().ok() && blob->Sync().ok() && blob->Publish().ok());
  }

  absl::StatusOr<ExportReport> Export(const std::string& dtype, BlobStore& store) {
    ModelExport request;
    request.model = model_;
    request.source = folder_.Path("source");
    request.directory = folder_.Path("exported-" + dtype);
    request.weights.dtype = dtype;
    request.verify = true;
    return ExportModel(request, store, *device_);
  }

  TemporaryFolder folder_;
  ModelConfig model_;
  std::unique_ptr<Device> device_;
};

TEST_F(ExportVerifyTest, AFaithfulExportIsMeasured) {
  for (const auto& [dtype, least, most] :
       {std::tuple("F32", 0.0, 1e-6), std::tuple("BF16", 1e-6, 2e-2),
        std::tuple("F16", 1e-7, 5e-3)}) {
    const auto report = Export(dtype, BlobStore::Posix());
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GE(report->logits_error, least) << dtype;
    EXPECT_LE(report->logits_error, most) << dtype;
    EXPECT_TRUE(std::filesystem::exists(folder_.Path(std::string("exported-") + dtype)));
  }
}

// A disk that gives back other bytes than were written: of each piece read of the export, the last
// element has the other sign.
TEST_F(ExportVerifyTest, WhatWasWrittenWrongIsRefusedAndGone) {
  constexpr std::uint64_t kBehindTheHeader = 64;
  int changed = 0;
  WatchedBlobStore store(BlobStore::Posix(), [&](const std::string& path, std::uint64_t offset,
                                                 std::span<std::byte> bytes) {
    const bool weights = path.find("exported-") != std::string::npos &&
                         path.ends_with(".safetensors") && offset > kBehindTheHeader;
    if (!weights) return;
    bytes.back() ^= std::byte{0x80};
    ++changed;
  });
  const auto report = Export("F32", store);
  EXPECT_GT(changed, 0);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss) << report.status();
  EXPECT_THAT(std::string(report.status().message()),
              HasSubstr("the export's logits differ from the source's by "));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().filename(), "source");
  }
}

}  // namespace
}  // namespace fsdp
