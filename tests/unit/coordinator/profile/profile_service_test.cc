// Profiles and collectives through real gRPC, with fake workers.

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class ProfileServiceTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    gate_.AllowUpTo(2);
    AddWorkers(2);
    name_ = Submit(SmallJob(2, 50));
    WaitForStep(name_, 2);
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return (*jobs_.*method)(&context, request, response);
  }
  grpc::Status Profile(v1::ProfileJobResponse* response) {
    v1::ProfileJobRequest request;
    request.set_name(name_);
    request.mutable_options()->set_steps(3);
    return Call(&v1::JobService::Stub::ProfileJob, request, response);
  }
  v1::GetProfileResponse Progress(const std::string& profile) {
    v1::GetProfileRequest request;
    request.set_name(name_);
    request.set_profile(profile);
    v1::GetProfileResponse response;
    EXPECT_TRUE(Call(&v1::JobService::Stub::GetProfile, request, &response).ok());
    return response;
  }
  // The worker that runs the rank.
  testing::FakeWorker& WorkerOf(int rank) {
    return *workers_[workers_[0]->key().rank() == rank ? 0 : 1];
  }
  void Update(int rank, const std::string& profile, v1::ProfileState state, std::int64_t size) {
    v1::ConnectRequest message;
    v1::ProfileUpdate& update = *message.mutable_profile_update();
    *update.mutable_key() = WorkerOf(rank).key();
    update.set_profile(profile);
    update.set_state(state);
    update.set_steps(1);
    update.set_size_bytes(size);
    WorkerOf(rank).Send(message);
  }
  // Waits for `condition`.
  template <typename Condition>
  static void Await(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(condition());
  }

  std::string name_;
};

TEST_F(ProfileServiceTest, FromTheQuestionToTheLastPiece) {
  v1::ProfileJobResponse started;
  ASSERT_TRUE(Profile(&started).ok());
  EXPECT_EQ(started.ranks_size(), 2);
  for (const int rank : {0, 1}) {
    Await([&] {
      return WorkerOf(rank).CountReceived(v1::ConnectResponse::kStartProfile) == 1 &&
             WorkerOf(rank).CountReceived(v1::ConnectResponse::kClockProbe) >= 1;
    });
  }
  Update(0, started.profile(), v1::PROFILE_STATE_RECORDING, 0);
  Await([&] { return Progress(started.profile()).ranks(0).steps() == 1; });
  v1::ProfileJobResponse second;
  const grpc::Status refused = Profile(&second);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(refused.error_message(), HasSubstr(started.profile()));

  v1::ReadProfileRequest read;
  read.set_name(name_);
  read.set_profile(started.profile());
  read.set_rank(1);
  v1::ReadProfileResponse piece;
  EXPECT_EQ(Call(&v1::JobService::Stub::ReadProfile, read, &piece).error_code(),
            grpc::StatusCode::NOT_FOUND)
      << "there is no recording yet";
  Update(0, started.profile(), v1::PROFILE_STATE_FAILED, 0);
  Update(1, started.profile(), v1::PROFILE_STATE_DONE, 9);
  Await([&] { return Progress(started.profile()).finished(); });
  EXPECT_EQ(Progress(started.profile()).ranks(1).size_bytes(), 9);

  // The worker answers by itself what it is asked for.
  std::thread answers([&] {
    Await([&] { return WorkerOf(1).CountReceived(v1::ConnectResponse::kReadFilePiece) == 1; });
    for (const v1::ConnectResponse& message : WorkerOf(1).received()) {
      if (!message.has_read_file_piece()) continue;
      EXPECT_EQ(message.read_file_piece().profile(), started.profile());
      v1::ConnectRequest answer;
      answer.mutable_file_piece()->set_request(message.read_file_piece().request());
      answer.mutable_file_piece()->set_data("recording");
      answer.mutable_file_piece()->set_size_bytes(9);
      WorkerOf(1).Send(answer);
    }
  });
  const grpc::Status status = Call(&v1::JobService::Stub::ReadProfile, read, &piece);
  answers.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(piece.data(), "recording");
}

TEST_F(ProfileServiceTest, ARankThatEndsFailsItsProfile) {
  v1::ProfileJobResponse started;
  ASSERT_TRUE(Profile(&started).ok());
  WorkerOf(0).KillRank(9);
  Await([&] { return Progress(started.profile()).finished(); });
  const v1::GetProfileResponse progress = Progress(started.profile());
  for (const v1::RankProfileStatus& rank : progress.ranks()) {
    EXPECT_EQ(rank.state(), v1::PROFILE_STATE_FAILED);
    EXPECT_THAT(rank.message(), HasSubstr("the rank ended"));
  }
}

TEST_F(ProfileServiceTest, OptionsAndStatesThatDoNotFitAreRefused) {
  v1::ProfileJobRequest request;
  request.set_name(name_);
  request.mutable_options()->add_ranks(2);
  v1::ProfileJobResponse response;
  grpc::Status status = Call(&v1::JobService::Stub::ProfileJob, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("the job has ranks 0 to 1"));
  const std::string queued = Submit(SmallJob(2, 1));
  request.set_name(queued);
  request.clear_options();
  status = Call(&v1::JobService::Stub::ProfileJob, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("only a job whose ranks train"));
  v1::GetProfileRequest get;
  get.set_name(name_);
  get.set_profile("p-none");
  v1::GetProfileResponse progress;
  EXPECT_EQ(Call(&v1::JobService::Stub::GetProfile, get, &progress).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(ProfileServiceTest, CollectivesOfAllRanksAreComparedForTheCaller) {
  std::thread answers([&] {
    for (const int rank : {0, 1}) {
      Await(
          [&] { return WorkerOf(rank).CountReceived(v1::ConnectResponse::kDumpDiagnostics) == 1; });
      v1::Report report;
      *report.mutable_key() = WorkerOf(rank).key();
      if (rank == 0) {
        v1::CollectiveRecord& record = *report.mutable_collective_dump()->add_records();
        record.set_sequence(1);
        record.set_operation("all_gather");
        record.set_unit("embed");
        record.set_state(v1::COLLECTIVE_STATE_STARTED);
      } else {
        report.mutable_notice()->set_type("TRAINER_STUCK");
        report.mutable_notice()->set_message("its process is stopped");
      }
      WorkerOf(rank).SendReport(report);
    }
  });
  v1::DumpCollectivesRequest request;
  request.set_name(name_);
  v1::DumpCollectivesResponse response;
  const grpc::Status status = Call(&v1::JobService::Stub::DumpCollectives, request, &response);
  answers.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.ranks_size(), 2);
  EXPECT_THAT(
      response.verdict(),
      HasSubstr("rank 0 waits in all_gather embed, sequence 1; rank 1 told nothing: its process "
                "is stopped"));
}

}  // namespace
}  // namespace fsdp::coordinator
