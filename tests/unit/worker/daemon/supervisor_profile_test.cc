// Profiles on their way through the daemon: the trainer's path, the updates, the files that stay.

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/crc32c.h"
#include "proto/support/recording_pieces.h"
#include "tests/unit/worker/daemon/supervisor_fixture.h"
#include "tests/unit/worker/daemon/temp_dir.h"
#include "worker/daemon/checkpoint_files.h"
#include "worker/daemon/profile_files.h"

namespace fsdp::daemon {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SupervisorProfileTest : public SupervisorTest {
 protected:
  SupervisorProfileTest() { MakeSupervisor({.cpu_threads = 1, .profile_dir = directory()}); }
  [[nodiscard]] std::string directory() const { return temp_.path() + "/profiles"; }
  void StartProfile(const std::string& profile, std::int64_t epoch = 1) {
    v1::ConnectResponse command;
    *command.mutable_start_profile()->mutable_key() = Key(epoch);
    command.mutable_start_profile()->set_profile(profile);
    command.mutable_start_profile()->mutable_options()->set_steps(4);
    supervisor_->OnCommand(command);
  }
  void TrainerSays(const std::string& profile, v1::ProfileState state) {
    v1::TrainerToDaemon message;
    message.mutable_profile()->set_profile(profile);
    message.mutable_profile()->set_state(state);
    message.mutable_profile()->set_size_bytes(9);
    supervisor_->OnTrainerMessage(message);
  }
  std::vector<v1::ProfileUpdate> Updates() {
    std::vector<v1::ProfileUpdate> updates;
    for (const v1::ConnectRequest& request : sent_) {
      if (request.has_profile_update()) updates.push_back(request.profile_update());
    }
    return updates;
  }

  TempDir temp_;
};

TEST_F(SupervisorProfileTest, TheTrainerIsToldWhereAndItsWordsGoOnWithTheKey) {
  StartRunning(1);
  StartProfile("p1");
  ASSERT_TRUE(trainer().messages.back().has_profile());
  const v1::TrainerProfile& profile = trainer().messages.back().profile();
  EXPECT_EQ(profile.path(), ProfilePath(directory(), "p1"));
  EXPECT_EQ(profile.options().steps(), 4);
  EXPECT_TRUE(fs::is_directory(directory()));
  TrainerSays("p1", v1::PROFILE_STATE_DONE);
  ASSERT_EQ(Updates().size(), 1U);
  EXPECT_EQ(Updates()[0].key().epoch(), 1);
  EXPECT_EQ(Updates()[0].size_bytes(), 9);
}

TEST_F(SupervisorProfileTest, WhatWasSaidIsSaidAgainAfterAReconnect) {
  StartRunning(1);
  StartProfile("p1");
  TrainerSays("p1", v1::PROFILE_STATE_RECORDING);
  TrainerSays("p1", v1::PROFILE_STATE_DONE);
  sent_.clear();
  supervisor_->OnDisconnected();
  v1::Welcome welcome;
  welcome.set_keep_running_rank(true);
  supervisor_->OnWelcome(welcome);
  ASSERT_EQ(Updates().size(), 1U);
  EXPECT_EQ(Updates()[0].state(), v1::PROFILE_STATE_DONE);
}

// A rank that was killed while it recorded left nothing.
TEST_F(SupervisorProfileTest, ATrainerThatDiesLeavesWhatItHasRecorded) {
  StartRunning(1);
  for (const char* profile : {"p1", "p2", "p3"}) StartProfile(profile);
  for (const char* profile : {"p1", "p2"}) TrainerSays(profile, v1::PROFILE_STATE_RECORDING);
  TrainerSays("p3", v1::PROFILE_STATE_DONE);
  v1::RankProfile step;
  step.add_strings("");
  step.add_steps()->set_step(7);
  std::ofstream(PiecesPath(ProfilePath(directory(), "p1")), std::ios::binary)
      << RecordingPiece(step) << RecordingPiece(step) << "torn";
  sent_.clear();
  supervisor_->OnTrainerExit({.signal = SIGKILL});
  // Of p2 there is nothing, p3 was done.
  ASSERT_EQ(Updates().size(), 1U);
  const v1::ProfileUpdate update = Updates()[0];
  EXPECT_EQ(update.profile(), "p1");
  EXPECT_EQ(update.state(), v1::PROFILE_STATE_DONE);
  EXPECT_EQ(update.steps(), 2);
  std::ifstream file(ProfilePath(directory(), "p1"), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), update.size_bytes());
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(bytes))), update.crc32c());
  v1::RankProfile recording;
  ASSERT_TRUE(recording.ParseFromString(bytes));
  EXPECT_EQ(recording.steps_size(), 2);
  EXPECT_THAT(recording.notes(0),
              AllOf(HasSubstr("was ended by signal 9"), HasSubstr("2 steps are recorded")));
  EXPECT_FALSE(fs::exists(PiecesPath(ProfilePath(directory(), "p1"))));
}

TEST_F(SupervisorProfileTest, ARankThatIsNotHereAndANameThatCannotBeAreRefused) {
  StartProfile("p1");
  StartRunning(2);
  StartProfile("p1", 1);
  StartProfile("../../etc/passwd", 2);
  const auto updates = Updates();
  ASSERT_EQ(updates.size(), 3U);
  for (const v1::ProfileUpdate& update : updates) {
    EXPECT_EQ(update.state(), v1::PROFILE_STATE_FAILED);
  }
  EXPECT_THAT(updates[0].message(), HasSubstr("does not run here"));
  EXPECT_THAT(updates[2].message(), HasSubstr("1 to 40 of [a-z0-9-]"));
  EXPECT_TRUE(trainer().messages.empty() || !trainer().messages.back().has_profile());
}

TEST_F(SupervisorProfileTest, AFolderThatCannotBeMadeFailsTheProfileNotTheRank) {
  std::ofstream(temp_.path() + "/file") << "x";
  MakeSupervisor({.cpu_threads = 1, .profile_dir = temp_.path() + "/file/profiles"});
  StartRunning(1);
  StartProfile("p1");
  ASSERT_EQ(Updates().size(), 1U);
  EXPECT_THAT(Updates()[0].message(), HasSubstr("/file/profiles"));
  EXPECT_FALSE(supervisor_->idle());
}

TEST(ProfileFiles, TheNewestSevenMakeRoomForOneMore) {
  const TempDir temp;
  const std::string directory = temp.path() + "/profiles";
  ASSERT_TRUE(PrepareProfileDirectory(directory).ok());
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 10; ++i) {
    const std::string path = ProfilePath(directory, absl::StrCat("p", i));
    std::ofstream(path) << i;
    fs::last_write_time(path, now + std::chrono::seconds(i));
  }
  ASSERT_TRUE(PrepareProfileDirectory(directory).ok());
  EXPECT_FALSE(fs::exists(ProfilePath(directory, "p2")));
  EXPECT_TRUE(fs::exists(ProfilePath(directory, "p3")));
  EXPECT_TRUE(fs::exists(ProfilePath(directory, "p9")));
}

TEST(ProfileFiles, PiecesAreReadByTheProfilesNameAlone) {
  const TempDir temp;
  std::ofstream(ProfilePath(temp.path(), "p1")) << "0123456789";
  std::ofstream(temp.path() + "/secret") << "outside";
  fs::create_symlink(temp.path() + "/secret", ProfilePath(temp.path(), "link"));
  v1::ReadFilePiece request;
  request.set_profile("p1");
  request.set_offset(4);
  const v1::FilePiece piece = ReadPiece(request, temp.path());
  EXPECT_EQ(piece.code(), 0) << piece.message();
  EXPECT_EQ(piece.data(), "456789");
  EXPECT_EQ(piece.size_bytes(), 10);
  EXPECT_EQ(piece.crc32c(), Crc32c(std::as_bytes(std::span(piece.data()))));
  for (const char* name : {"p2", "link", "../secret", "P1"}) {
    request.set_profile(name);
    request.set_offset(0);
    EXPECT_NE(ReadPiece(request, temp.path()).code(), 0) << name;
  }
}

}  // namespace
}  // namespace fsdp::daemon
