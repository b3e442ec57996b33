#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32c.h"
#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/checkpoint_loader.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/weight_reader.h"

namespace fsdp {
namespace {

using testing::HasSubstr;

TEST_F(CheckpointTest, AnyWorldSizeLoadsWhatAnyOtherWrote) {
  for (const int from : {1, 2, 3, 4, 7}) {
    const std::string directory = absl::StrCat("/c", from, "/step-00000005.e00001");
    ASSERT_TRUE(Save(store_, directory, from).ok());
    for (const int to : {1, 2, 3, 4, 7}) {
      const absl::Status status = Load(store_, directory, to);
      EXPECT_TRUE(status.ok()) << from << " -> " << to << ": " << status;
    }
  }
}

TEST_F(CheckpointTest, TheManifestRoundTrips) {
  ASSERT_TRUE(Save(store_, dir_, 3).ok());
  const Manifest manifest = ReadManifest(store_, dir_).value();
  EXPECT_EQ(manifest.step, 5);
  EXPECT_EQ(manifest.position, 40);
  EXPECT_EQ(manifest.seed, ~0ULL);
  EXPECT_EQ(manifest.train_loss, 2.25);
  EXPECT_EQ(manifest.validation_loss, 2.5);
  EXPECT_EQ(manifest.world_size, 3);
  EXPECT_EQ(manifest.files[2].name, "rank-00002.safetensors");
  EXPECT_EQ(SerializeManifest(ParseManifest(SerializeManifest(manifest)).value()),
            SerializeManifest(manifest));
  const PublishedManifest described = DescribeManifest(manifest);
  EXPECT_EQ(described.size_bytes,
            manifest.size_bytes() + store_.Bytes(dir_ + "/manifest.json")->size());
}

TEST_F(CheckpointTest, WithoutAManifestThereIsNone) {
  const RankState state(kModel, 0, 1, true);
  ASSERT_TRUE(WriteShard(store_, dir_, 0, state.tensors(), *device_).ok());
  const absl::Status status = Load(store_, dir_, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is no checkpoint"));
}

TEST_F(CheckpointTest, AnotherModelIsNamedTensorByTensor) {
  ASSERT_TRUE(Save(store_, dir_, 2).ok());
  std::vector<Parameter> model = kModel;
  model[0].shape = {14, 4};
  model[1].name = "layers.0.norm2";
  const absl::Status status = Load(store_, dir_, 2, model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("missing layers.0.norm2"));
  EXPECT_THAT(message, HasSubstr("misshapen embed ([13,4], the model has [14,4])"));
  EXPECT_THAT(message, HasSubstr("extra layers.0.norm1"));
}

TEST_F(CheckpointTest, AMissingShardFileIsNamed) {
  ASSERT_TRUE(Save(store_, dir_, 3).ok());
  ASSERT_TRUE(store_.Remove(dir_ + "/rank-00001.safetensors").ok());
  const absl::Status status = Load(store_, dir_, 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank-00001.safetensors"));
}

// Wherever a byte of a shard flips - length, header, padding, data - some rank notices and names
// the file.
TEST_F(CheckpointTest, EveryFlippedByteOfAShardIsNoticed) {
  ASSERT_TRUE(Save(store_, dir_, 2).ok());
  std::vector<std::byte>& bytes = *store_.Bytes(dir_ + "/rank-00001.safetensors");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{0x04};
    const absl::Status status = Load(store_, dir_, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << at;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank-00001.safetensors")) << at;
    bytes[at] ^= std::byte{0x04};
  }
  EXPECT_TRUE(Load(store_, dir_, 2).ok());
}

TEST_F(CheckpointTest, EveryCutOfAShardIsNoticed) {
  ASSERT_TRUE(Save(store_, dir_, 1).ok());
  std::vector<std::byte>& bytes = *store_.Bytes(dir_ + "/rank-00000.safetensors");
  while (!bytes.empty()) {
    bytes.pop_back();
    const absl::Status status = Load(store_, dir_, 1);
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << bytes.size();
  }
}

TEST_F(CheckpointTest, EveryFlippedByteOfTheManifestIsNoticed) {
  ASSERT_TRUE(Save(store_, dir_, 2).ok());
  std::vector<std::byte>& bytes = *store_.Bytes(dir_ + "/manifest.json");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{0x01};
    EXPECT_EQ(ReadManifest(store_, dir_).status().code(), absl::StatusCode::kDataLoss) << at;
    bytes[at] ^= std::byte{0x01};
  }
  EXPECT_TRUE(ReadManifest(store_, dir_).ok());
}

TEST_F(CheckpointTest, EveryCutOfTheManifestIsRefused) {
  ASSERT_TRUE(Save(store_, dir_, 1).ok());
  std::vector<std::byte>& bytes = *store_.Bytes(dir_ + "/manifest.json");
  while (!bytes.empty()) {
    bytes.pop_back();
    EXPECT_EQ(ReadManifest(store_, dir_).status().code(), absl::StatusCode::kDataLoss);
  }
}

// A power cut after every single operation of a save: either the old checkpoint is the newest and
// loads, or the new one is and loads.
TEST_F(CheckpointTest, APowerCutAnywhereLeavesOneWholeCheckpoint) {
  const std::string root = "/jobs/a";
  const std::string first = absl::StrCat(root, "/", StepDirectoryName(5, 1));
  const std::string second = absl::StrCat(root, "/", StepDirectoryName(10, 1));
  bool completed = false;
  int new_ones = 0;
  for (int cut = 0; !completed; ++cut) {
    CrashingBlobStore store;
    ASSERT_TRUE(Save(store, first, 2, 5).ok());
    store.FailAfter(cut);
    completed = Save(store, second, 2, 10).ok();
    store.Crash();
    const auto newest = FindNewestCheckpoint(store, root);
    ASSERT_TRUE(newest.ok()) << "cut after " << cut << ": " << newest.status();
    const absl::Status loaded = Load(store, newest->path, 2);
    EXPECT_TRUE(loaded.ok()) << "cut after " << cut << ": " << loaded;
    if (newest->step == 10) ++new_ones;
    if (completed) {
      EXPECT_EQ(newest->step, 10);
    }
  }
  EXPECT_GT(new_ones, 0);
}

TEST_F(CheckpointTest, RetentionAfterAPowerCutNeverLosesTheNewest) {
  const std::string root = "/jobs/a";
  bool completed = false;
  for (int cut = 0; !completed; ++cut) {
    CrashingBlobStore store;
    for (const std::int64_t step : {1, 2, 3}) {
      ASSERT_TRUE(Save(store, absl::StrCat(root, "/", StepDirectoryName(step, 1)), 1, step).ok());
    }
    store.FailAfter(cut);
    completed = ApplyRetention(store, root, {.keep_last = 1}, {.epoch = 1}).ok();
    store.Crash();
    const auto newest = FindNewestCheckpoint(store, root);
    ASSERT_TRUE(newest.ok());
    EXPECT_EQ(newest->step, 3);
    EXPECT_TRUE(Load(store, newest->path, 1).ok());
  }
}

TEST_F(CheckpointTest, TheFinderPassesOverDamageAndSaysSo) {
  const std::string root = "/r";
  for (const std::int64_t step : {5, 6}) {
    ASSERT_TRUE(Save(store_, absl::StrCat(root, "/", StepDirectoryName(step, 1)), 1, step).ok());
  }
  store_.Bytes("/r/step-00000006.e00001/rank-00000.safetensors")->pop_back();
  EXPECT_EQ(FindNewestCheckpoint(store_, root)->step, 5);
  store_.Bytes("/r/step-00000005.e00001/manifest.json")->resize(10);
  const auto none = FindNewestCheckpoint(store_, root);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("passed over"));
  EXPECT_EQ(FindNewestCheckpoint(store_, "/nowhere").status().code(), absl::StatusCode::kNotFound);
}

CatalogEntry Entry(std::int64_t step, std::optional<double> loss, bool published = true,
                   std::int64_t epoch = 1) {
  CatalogEntry entry;
  entry.path = epoch == 1 ? absl::StrCat("s", step) : absl::StrCat("s", step, ".e", epoch);
  entry.step = step;
  entry.epoch = epoch;
  if (published) {
    entry.manifest.emplace();
    entry.manifest->validation_loss = loss;
  }
  return entry;
}

constexpr RetentionScope kOneEpoch = {.epoch = 1};

TEST(Retention, KeepsLastEveryAndBest) {
  const std::vector<CatalogEntry> entries = {
      Entry(10, 3.0), Entry(20, 1.0), Entry(25, {}, false), Entry(30, 2.0),
      Entry(40, 2.5), Entry(50, {}),  Entry(60, {}, false)};
  // 25 was never published and is older than the newest; 60 may still be written.
  EXPECT_THAT(DecideRetention(entries, {.keep_last = 2}, kOneEpoch),
              testing::ElementsAre("s10", "s20", "s25", "s30"));
  EXPECT_THAT(DecideRetention(entries, {.keep_last = 1, .keep_every_steps = 30}, kOneEpoch),
              testing::ElementsAre("s10", "s20", "s25", "s40"));
  EXPECT_THAT(DecideRetention(entries, {.keep_last = 1, .keep_best = true}, kOneEpoch),
              testing::ElementsAre("s10", "s25", "s30", "s40"));
  EXPECT_THAT(DecideRetention(entries, {.keep_last = 0}, kOneEpoch), testing::ElementsAre("s25"));
  EXPECT_TRUE(DecideRetention({Entry(1, {}, false)}, {.keep_last = 1}, kOneEpoch).empty());
}

// By the set that it is told, whatever the validation data says; what was not evaluated on it, or
// gave no number, is not the best.
TEST(Retention, TheBestIsByTheSetThatItIsToldBy) {
  std::vector<CatalogEntry> entries = {Entry(10, 1.0), Entry(20, 2.0), Entry(30, 3.0),
                                       Entry(40, 4.0), Entry(50, 5.0)};
  entries[0].manifest->evaluation_losses = {{"code", 3.0}, {"prose", 1.0}};
  entries[1].manifest->evaluation_losses = {{"code", 2.0}, {"prose", 2.0}};
  entries[2].manifest->evaluation_losses = {{"code", std::nullopt}, {"prose", 0.5}};
  const auto removed = [&](const std::string& set) {
    return DecideRetention(entries, {.keep_last = 1, .keep_best = true, .best_by = set}, kOneEpoch);
  };
  EXPECT_THAT(removed(""), testing::ElementsAre("s20", "s30", "s40"));
  EXPECT_THAT(removed("code"), testing::ElementsAre("s10", "s30", "s40"));
  EXPECT_THAT(removed("prose"), testing::ElementsAre("s10", "s20", "s40"));
  EXPECT_THAT(removed("other"), testing::ElementsAre("s10", "s20", "s30", "s40"));
}

// The coordinator gave step 40 up, for a damaged shard, and epoch 2 resumed from 20. Its manifest
// is sound, but it is not the newest: what the coordinator knows must not go for it.
TEST(Retention, WhatWasGivenUpPushesNothingOut) {
  const RetentionScope scope = {.epoch = 2, .resume_step = 20};
  const CatalogEntry given_up = Entry(40, 1.0);
  EXPECT_TRUE(DecideRetention({Entry(20, 3.0), given_up}, {.keep_last = 1}, scope).empty());
  EXPECT_THAT(
      DecideRetention({Entry(20, 3.0), Entry(25, 2.0, true, 2), given_up}, {.keep_last = 1}, scope),
      testing::ElementsAre("s20", "s40"));
  EXPECT_THAT(DecideRetention({Entry(20, 3.0), Entry(25, 2.0, true, 2), given_up},
                              {.keep_last = 1, .keep_best = true}, scope),
              testing::ElementsAre("s20", "s40"));
  // Proposed in this epoch and not admitted yet: it waits.
  EXPECT_THAT(
      DecideRetention({Entry(20, 3.0), Entry(25, 2.0, true, 2), Entry(30, {}, false, 2), given_up},
                      {.keep_last = 2}, scope),
      testing::ElementsAre("s40"));
  // The same step again, after the first was given up.
  EXPECT_THAT(
      DecideRetention({Entry(20, 3.0), given_up, Entry(40, 1.0, true, 2)}, {.keep_last = 2}, scope),
      testing::ElementsAre("s40"));
}

TEST(Retention, AnEpochThatIsOverRemovesNothing) {
  EXPECT_TRUE(DecideRetention({Entry(10, {}), Entry(20, {}), Entry(25, {}, false, 2)},
                              {.keep_last = 1}, {.epoch = 1})
                  .empty());
}

// Training that went wrong and is saved all the same leaves the checkpoint to go back to.
TEST(Retention, TheLastFiniteOneStays) {
  std::vector<CatalogEntry> entries = {Entry(10, {}), Entry(20, {}), Entry(30, {}), Entry(40, {}),
                                       Entry(50, {})};
  entries[0].manifest->train_loss = 2.0;
  entries[1].manifest->train_loss = 1.5;
  entries[2].manifest->train_loss = std::numeric_limits<double>::infinity();
  EXPECT_THAT(DecideRetention(entries, {.keep_last = 1}, kOneEpoch),
              testing::ElementsAre("s10", "s30", "s40"));
  entries[4].manifest->train_loss = 1.0;
  EXPECT_THAT(DecideRetention(entries, {.keep_last = 1}, kOneEpoch),
              testing::ElementsAre("s10", "s20", "s30", "s40"));
}

// Puts the right checksum at the end of a compact manifest without one.
std::string Sealed(std::string text) {
  text.pop_back();  // "}"
  const std::uint32_t checksum = Crc32c(std::as_bytes(std::span(text)));
  return absl::StrCat(text, ",\n \"checksum\": \"0x", absl::StrFormat("%08x", checksum), "\"\n}\n");
}

TEST(Manifests, BrokenOnesAreRefusedWithTheKey) {
  const std::string good =
      R"({"format":"fsdp.checkpoint","version":1,"job":"j","epoch":1,"step":2,"position":3,)"
      R"("tokens":4,"world_size":1,"seed":"0x0000000000000000","model_hash":"0x0000000000000000",)"
      R"("data_fingerprint":"0x0000000000000000","created":"","train_loss":1.5,"validation_loss":null,)"
      R"("evaluation_losses":{"code":2.5,"prose":null},)"
      R"("numerics":{"consecutive_skips":0,"rollbacks":1,"num_updates":2,"loss":{"mean":1.5,"variance":0.5},)"
      R"("grad_norm":{"mean":1,"variance":0}},)"
      R"("files":[{"name":"f","size_bytes":1,"crc32c":"0x00000000"}],)"
      R"("tensors":[{"name":"t","shape":[2],"ranges":[{"file":0,"rows":[0,2]}]}]})";
  ASSERT_TRUE(ParseManifest(Sealed(good)).ok()) << ParseManifest(Sealed(good)).status();
  EXPECT_THAT(std::string(ParseManifest(good).status().message()), HasSubstr("checksum"));
  const std::vector<std::pair<std::string, std::string>> edits = {
      {R"("step":2)", R"("step":-2)"},
      {R"("step":2)", R"("step":2.5)"},
      {R"("step":2)", R"("step":"2")"},
      {R"("step":2)", R"("step":99999999999999999999)"},
      {R"("step":2,)", ""},
      {R"("step":2)", R"("step":2,"stepp":2)"},
      {R"("step":2)", R"("step":2,"step":2)"},
      {R"("version":1)", R"("version":0)"},
      {"fsdp.checkpoint", "other"},
      {R"("seed":"0x0000000000000000")", R"("seed":"0x00000000000000zz")"},
      {R"("seed":"0x0000000000000000")", R"("seed":0)"},
      {R"("world_size":1)", R"("world_size":2)"},
      {R"("name":"f")", R"("name":"../f")"},
      {R"("name":"f")", R"("name":"")"},
      {R"("crc32c":"0x00000000")", R"("crc32c":"0x0")"},
      {R"("shape":[2])", R"("shape":[])"},
      {R"("shape":[2])", R"("shape":[3])"},
      {R"("shape":[2])", R"("shape":[2,9223372036854775807])"},
      {R"("file":0)", R"("file":1)"},
      {R"("rows":[0,2])", R"("rows":[1,2])"},
      {R"("rows":[0,2])", R"("rows":[0,2,3])"},
      {R"("rows":[0,2])", R"("rows":[2,0])"},
      {R"("validation_loss":null)", R"("validation_loss":"low")"},
      {R"("code":2.5)", R"("code":"low")"},
      {R"({"code":2.5,"prose":null})", "[2.5]"},
      {R"("files":[)", R"("files":[1,)"},
      {R"("rollbacks":1)", R"("rollbacks":-1)"},
      {R"("rollbacks":1,)", ""},
      {R"("mean":1.5)", R"("mean":null)"},
      {R"("variance":0.5)", R"("variance":-0.5)"},
      {R"("grad_norm":{"mean":1,"variance":0})", R"("grad_norm":1)"},
  };
  for (const auto& [from, to] : edits) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const absl::Status status = ParseManifest(Sealed(text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << to;
    EXPECT_EQ(std::string(status.message()).find("checksum"), std::string::npos) << status;
  }
  std::string newer = good;
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_EQ(ParseManifest(Sealed(newer)).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Manifests, StepFoldersAreNamedAndRecognised) {
  EXPECT_EQ(StepDirectoryName(100, 3), "step-00000100.e00003");
  EXPECT_EQ(ParseStepDirectoryName("step-123456789.e00003")->step, 123456789);
  for (const char* other : {"step-1", "step-00000100", "step-00000100.e3", "step--0000100.e00003",
                            "step-00000100.e00003.old", "xstep-00000100.e00003", ""}) {
    EXPECT_FALSE(ParseStepDirectoryName(other).has_value()) << other;
  }
}

TEST_F(CheckpointTest, WeightsComeFromPlainSafetensorsToo) {
  auto blob = store_.Create("/w/model.safetensors").value();
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const Parameter& p : kModel) declarations.push_back({p.name, "F32", p.shape});
  auto writer = SafetensorsWriter::Create(*blob, declarations, {}).value();
  const RankState whole(kModel, 0, 1, true);
  for (const ShardTensor& tensor : whole.tensors()) {
    ASSERT_TRUE(writer
                    ->Append({static_cast<const std::byte*>(tensor.master.data),
                              static_cast<std::size_t>(tensor.master.size_bytes())})
                    .ok());
  }
  ASSERT_TRUE(writer->Finish().ok() && blob->Sync().ok() && blob->Publish().ok());
  for (const std::string path : {"/w", "/w/model.safetensors"}) {
    for (int rank = 0; rank < 3; ++rank) {
      const RankState state(kModel, rank, 3, false);
      const absl::Status status = LoadWeights(store_, path, state.tensors(), *device_);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(state.Check(/*optimizer_state=*/false), "");
    }
  }
  ASSERT_TRUE(Save(store_, dir_, 2).ok());
  const RankState state(kModel, 1, 3, false);
  EXPECT_TRUE(LoadWeights(store_, dir_, state.tensors(), *device_).ok());
  EXPECT_EQ(state.Check(/*optimizer_state=*/false), "");
}

TEST_F(CheckpointTest, APosixStoreKeepsTheSamePromises) {
  std::string pattern = std::filesystem::temp_directory_path() / "fsdp-ckpt-XXXXXX";
  const std::string root = ::mkdtemp(pattern.data());
  BlobStore& posix = BlobStore::Posix();
  const std::string directory = absl::StrCat(root, "/job/", StepDirectoryName(5, 1));
  ASSERT_TRUE(Save(posix, directory, 3).ok());
  EXPECT_TRUE(Load(posix, directory, 2).ok());
  EXPECT_EQ(FindNewestCheckpoint(posix, root + "/job")->step, 5);
  {  // a writer that is given up leaves nothing
    auto blob = posix.Create(root + "/job/given-up").value();
    ASSERT_TRUE(blob->Append(std::as_bytes(std::span("x"))).ok());
  }
  EXPECT_THAT(posix.List(root + "/job").value(), testing::ElementsAre("step-00000005.e00001"));
  EXPECT_EQ(posix.Open(root).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(posix.Open(root + "/none").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(posix.RemoveTree(root).ok());
  EXPECT_FALSE(std::filesystem::exists(root));
}

}  // namespace
}  // namespace fsdp
