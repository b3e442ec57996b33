// The coordinator through real gRPC with fake workers: the ordinary life of jobs.

#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class JobLifeTest : public ServiceTest {
 protected:
  // Of worker 0's manifest of this step.
  v1::ManifestVerdict WaitForVerdict(std::int64_t step) {
    v1::ManifestVerdict verdict;
    Eventually(
        [&] {
          for (const v1::ConnectResponse& message : workers_[0]->received()) {
            if (message.manifest_verdict().step() == step) verdict = message.manifest_verdict();
          }
          return verdict.step() == step;
        },
        "a verdict");
    return verdict;
  }
};

TEST_F(JobLifeTest, RunsFromSubmitToSuccess) {
  AddWorkers(2);
  const std::string name = Submit(SmallJob(2, 5));
  EXPECT_TRUE(name.starts_with("jobs/tiny-")) << name;
  const v1::Job job = WaitForState(name, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(job.epoch(), 1);
  EXPECT_EQ(job.result().steps(), 5);
  EXPECT_DOUBLE_EQ(job.result().train_loss(), 2.0);
  EXPECT_EQ(job.result().memory_peak_bytes(), 1001);
  ASSERT_EQ(job.attempts_size(), 1);
  EXPECT_EQ(job.attempts(0).state(), v1::ATTEMPT_STATE_SUCCEEDED);
  ASSERT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(job.ranks(0).worker(), "workers/w0");
  EXPECT_EQ(job.ranks(1).worker(), "workers/w1");
  const std::vector<v1::StepMetrics> metrics = Metrics(name);
  ASSERT_EQ(metrics.size(), 5u);
  for (size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_EQ(metrics[i].step(), static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(metrics[i].offset(), static_cast<std::int64_t>(i) + 1);
  }
  EXPECT_EQ(Metrics(name, 3).size(), 2u);
  EXPECT_TRUE(HasEvent(name, "SUCCEEDED"));
}

TEST_F(JobLifeTest, WaitsWithAReasonInNumbersUntilTheGangIsWhole) {
  AddWorkers(1);
  const std::string name = Submit(SmallJob(2, 1));
  const v1::Job waiting = WaitForJob(
      name, [](const v1::Job& job) { return job.reason().find("free of") != std::string::npos; });
  EXPECT_THAT(waiting.reason(), HasSubstr("needs 2 cpu workers (1 node x 2): 1 free of 1"));
  EXPECT_EQ(waiting.queue_position(), 1);
  EXPECT_EQ(workers_[0]->CountReceived(v1::ConnectResponse::kStartRank), 0);
  AddWorkers(1);
  WaitForState(name, v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobLifeTest, TheSameRequestIdAHundredTimesMakesOneJob) {
  std::vector<std::thread> threads;
  std::vector<std::string> names(100);
  std::vector<char> existing(100);
  for (int i = 0; i < 100; ++i) {
    threads.emplace_back([&, i] {
      grpc::ClientContext context;
      v1::CreateJobRequest request;
      *request.mutable_job() = SmallJob(1, 1);
      request.set_request_id("0a1b2c3d-0000-4000-8000-000000000001");
      v1::CreateJobResponse response;
      const grpc::Status status = jobs_->CreateJob(&context, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      names[i] = response.job().name();
      existing[i] = response.existing() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 1u);
  EXPECT_EQ(std::count(existing.begin(), existing.end(), 0), 1);

  grpc::ClientContext context;
  v1::CreateJobRequest other;
  *other.mutable_job() = SmallJob(1, 2);
  other.set_request_id("0a1b2c3d-0000-4000-8000-000000000001");
  v1::CreateJobResponse response;
  const grpc::Status status = jobs_->CreateJob(&context, other, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(JobLifeTest, ARefusedRequestIdIsARefusedSubmission) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  *request.mutable_job() = SmallJob(1, 1);
  request.set_request_id("bad id!");
  v1::CreateJobResponse response;
  EXPECT_EQ(jobs_->CreateJob(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(server_->counters().Value("fsdp_admission_refused_total", "INVALID_ARGUMENT"), 1);
}

TEST_F(JobLifeTest, EveryBadFieldIsAViolationAndOneErrorInfoIsThere) {
  v1::TrainingJob job = SmallJob(1, 1);
  job.mutable_spec()->mutable_model()->set_num_heads(5);
  job.mutable_spec()->mutable_optimizer()->set_lr(-1);
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  *request.mutable_job() = job;
  v1::CreateJobResponse response;
  const grpc::Status status = jobs_->CreateJob(&context, request, &response);
  ASSERT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  int infos = 0;
  google::rpc::BadRequest bad;
  for (const auto& any : details.details()) {
    infos += any.Is<google::rpc::ErrorInfo>() ? 1 : 0;
    if (any.Is<google::rpc::BadRequest>()) any.UnpackTo(&bad);
  }
  EXPECT_EQ(infos, 1);
  EXPECT_GE(bad.field_violations_size(), 2);
}

TEST_F(JobLifeTest, CancelStopsTheRanksAndIsIdempotent) {
  gate_.AllowUpTo(2);
  AddWorkers(2);
  const std::string name = Submit(SmallJob(2, 10));
  WaitForStep(name, 2);
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(name);
    v1::CancelJobResponse response;
    ASSERT_TRUE(jobs_->CancelJob(&context, request, &response).ok());
  }
  WaitForState(name, v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(workers_[0]->running());
  EXPECT_FALSE(workers_[1]->running());
}

// A manifest that a cancel overtakes: the epoch is alive until its last rank is gone, and what it
// finished saving counts; afterwards nothing of it does.
TEST_F(JobLifeTest, AManifestCountsWhileItsEpochIsBeingCancelledAndNotAfterwards) {
  gate_.AllowUpTo(2);
  AddWorkers(2);
  const std::string name = Submit(SmallJob(2, 10));
  WaitForStep(name, 2);
  v1::Report report;
  *report.mutable_key() = workers_[0]->key();
  ASSERT_EQ(report.key().rank(), 0);
  for (const auto& worker : workers_) worker->BeginDying();
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::CancelJobResponse response;
  ASSERT_TRUE(jobs_->CancelJob(&context, request, &response).ok());
  ASSERT_EQ(response.job().state(), v1::JOB_STATE_CANCELLING);

  report.mutable_manifest()->mutable_checkpoint()->set_step(2);
  workers_[0]->SendReport(report);
  EXPECT_TRUE(WaitForVerdict(2).admitted());
  EXPECT_EQ(Get(name).checkpoint().step(), 2);
  EXPECT_EQ(Get(name).state(), v1::JOB_STATE_CANCELLING);

  for (const auto& worker : workers_) worker->KillRank(15);
  WaitForState(name, v1::JOB_STATE_CANCELLED);
  report.mutable_manifest()->mutable_checkpoint()->set_step(3);
  workers_[0]->SendReport(report);
  const v1::ManifestVerdict verdict = WaitForVerdict(3);
  EXPECT_FALSE(verdict.admitted());
  EXPECT_EQ(verdict.reason(), "epoch 1: the epoch is over and the job CANCELLED");
  ASSERT_EQ(workers_[0]->CountReceived(v1::ConnectResponse::kStaleEpoch), 1);
  for (const v1::ConnectResponse& message : workers_[0]->received()) {
    if (!message.has_stale_epoch()) continue;
    EXPECT_EQ(message.stale_epoch().message(),
              name +
                  ": manifest of rank 0 in epoch 1 refused, the epoch is over and the job "
                  "CANCELLED");
  }
  EXPECT_EQ(Get(name).checkpoint().step(), 2);
  EXPECT_EQ(Get(name).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobLifeTest, SuspendKeepsTheJobAndResumeGoesOnFromItsCheckpoint) {
  gate_.AllowUpTo(4);
  testing::FakeWorkerOptions worker;
  worker.checkpoint_every = 2;
  AddWorkers(2, worker);
  const std::string name = Submit(SmallJob(2, 8));
  WaitForStep(name, 4);
  WaitForJob(name, [](const v1::Job& job) { return job.checkpoint().step() == 4; });
  grpc::ClientContext suspend_context;
  v1::SuspendJobRequest suspend;
  suspend.set_name(name);
  v1::SuspendJobResponse suspended;
  ASSERT_TRUE(jobs_->SuspendJob(&suspend_context, suspend, &suspended).ok());
  WaitForState(name, v1::JOB_STATE_SUSPENDED);
  gate_.Open();
  grpc::ClientContext resume_context;
  v1::ResumeJobRequest resume;
  resume.set_name(name);
  v1::ResumeJobResponse resumed;
  ASSERT_TRUE(jobs_->ResumeJob(&resume_context, resume, &resumed).ok());
  const v1::Job job = WaitForState(name, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.epoch(), 2);
  EXPECT_EQ(workers_[0]->resumed_after(), (std::vector<std::int64_t>{0, 4}));

  grpc::ClientContext again_context;
  const grpc::Status again = jobs_->ResumeJob(&again_context, resume, &resumed);
  EXPECT_EQ(again.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(JobLifeTest, DeleteRemovesAFinishedJobWithItsStreams) {
  AddWorkers(1);
  const std::string name = Submit(SmallJob(1, 1));
  WaitForState(name, v1::JOB_STATE_SUCCEEDED);
  grpc::ClientContext context;
  v1::DeleteJobRequest request;
  request.set_name(name);
  v1::DeleteJobResponse response;
  ASSERT_TRUE(jobs_->DeleteJob(&context, request, &response).ok());
  grpc::ClientContext get_context;
  v1::GetJobRequest get;
  get.set_name(name);
  v1::GetJobResponse got;
  EXPECT_EQ(jobs_->GetJob(&get_context, get, &got).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobLifeTest, ListsNewestFirstInPagesAndTrimsToTheMask) {
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back(Submit(SmallJob(1, 1)));
  std::vector<std::string> listed;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  request.mutable_read_mask()->add_paths("name");
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    EXPECT_LE(response.jobs_size(), 2);
    for (const v1::Job& job : response.jobs()) {
      EXPECT_FALSE(job.has_spec());
      listed.push_back(job.name());
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  std::reverse(names.begin(), names.end());
  EXPECT_EQ(listed, names);

  request.set_page_token("nonsense");
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  EXPECT_EQ(jobs_->ListJobs(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(JobLifeTest, LogsFollowToTheLastLineAndResumeByOffset) {
  gate_.AllowUpTo(1);
  AddWorkers(2);
  const std::string name = Submit(SmallJob(2, 2));
  WaitForStep(name, 1);
  for (int i = 0; i < 5; ++i) workers_[i % 2]->Log(absl::StrCat("line ", i));
  std::vector<std::string> followed;
  std::thread follower([&] {
    grpc::ClientContext context;
    v1::StreamLogsRequest request;
    request.set_name(name);
    request.set_follow(true);
    auto stream = jobs_->StreamLogs(&context, request);
    v1::StreamLogsResponse response;
    while (stream->Read(&response)) {
      for (const v1::LogEntry& entry : response.entries()) followed.push_back(entry.text());
    }
    EXPECT_TRUE(stream->Finish().ok());
  });
  gate_.Open();
  WaitForState(name, v1::JOB_STATE_SUCCEEDED);
  follower.join();
  EXPECT_EQ(followed.size(), 5u);

  grpc::ClientContext context;
  v1::StreamLogsRequest request;
  request.set_name(name);
  request.set_tail(1);
  request.set_rank(1);
  auto stream = jobs_->StreamLogs(&context, request);
  v1::StreamLogsResponse response;
  std::vector<std::string> tail;
  while (stream->Read(&response)) {
    for (const v1::LogEntry& entry : response.entries()) tail.push_back(entry.text());
  }
  EXPECT_EQ(tail, std::vector<std::string>{"line 3"});
}

}  // namespace
}  // namespace fsdp::coordinator
