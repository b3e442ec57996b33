#ifndef FSDPCTL_TESTS_UNIT_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_

// A small model's shards with known numbers, saved and loaded on any number of ranks.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/fakes/crashing_blob_store.h"
#include "worker/checkpoint/checkpoint_loader.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace fsdp {

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
};

// Rows that do not divide by any tested world size, a vector, and a tensor with fewer rows than
// ranks.
inline const std::vector<Parameter> kModel = {
    {"embed", {13, 4}}, {"layers.0.norm1", {7}}, {"layers.0.w", {2, 3, 2}}, {"head", {1, 5}}};

// What element i (of the whole tensor) of a part holds.
inline float ValueOf(std::size_t tensor, std::size_t part, std::int64_t i) {
  return static_cast<float>(tensor * 1000 + part * 100) + static_cast<float>(i) / 8.0F;
}

// One rank's memory of the model.
class RankState {
 public:
  RankState(const std::vector<Parameter>& model, int rank, int world_size, bool filled) {
    for (std::size_t t = 0; t < model.size(); ++t) {
      ShardTensor tensor;
      tensor.name = model[t].name;
      tensor.shape = model[t].shape;
      // Rounded up, so that late ranks may hold no row.
      const std::int64_t rows = tensor.shape[0];
      const std::int64_t per_rank = (rows + world_size - 1) / world_size;
      tensor.row_begin = std::min(rows, rank * per_rank);
      tensor.row_end = std::min(rows, tensor.row_begin + per_rank);
      const std::int64_t row = tensor.row_elements();
      Vector* parts[] = {&tensor.master, &tensor.m, &tensor.v};
      for (std::size_t part = 0; part < 3; ++part) {
        const std::int64_t size = (tensor.row_end - tensor.row_begin) * row;
        memory_.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(size) + 1));
        *parts[part] = {memory_.back()->data(), DType::kF32, size};
        for (std::int64_t i = 0; filled && i < size; ++i) {
          (*memory_.back())[static_cast<std::size_t>(i)] =
              ValueOf(t, part, tensor.row_begin * row + i);
        }
      }
      tensors_.push_back(tensor);
    }
  }

  [[nodiscard]] const std::vector<ShardTensor>& tensors() const { return tensors_; }
  // Empty, or the first wrong element.
  [[nodiscard]] std::string Check(bool optimizer_state = true) const {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const ShardTensor& tensor = tensors_[t];
      const Vector parts[] = {tensor.master, tensor.m, tensor.v};
      for (std::size_t part = 0; part < 3; ++part) {
        for (std::int64_t i = 0; i < parts[part].size; ++i) {
          const float expected =
              part > 0 && !optimizer_state
                  ? 0
                  : ValueOf(t, part, tensor.row_begin * tensor.row_elements() + i);
          const float value = static_cast<const float*>(parts[part].data)[i];
          if (value != expected) {
            return absl::StrCat(tensor.name, " ", kTensorParts[part], "[", i, "] is ", value,
                                ", not ", expected);
          }
        }
      }
    }
    return "";
  }

 private:
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  std::vector<ShardTensor> tensors_;
};

class CheckpointTest : public testing::Test {
 protected:
  absl::Status Save(BlobStore& store, const std::string& directory, int world_size,
                    std::int64_t step = 5, std::int64_t epoch = 1) {
    std::vector<ManifestFile> files;
    for (int rank = 0; rank < world_size; ++rank) {
      const RankState state(kModel, rank, world_size, true);
      auto file = WriteShard(store, directory, rank, state.tensors(), *device_);
      if (!file.ok()) return file.status();
      files.push_back(*file);
    }
    Manifest header;
    header.job = "jobs/test";
    header.step = step;
    header.epoch = epoch;
    header.position = 40;
    header.tokens = 640;
    header.seed = ~0ULL;
    header.created = "2026-01-02T03:04:05Z";
    header.train_loss = 2.25;
    header.validation_loss = 2.5;
    auto manifest = BuildManifest(store, directory, header, files);
    if (!manifest.ok()) return manifest.status();
    return PublishManifest(store, directory, *manifest);
  }

  absl::Status Load(BlobStore& store, const std::string& directory, int world_size,
                    const std::vector<Parameter>& model = kModel) {
    for (int rank = 0; rank < world_size; ++rank) {
      const RankState state(model, rank, world_size, false);
      const auto manifest = LoadCheckpoint(store, directory, state.tensors(), *device_);
      if (!manifest.ok()) return manifest.status();
      EXPECT_EQ(state.Check(), "") << "rank " << rank << " of " << world_size;
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Device> device_ = CreateCpuDevice({.num_threads = 1}).value();
  CrashingBlobStore store_;
  const std::string dir_ = "/c/step-00000005.e00001";
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
