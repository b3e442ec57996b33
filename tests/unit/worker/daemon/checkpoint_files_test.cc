// Pieces of checkpoint files: what is read, and what never is.

#include "worker/daemon/checkpoint_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/support/crc32c.h"
#include "tests/unit/worker/daemon/temp_dir.h"

namespace fsdp::daemon {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "step-00000005.e00001";
constexpr char kShard[] = "rank-00000.safetensors";

class CheckpointFilesTest : public testing::Test {
 protected:
  CheckpointFilesTest() {
    fs::create_directories(root() + "/" + kFolder);
    Write(Path(kShard), "0123456789");
    Write(root() + "/secret", "outside");
  }
  [[nodiscard]] std::string root() const { return directory_.path() + "/jobs-folder"; }
  [[nodiscard]] std::string Path(const std::string& file) const {
    return absl::StrCat(root(), "/", kFolder, "/", file);
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  [[nodiscard]] v1::ReadFilePiece Request(const std::string& file, std::int64_t offset = 0,
                                          int max_bytes = 0) const {
    v1::ReadFilePiece request;
    request.set_request(7);
    request.set_directory(root());
    request.set_folder(kFolder);
    request.set_file(file);
    request.set_offset(offset);
    request.set_max_bytes(max_bytes);
    return request;
  }
  static absl::StatusCode CodeOf(const v1::FilePiece& piece) {
    return static_cast<absl::StatusCode>(piece.code());
  }

  TempDir directory_;
};

TEST_F(CheckpointFilesTest, APieceComesWithItsChecksumAndTheFilesSize) {
  const v1::FilePiece piece = ReadPiece(Request(kShard, 3, 4), "");
  ASSERT_EQ(CodeOf(piece), absl::StatusCode::kOk) << piece.message();
  EXPECT_EQ(piece.request(), 7);
  EXPECT_EQ(piece.data(), "3456");
  EXPECT_EQ(piece.crc32c(), Crc32c(std::as_bytes(std::span(piece.data()))));
  EXPECT_EQ(piece.size_bytes(), 10);
  EXPECT_EQ(ReadPiece(Request(kShard), "").data(), "0123456789");
  EXPECT_EQ(ReadPiece(Request(kShard, 10), "").data(), "");
  EXPECT_EQ(CodeOf(ReadPiece(Request(kShard, 11), "")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(ReadPiece(Request(kShard, -1), "")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(ReadPiece(Request("manifest.json"), "")), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointFilesTest, NothingOutsideAStepsFolderIsRead) {
  for (const char* file :
       {"", ".", "..", "../secret", "../../secret", "/etc/passwd", "secret", "rank-0/../../secret",
        "rank-.safetensors", "rank-1.safetensors/x", "manifest.json.tmp.1"}) {
    EXPECT_EQ(CodeOf(ReadPiece(Request(file), "")), absl::StatusCode::kInvalidArgument) << file;
  }
  for (const char* folder : {"", ".", "..", "step-5", "../step-00000005.e00001", "step-5.e1/..",
                             "/tmp", "step-00000005.e00001/"}) {
    v1::ReadFilePiece request = Request(kShard);
    request.set_folder(folder);
    EXPECT_EQ(CodeOf(ReadPiece(request, "")), absl::StatusCode::kInvalidArgument) << folder;
  }
  for (const std::string& directory :
       {std::string(), std::string("relative"), root() + "/..", root() + "/../x"}) {
    v1::ReadFilePiece request = Request(kShard);
    request.set_directory(directory);
    EXPECT_EQ(CodeOf(ReadPiece(request, "")), absl::StatusCode::kInvalidArgument) << directory;
  }
}

TEST_F(CheckpointFilesTest, LinksAndDevicesAreNotFollowed) {
  fs::create_symlink(root() + "/secret", Path("rank-00001.safetensors"));
  EXPECT_NE(CodeOf(ReadPiece(Request("rank-00001.safetensors"), "")), absl::StatusCode::kOk);
  fs::create_directories(directory_.path() + "/elsewhere");
  Write(directory_.path() + "/elsewhere/" + kShard, "outside");
  fs::create_directory_symlink(directory_.path() + "/elsewhere", root() + "/step-00000006.e00001");
  v1::ReadFilePiece request = Request(kShard);
  request.set_folder("step-00000006.e00001");
  EXPECT_NE(CodeOf(ReadPiece(request, "")), absl::StatusCode::kOk);
  ASSERT_EQ(::mkfifo(Path("rank-00002.safetensors").c_str(), 0600), 0);
  EXPECT_NE(CodeOf(ReadPiece(Request("rank-00002.safetensors"), "")), absl::StatusCode::kOk);
  fs::create_directory(Path("rank-00003.safetensors"));
  EXPECT_NE(CodeOf(ReadPiece(Request("rank-00003.safetensors"), "")), absl::StatusCode::kOk);
}

TEST_F(CheckpointFilesTest, ReadsOnAThreadAndRefusesTooMany) {
  std::promise<void> first;
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future();
  std::mutex mutex;
  std::vector<absl::StatusCode> codes;
  {
    CheckpointFiles files("/nowhere", {}, [&](const v1::FilePiece& piece) {
      const bool refused = CodeOf(piece) == absl::StatusCode::kResourceExhausted;
      bool is_first = false;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        codes.push_back(CodeOf(piece));
        is_first = codes.size() == 1;
      }
      if (is_first && !refused) {
        first.set_value();
        gone.wait();
      }
    });
    files.Read(Request(kShard));
    first.get_future().wait();
    for (int i = 0; i < 33; ++i) files.Read(Request(kShard));
    {
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(codes.size(), 2U);
      EXPECT_EQ(codes.back(), absl::StatusCode::kResourceExhausted);
    }
    go.set_value();
  }
}

}  // namespace
}  // namespace fsdp::daemon
