#include "worker/tokenize/token_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/fakes/crashing_blob_store.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kNumBlocks = 7;

std::vector<TokenId> IdsOf(std::size_t block) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < block * 3 % 11; ++i)
    ids.push_back(static_cast<TokenId>(block * 100 + i));
  return ids;
}

DocumentCounts CountsOf(std::size_t block) {
  return {.documents = 1, .empty_documents = 0, .source_bytes = static_cast<std::int64_t>(block)};
}

TokenShardsOptions Options() {
  return {.directory = "out", .kind = kTokenFile16, .shard_tokens = 4, .identity = "one"};
}

// A folder that exists, as the lock's file makes it.
void MakeFolder(CrashingBlobStore* store) {
  const auto writer = store->Create("out/.lock");
  ASSERT_TRUE((*writer)->Publish().ok());
  ASSERT_TRUE(store->SyncDirectory("out").ok());
}

absl::Status RunToEnd(CrashingBlobStore* store, std::size_t* first_block = nullptr) {
  auto shards = TokenShards::Open(store, Options());
  if (!shards.ok()) return shards.status();
  if (first_block != nullptr) *first_block = shards->complete() ? kNumBlocks : shards->next_block();
  if (shards->complete()) return absl::OkStatus();
  while (shards->next_block() < kNumBlocks) {
    const std::size_t block = shards->next_block();
    const absl::Status status = shards->AddBlock(IdsOf(block), CountsOf(block));
    if (!status.ok()) return status;
  }
  return shards->Finish({{"about", "test"}});
}

std::map<std::string, std::vector<std::byte>> Contents(CrashingBlobStore* store) {
  std::map<std::string, std::vector<std::byte>> contents;
  for (const std::string& path : store->Paths()) contents[path] = *store->Bytes(path);
  return contents;
}

TEST(TokenShardsTest, WritesLlmcFiles) {
  CrashingBlobStore store;
  MakeFolder(&store);
  ASSERT_TRUE(RunToEnd(&store).ok());
  const std::vector<std::byte>& bytes = *store.Bytes("out/tokens_000000.bin");
  ASSERT_EQ(bytes.size(), 1024u + 4 * 2);
  std::uint32_t header[3];
  std::memcpy(header, bytes.data(), sizeof(header));
  EXPECT_EQ(header[0], 20240520u);
  EXPECT_EQ(header[1], 1u);
  EXPECT_EQ(header[2], 4u);
  std::uint16_t ids[4];
  std::memcpy(ids, bytes.data() + 1024, sizeof(ids));
  EXPECT_THAT(ids, testing::ElementsAre(100, 101, 102, 200));
  EXPECT_EQ(store.Bytes("out/.progress/000000.json"), nullptr);
  const auto& manifest = *store.Bytes("out/manifest.json");
  const auto json = nlohmann::json::parse(
      std::string(reinterpret_cast<const char*>(manifest.data()), manifest.size()));
  EXPECT_EQ(json["counts"]["documents"], kNumBlocks);
  EXPECT_EQ(json["about"], "test");
  std::size_t tokens = 0;
  for (std::size_t block = 0; block < kNumBlocks; ++block) tokens += IdsOf(block).size();
  EXPECT_EQ(json["tokens"], tokens);
  EXPECT_EQ(json["shards"].size(), (tokens + 3) / 4);
}

TEST(TokenShardsTest, WideIds) {
  CrashingBlobStore store;
  MakeFolder(&store);
  TokenShardsOptions options = Options();
  options.kind = kTokenFile32;
  auto shards = TokenShards::Open(&store, options);
  ASSERT_TRUE(shards->AddBlock(std::vector<TokenId>{70000, 3}, {}).ok());
  ASSERT_TRUE(shards->Finish({}).ok());
  const std::vector<std::byte>& bytes = *store.Bytes("out/tokens_000000.bin");
  std::uint32_t words[258];
  ASSERT_EQ(bytes.size(), sizeof(words));
  std::memcpy(words, bytes.data(), sizeof(words));
  EXPECT_EQ(words[0], 20240801u);
  EXPECT_EQ(words[1], 7u);
  EXPECT_EQ(words[2], 2u);
  EXPECT_EQ(words[256], 70000u);
}

// Power is cut behind every operation; what comes out at the end is always the same, and a shard
// that was finished is not written again.
TEST(TokenShardsTest, GoesOnAfterACrashAnywhere) {
  CrashingBlobStore whole;
  MakeFolder(&whole);
  const int before = whole.operations();
  ASSERT_TRUE(RunToEnd(&whole).ok());
  const int num_operations = whole.operations() - before;
  const auto expected = Contents(&whole);
  ASSERT_GT(num_operations, 40);
  for (int i = 0; i < num_operations; ++i) {
    CrashingBlobStore store;
    MakeFolder(&store);
    store.FailAfter(i);
    EXPECT_FALSE(RunToEnd(&store).ok()) << i;
    store.Crash();
    std::map<std::string, const std::byte*> finished;
    for (const std::string& path : store.Paths()) {
      if (path.ends_with(".bin")) finished[path] = store.Bytes(path)->data();
    }
    std::size_t first_block = 0;
    ASSERT_TRUE(RunToEnd(&store, &first_block).ok()) << i;
    for (const auto& [path, bytes] : finished) EXPECT_EQ(store.Bytes(path)->data(), bytes) << path;
    if (finished.size() >= 3) {
      EXPECT_GT(first_block, 1u) << i;
    }
    EXPECT_EQ(Contents(&store), expected) << i;
  }
}

TEST(TokenShardsTest, AFinishedRunIsLeftAlone) {
  CrashingBlobStore store;
  MakeFolder(&store);
  ASSERT_TRUE(RunToEnd(&store).ok());
  const auto expected = Contents(&store);
  const auto again = TokenShards::Open(&store, Options());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->complete());
  EXPECT_EQ(again->counts().documents, static_cast<std::int64_t>(kNumBlocks));
  EXPECT_EQ(Contents(&store), expected);
}

TEST(TokenShardsTest, AnotherRunsShardsAreRefusedUntilCleared) {
  TokenShardsOptions other = Options();
  other.identity = "two";
  CrashingBlobStore finished;
  MakeFolder(&finished);
  ASSERT_TRUE(RunToEnd(&finished).ok());
  CrashingBlobStore unfinished;
  MakeFolder(&unfinished);
  auto shards = TokenShards::Open(&unfinished, Options());
  ASSERT_TRUE(shards->AddBlock(std::vector<TokenId>(5, 1), {}).ok());
  for (CrashingBlobStore* store : {&finished, &unfinished}) {
    const auto refused = TokenShards::Open(store, other);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--overwrite"));
    ASSERT_TRUE(TokenShards::Clear(store, "out").ok());
    const auto cleared = TokenShards::Open(store, other);
    ASSERT_TRUE(cleared.ok()) << cleared.status();
    EXPECT_EQ(cleared->num_shards(), 0u);
  }
}

TEST(TokenShardsTest, AChangedShardIsNoticed) {
  CrashingBlobStore store;
  MakeFolder(&store);
  auto shards = TokenShards::Open(&store, Options());
  ASSERT_TRUE(shards->AddBlock(std::vector<TokenId>(9, 1), {}).ok());
  store.Bytes("out/tokens_000000.bin")->pop_back();
  EXPECT_EQ(TokenShards::Open(&store, Options()).status().code(), absl::StatusCode::kDataLoss);
  store.Bytes("out/tokens_000000.bin")->push_back({});
  store.Bytes("out/.progress/000001.json")->pop_back();
  EXPECT_EQ(TokenShards::Open(&store, Options()).status().code(), absl::StatusCode::kDataLoss);
}

TEST(TokenShardsTest, NothingToWriteIsAnError) {
  CrashingBlobStore store;
  MakeFolder(&store);
  auto shards = TokenShards::Open(&store, Options());
  EXPECT_EQ(shards->Finish({}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fsdp
