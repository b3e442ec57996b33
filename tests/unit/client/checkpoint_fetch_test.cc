// Copies of checkpoints over a service that damages, forgets and breaks off.

#include "client/commands/checkpoint_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_format.h"
#include "proto/support/crc32c.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/client/fake_service.h"

namespace fsdp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kPieceBytes = 100;
constexpr char kStep[] = "step-00000005.e00001";

std::uint32_t Crc(const std::string& bytes) { return Crc32c(std::as_bytes(std::span(bytes))); }

std::string Content(std::size_t size, char first) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(first + i % 61);
  return bytes;
}

class CheckpointFetchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    files_ = {{"rank-00000.safetensors", Content(250, '0')},
              {"rank-00001.safetensors", Content(330, 'A')},
              {"config.json", "{}"}};
    nlohmann::json manifest = {{"files", nlohmann::json::array()}};
    for (const auto& [name, bytes] : files_) {
      if (name == "config.json") continue;
      manifest["files"].push_back({{"name", name},
                                   {"size_bytes", bytes.size()},
                                   {"crc32c", absl::StrFormat("0x%08x", Crc(bytes))}});
    }
    files_["manifest.json"] = manifest.dump();
    service_.SetCheckpoint(
        [this](const v1::ReadCheckpointRequest& request) { return Read(request); });
    ClientOptions options;
    options.server = service_.address();
    options.interrupt = &interrupt_;
    client_ = *Client::Create(options);
  }

  absl::StatusOr<v1::ReadCheckpointResponse> Read(const v1::ReadCheckpointRequest& request) {
    asked_.push_back(absl::StrFormat("%s@%d", request.file(), request.offset()));
    if (asked_.back() == fails_at_) return absl::PermissionDeniedError("the disk of w1 is gone");
    const auto found = files_.find(request.file());
    if (found == files_.end()) return absl::NotFoundError(request.file());
    // The manifest comes last.
    EXPECT_FALSE(request.file() != "manifest.json" &&
                 std::filesystem::exists(Path("manifest.json")));
    v1::ReadCheckpointResponse piece;
    piece.set_size_bytes(static_cast<std::int64_t>(found->second.size()));
    const auto offset = static_cast<std::size_t>(request.offset());
    if (offset < found->second.size()) {
      piece.set_data(found->second.substr(offset, kPieceBytes));
    }
    piece.set_crc32c(Crc(piece.data()));
    if (asked_.back() == damaged_at_ && num_damaged_-- > 0) {
      (*piece.mutable_data())[0] ^= 1;
    }
    return piece;
  }

  absl::StatusOr<std::string> Fetch() {
    asked_.clear();
    FetchRequest request;
    request.job = "jobs/a-00000001";
    request.checkpoint.set_step(5);
    request.checkpoint.set_path(std::string("/c/a-00000001/") + kStep);
    request.checkpoint.set_manifest_crc32c(admitted_.value_or(Crc(files_["manifest.json"])));
    request.root = folder_.path();
    done_bytes_ = total_bytes_ = 0;
    return FetchCheckpoint(*client_, request, [this](std::int64_t done, std::int64_t total) {
      done_bytes_ = done;
      total_bytes_ = total;
    });
  }
  [[nodiscard]] std::string Path(const std::string& name) const {
    return folder_.Path(std::string(kStep) + "/" + name);
  }
  [[nodiscard]] std::string Here(const std::string& name) const {
    return folder_.Read(std::string(kStep) + "/" + name);
  }
  void ExpectWhole() {
    for (const auto& [name, bytes] : files_) EXPECT_EQ(Here(name), bytes) << name;
    EXPECT_EQ(done_bytes_, 580);
    EXPECT_EQ(total_bytes_, 580);
  }
  [[nodiscard]] int NumAsked(const std::string& file) const {
    return static_cast<int>(std::count_if(asked_.begin(), asked_.end(), [&](const auto& asked) {
      return asked.substr(0, asked.find('@')) == file;
    }));
  }

  TemporaryFolder folder_;
  FakeService service_;
  Interrupt interrupt_;
  std::unique_ptr<Client> client_;
  std::map<std::string, std::string> files_;
  std::vector<std::string> asked_;  // "FILE@OFFSET", of the newest Fetch
  std::string fails_at_;
  std::string damaged_at_;
  int num_damaged_ = 0;
  std::optional<std::uint32_t> admitted_;
  std::int64_t done_bytes_ = 0, total_bytes_ = 0;
};

TEST_F(CheckpointFetchTest, CopiesEveryFileAndTheManifestLast) {
  const auto made = Fetch();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, folder_.Path(kStep));
  ExpectWhole();
  EXPECT_EQ(NumAsked("rank-00000.safetensors"), 3);
  EXPECT_EQ(NumAsked("rank-00001.safetensors"), 4);
}

// Not a byte that is there is asked for again.
TEST_F(CheckpointFetchTest, GoesOnAtTheByteWhereItWasBrokenOff) {
  fails_at_ = "rank-00001.safetensors@200";
  EXPECT_EQ(Fetch().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Here("rank-00001.safetensors.part").size(), 200U);
  EXPECT_FALSE(std::filesystem::exists(Path("rank-00001.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(Path("manifest.json")));
  fails_at_.clear();
  ASSERT_TRUE(Fetch().ok());
  ExpectWhole();
  EXPECT_THAT(asked_,
              ElementsAre("manifest.json@0", "manifest.json@100", "rank-00001.safetensors@200",
                          "rank-00001.safetensors@300", "config.json@0"));
  EXPECT_FALSE(std::filesystem::exists(Path("rank-00001.safetensors.part")));
  // A copy that is whole costs the manifest alone.
  std::filesystem::remove(Path("manifest.json"));
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(NumAsked("rank-00000.safetensors") + NumAsked("rank-00001.safetensors"), 0);
}

// What is there may be of another checkpoint, or damaged: its checksum tells, and it is fetched
// anew.
TEST_F(CheckpointFetchTest, ABeginningOfAnotherFileIsThrownAway) {
  std::filesystem::create_directories(Path(""));
  folder_.Write(std::string(kStep) + "/rank-00000.safetensors.part", Content(150, 'B'));
  folder_.Write(std::string(kStep) + "/rank-00001.safetensors", Content(330, 'C'));
  ASSERT_TRUE(Fetch().ok());
  ExpectWhole();
}

TEST_F(CheckpointFetchTest, APieceThatArrivesDamagedIsAskedForAgain) {
  damaged_at_ = "rank-00000.safetensors@100";
  num_damaged_ = 2;
  ASSERT_TRUE(Fetch().ok());
  ExpectWhole();
  EXPECT_EQ(NumAsked("rank-00000.safetensors"), 5);
  std::filesystem::remove_all(folder_.Path(kStep));
  num_damaged_ = 1000;
  const absl::Status status = Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank-00000.safetensors: the piece at byte 100 arrived damaged 3 times"));
  EXPECT_FALSE(std::filesystem::exists(Path("manifest.json")));
}

TEST_F(CheckpointFetchTest, AFileThatIsNotTheManifestsIsNoCheckpoint) {
  files_["rank-00001.safetensors"][7] ^= 1;
  absl::Status status = Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank-00001.safetensors: 330 bytes with CRC-32C 0x"),
                    HasSubstr("the manifest says 330 with 0x")));
  files_["rank-00001.safetensors"].resize(200);
  status = Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(std::filesystem::exists(Path("rank-00001.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(Path("manifest.json")));
}

TEST_F(CheckpointFetchTest, AManifestThatWasNotAdmittedIsRefused) {
  admitted_ = Crc(files_["manifest.json"]) + 1;
  const absl::Status status = Fetch().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the coordinator admitted 0x"));
  EXPECT_EQ(NumAsked("rank-00000.safetensors"), 0);
}

// Names become paths here.
TEST_F(CheckpointFetchTest, AManifestThatPointsElsewhereIsRefused) {
  for (const char* name : {"../evil", "/etc/evil", "..", ""}) {
    files_["manifest.json"] =
        nlohmann::json({{"files", {{{"name", name}, {"size_bytes", 1}, {"crc32c", "0x00000000"}}}}})
            .dump();
    EXPECT_EQ(Fetch().status().code(), absl::StatusCode::kDataLoss) << name;
    EXPECT_FALSE(std::filesystem::exists(folder_.Path("evil")));
  }
}

}  // namespace
}  // namespace fsdp
