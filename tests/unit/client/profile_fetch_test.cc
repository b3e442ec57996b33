// A profile from the question to the recordings, against a scripted service.

#include "client/commands/profile_fetch.h"

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "fsdp/v1/job_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/support/crc32c.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::uint32_t CrcOf(const std::string& bytes) { return Crc32c(std::as_bytes(std::span(bytes))); }

class ScriptedService : public v1::JobService::Service {
 public:
  grpc::Status ProfileJob(grpc::ServerContext*, const v1::ProfileJobRequest* request,
                          v1::ProfileJobResponse* response) override {
    asked = *request;
    response->set_profile("p1");
    return grpc::Status::OK;
  }
  grpc::Status GetProfile(grpc::ServerContext*, const v1::GetProfileRequest*,
                          v1::GetProfileResponse* response) override {
    const std::size_t at = std::min(polls++, progress.size() - 1);
    *response = progress[at];
    return grpc::Status::OK;
  }
  grpc::Status ReadProfile(grpc::ServerContext*, const v1::ReadProfileRequest* request,
                           v1::ReadProfileResponse* response) override {
    const std::string& bytes = recordings[request->rank()];
    ++reads;
    response->set_data(bytes.substr(static_cast<std::size_t>(request->offset()), piece_bytes));
    response->set_size_bytes(static_cast<std::int64_t>(bytes.size()));
    response->set_crc32c(CrcOf(response->data()) + (damaged-- > 0 ? 1 : 0));
    return grpc::Status::OK;
  }

  v1::ProfileJobRequest asked;
  std::vector<v1::GetProfileResponse> progress;
  std::map<int, std::string> recordings;
  std::size_t polls = 0;
  std::size_t piece_bytes = 1000;
  int reads = 0;
  int damaged = 0;  // of the next answers
};

class ProfileFetchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ClientOptions options;
    options.server = absl::StrCat("127.0.0.1:", port);
    options.interrupt = &interrupt_;
    client_ = *Client::Create(options);
    fetch_.job = "j-1";
    fetch_.options.set_steps(3);
    fetch_.on_progress = [this](const v1::GetProfileResponse& progress) {
      shown_.push_back(ProfileProgressText(progress, 3));
    };
    fetch_.wait = [](absl::Duration) { return false; };
    for (const int rank : {0, 1}) {
      v1::RankProfile recording;
      recording.set_rank(rank);
      recording.add_strings(std::string(2500, 'a'));
      service_.recordings[rank] = recording.SerializeAsString();
    }
  }
  void TearDown() override { server_->Shutdown(); }

  v1::GetProfileResponse States(v1::ProfileState first, v1::ProfileState second) {
    v1::GetProfileResponse response;
    response.set_finished(true);
    for (const v1::ProfileState state : {first, second}) {
      v1::RankProfileStatus& rank = *response.add_ranks();
      const std::string& bytes = service_.recordings[response.ranks_size() - 1];
      rank.set_rank(response.ranks_size() - 1);
      rank.set_worker("workers/w");
      rank.set_state(state);
      rank.set_steps(2);
      rank.mutable_clock()->set_uncertainty_ns(40);
      rank.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
      rank.set_crc32c(CrcOf(bytes));
      if (state == v1::PROFILE_STATE_FAILED) rank.set_message("the rank ended");
      const bool over = state == v1::PROFILE_STATE_DONE || state == v1::PROFILE_STATE_FAILED;
      response.set_finished(response.finished() && over);
    }
    return response;
  }

  ScriptedService service_;
  std::unique_ptr<grpc::Server> server_;
  Interrupt interrupt_;
  std::unique_ptr<Client> client_;
  ProfileFetch fetch_;
  std::vector<std::string> shown_;
};

TEST_F(ProfileFetchTest, AllRecordingsInPiecesWithTheirClocks) {
  service_.progress = {States(v1::PROFILE_STATE_WAITING, v1::PROFILE_STATE_WAITING),
                       States(v1::PROFILE_STATE_RECORDING, v1::PROFILE_STATE_WAITING),
                       States(v1::PROFILE_STATE_DONE, v1::PROFILE_STATE_DONE)};
  service_.damaged = 2;  // on the way: asked for again
  const auto profile = FetchProfile(*client_, fetch_);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(service_.asked.name(), "jobs/j-1");
  EXPECT_EQ(service_.asked.options().steps(), 3);
  EXPECT_THAT(shown_, ElementsAre("rank 0 waits, rank 1 waits", "rank 0 2/3, rank 1 waits",
                                  "rank 0 done, rank 1 done"));
  ASSERT_EQ(profile->ranks_size(), 2);
  EXPECT_EQ(profile->ranks(1).rank(), 1);
  EXPECT_EQ(profile->ranks(1).worker(), "workers/w");
  EXPECT_EQ(profile->clocks(1).uncertainty_ns(), 40);
  EXPECT_EQ(service_.reads, 2 + 2 * 3) << "two damaged pieces, three good ones of each rank";
}

TEST_F(ProfileFetchTest, ARankWithoutARecordingIsMissingNotAnError) {
  service_.progress = {States(v1::PROFILE_STATE_DONE, v1::PROFILE_STATE_FAILED)};
  const auto profile = FetchProfile(*client_, fetch_);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->ranks_size(), 1);
  EXPECT_THAT(profile->missing(), ElementsAre("rank 1: the rank ended"));
}

TEST_F(ProfileFetchTest, NoRecordingAtAllIsAnErrorThatSaysWhy) {
  service_.progress = {States(v1::PROFILE_STATE_FAILED, v1::PROFILE_STATE_FAILED)};
  const absl::Status status = FetchProfile(*client_, fetch_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0: the rank ended; rank 1:"));
}

TEST_F(ProfileFetchTest, DamageIsFound) {
  service_.progress = {States(v1::PROFILE_STATE_DONE, v1::PROFILE_STATE_DONE)};
  service_.damaged = 3;
  EXPECT_EQ(FetchProfile(*client_, fetch_).status().code(), absl::StatusCode::kDataLoss);
  // Another file than the trainer wrote.
  service_.damaged = 0;
  service_.recordings[1][100] ^= 1;
  const absl::Status status = FetchProfile(*client_, fetch_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1's recording is damaged"));
}

TEST_F(ProfileFetchTest, AnInterruptLeavesTheRanksAlone) {
  service_.progress = {States(v1::PROFILE_STATE_RECORDING, v1::PROFILE_STATE_WAITING)};
  fetch_.wait = [](absl::Duration) { return true; };
  const absl::Status status = FetchProfile(*client_, fetch_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("fsdpctl profile j-1 --fetch p1 gets what they record"));
}

}  // namespace
}  // namespace fsdp
