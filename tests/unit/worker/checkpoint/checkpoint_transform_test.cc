// Checkpoints compared, and rewritten for another number of ranks.

#include "worker/checkpoint/checkpoint_transform.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"

namespace fsdp {
namespace {

TEST_F(CheckpointTest, ReshardedItIsTheSameOnAnyWorldSize) {
  ASSERT_TRUE(Save(store_, dir_, 3).ok());
  for (const int world : {1, 2, 5, 17}) {
    const std::string root = absl::StrCat("/for-", world);
    const auto path = ReshardCheckpoint(store_, dir_, root, world);
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(*path, root + "/step-00000005.e00001");
    const Manifest manifest = ReadManifest(store_, *path).value();
    EXPECT_EQ(manifest.world_size, world);
    EXPECT_EQ(manifest.position, 40);
    for (const int to : {1, 4}) ASSERT_TRUE(Load(store_, *path, to).ok()) << world << " to " << to;
    const auto difference = CompareCheckpoints(store_, dir_, *path);
    ASSERT_TRUE(difference.ok()) << difference.status();
    EXPECT_TRUE(difference->same_tensors());
    EXPECT_EQ(difference->tensors.size(), kModel.size());
    EXPECT_EQ(ReshardCheckpoint(store_, dir_, root, world).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
}

TEST_F(CheckpointTest, ADifferenceIsCountedAndMeasured) {
  const std::string other = "/d/step-00000005.e00001";
  ASSERT_TRUE(Save(store_, dir_, 2).ok());
  std::vector<ManifestFile> files;
  for (int rank = 0; rank < 3; ++rank) {
    const RankState state(kModel, rank, 3, true);
    if (rank == 0) static_cast<float*>(state.tensors()[0].m.data)[1] += 0.5F;
    files.push_back(WriteShard(store_, other, rank, state.tensors(), *device_).value());
  }
  Manifest header;
  header.step = 5;
  header.epoch = 1;
  const Manifest manifest = BuildManifest(store_, other, header, files).value();
  ASSERT_TRUE(PublishManifest(store_, other, manifest).ok());
  const auto difference = CompareCheckpoints(store_, dir_, other);
  ASSERT_TRUE(difference.ok()) << difference.status();
  EXPECT_FALSE(difference->same_tensors());
  int differing = 0;
  for (const TensorDifference& tensor : difference->tensors) {
    if (tensor.same()) continue;
    ++differing;
    EXPECT_EQ(tensor.name, kModel[0].name);
    EXPECT_EQ(tensor.parts[0].different, 0);
    EXPECT_EQ(tensor.parts[1].different, 1);
    EXPECT_NEAR(tensor.parts[1].largest, 0.5, 1e-6);
    EXPECT_GT(tensor.parts[1].relative, 0);
    EXPECT_EQ(tensor.parts[2].different, 0);
  }
  EXPECT_EQ(differing, 1);
  EXPECT_EQ(CompareCheckpoints(store_, dir_, "/none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fsdp
