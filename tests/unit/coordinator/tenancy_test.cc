// Queues, preemption, arrays and maintenance through real gRPC with fake workers.

#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class TenancyTest : public ServiceTest {
 protected:
  // The queues' file; before StartAgain.
  void WriteQueues(const std::string& queues) {
    const std::string path = directory_ + "/queues.yaml";
    std::ofstream(path + ".new") << "apiVersion: fsdp.v1\nkind: QueueConfig\nqueues:\n" << queues;
    std::filesystem::rename(path + ".new", path);
    options_.queue.file = path;
  }
  void StartAgain() {
    server_.reset();
    options_.queue.poll_period = absl::Milliseconds(5);
    StartServer();
  }

  v1::TrainingJob JobIn(const std::string& queue, int ranks, std::int64_t steps, int priority = 0) {
    v1::TrainingJob job = SmallJob(ranks, steps);
    job.mutable_spec()->set_queue(queue);
    job.mutable_spec()->set_priority(priority);
    return job;
  }
  grpc::Status TrySubmit(const v1::TrainingJob& job) {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    *request.mutable_job() = job;
    v1::CreateJobResponse response;
    return jobs_->CreateJob(&context, request, &response);
  }
  v1::ListQueuesResponse ListQueues() {
    grpc::ClientContext context;
    v1::ListQueuesResponse response;
    EXPECT_TRUE(cluster_->ListQueues(&context, {}, &response).ok());
    return response;
  }
  v1::QueueUsage UsageOf(const std::string& queue) {
    grpc::ClientContext context;
    v1::GetQueueRequest request;
    request.set_name("queues/" + queue);
    v1::GetQueueResponse response;
    const grpc::Status status = cluster_->GetQueue(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.queue().usage_size() > 0 ? response.queue().usage(0) : v1::QueueUsage();
  }
  grpc::Status SetMaintenance(v1::MaintenanceMode mode, const std::string& reason) {
    grpc::ClientContext context;
    v1::SetMaintenanceRequest request;
    request.set_mode(mode);
    request.set_reason(reason);
    v1::SetMaintenanceResponse response;
    return cluster_->SetMaintenance(&context, request, &response);
  }
  v1::Job WaitForReason(const std::string& name, const std::string& part) {
    return WaitForJob(
        name, [&](const v1::Job& job) { return job.reason().find(part) != std::string::npos; });
  }
  std::map<v1::JobState, int> TaskStates(const std::string& array) {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_array(array);
    request.set_page_size(1000);
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    std::map<v1::JobState, int> states;
    for (const v1::Job& job : response.jobs()) ++states[job.state()];
    return states;
  }
};

constexpr char kTwoQueues[] = R"(
  - name: prod
    devices: [{device: cpu, quota: 2}]
  - name: batch
    devices: [{device: cpu, quota: 0, max: 3}]
)";

TEST_F(TenancyTest, WithoutAConfigurationAnyNameIsAQueue) {
  AddWorkers(1);
  const std::string name = Submit(JobIn("whatever", 1, 2));
  WaitForState(name, v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(ListQueues().configured());
}

TEST_F(TenancyTest, AJobMustNameAQueueThatThereIs) {
  WriteQueues(kTwoQueues);
  StartAgain();
  grpc::Status status = TrySubmit(JobIn("prd", 1, 2));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("spec.queue = prd: there is no such queue; allowed: batch, prod; did you "
                        "mean prod?"));
  EXPECT_EQ(TrySubmit(SmallJob(1, 2)).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  status = TrySubmit(JobIn("batch", 4, 2));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("needs 4 cpu workers, and queue 'batch' may hold at most 3"));
  EXPECT_TRUE(TrySubmit(JobIn("batch", 3, 2)).ok());
}

TEST_F(TenancyTest, AnOwnerTakesBackWhatWasBorrowedAndTheBorrowerGoesOnLater) {
  WriteQueues(kTwoQueues);
  StartAgain();
  AddWorkers(3);
  gate_.AllowUpTo(2);
  const std::string borrower = Submit(JobIn("batch", 3, 6));
  WaitForStep(borrower, 2);
  EXPECT_EQ(UsageOf("batch").borrowed(), 3);
  const std::string owner = Submit(JobIn("prod", 2, 3));
  // It saves, yields, and waits for its devices to come back.
  const v1::Job waiting = WaitForReason(borrower, "needs 3 cpu workers");
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(waiting.cause(), v1::FAILURE_CAUSE_PREEMPTED);
  EXPECT_EQ(waiting.restarts().preemptions(), 1);
  EXPECT_EQ(waiting.restarts().infrastructure(), 0);
  EXPECT_EQ(waiting.queue_position(), 1);
  EXPECT_TRUE(HasEvent(borrower, "PREEMPTED"));
  gate_.Open();
  WaitForState(owner, v1::JOB_STATE_SUCCEEDED);
  const v1::Job done = WaitForState(borrower, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  EXPECT_EQ(server_->counters().Value("fsdp_preemptions_total", "batch", "reclaim"), 1);
}

TEST_F(TenancyTest, APreemptedJobCanBeCancelledWhileItYields) {
  WriteQueues(kTwoQueues);
  StartAgain();
  AddWorkers(2);
  gate_.AllowUpTo(1);
  const std::string borrower = Submit(JobIn("batch", 2, 6));
  WaitForStep(borrower, 1);
  Submit(JobIn("prod", 2, 1));
  WaitForJob(borrower, [](const v1::Job& job) { return job.restarts().preemptions() == 1; });
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(borrower);
  v1::CancelJobResponse response;
  ASSERT_TRUE(jobs_->CancelJob(&context, request, &response).ok());
  WaitForState(borrower, v1::JOB_STATE_CANCELLED);
}

TEST_F(TenancyTest, AChangedFileIsTakenAndABadOneIsNot) {
  WriteQueues(kTwoQueues);
  StartAgain();
  AddWorkers(1);
  WriteQueues("\n  - name: prod\n  - name: night\n");
  Eventually(
      [&] { return ListQueues().queues_size() == 2 && TrySubmit(JobIn("night", 1, 1)).ok(); },
      "the new queues");
  WriteQueues("\n  - nmae: prod\n");
  Eventually([&] { return !ListQueues().config_error().empty(); }, "the error");
  const v1::ListQueuesResponse queues = ListQueues();
  EXPECT_TRUE(queues.configured());
  EXPECT_THAT(queues.config_error(), HasSubstr("queues.yaml:5:5: error: queues[0].nmae: unknown "
                                               "key; did you mean name?"));
  EXPECT_TRUE(TrySubmit(JobIn("night", 1, 1)).ok());
  EXPECT_GE(server_->counters().Value("fsdp_queue_config_errors_total"), 1);
}

TEST_F(TenancyTest, ABadFileStopsTheStart) {
  WriteQueues("\n  - name: [a]\n");
  server_.reset();
  const auto server = Server::Start(options_, nullptr);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("queues[0].name"));
}

TEST_F(TenancyTest, MaintenanceHoldsEverythingAndLastsOverARestart) {
  EXPECT_EQ(SetMaintenance(v1::MAINTENANCE_MODE_UNSPECIFIED, "").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(SetMaintenance(v1::MAINTENANCE_MODE_HOLD, "new switches").ok());
  const std::string name = Submit(SmallJob(1, 2));
  StartAgain();
  AddWorkers(1);
  const v1::Job held = WaitForReason(name, "maintenance (hold) since ");
  EXPECT_THAT(held.reason(), HasSubstr("new switches; nothing is placed until it ends"));
  grpc::ClientContext context;
  v1::GetClusterResponse cluster;
  ASSERT_TRUE(cluster_->GetCluster(&context, {}, &cluster).ok());
  EXPECT_EQ(cluster.maintenance().mode(), v1::MAINTENANCE_MODE_HOLD);
  EXPECT_EQ(cluster.maintenance().reason(), "new switches");
  ASSERT_TRUE(SetMaintenance(v1::MAINTENANCE_MODE_CLOSED, "worse").ok());
  const grpc::Status refused = TrySubmit(SmallJob(1, 2));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("no jobs are taken: maintenance (closed)"));
  ASSERT_TRUE(SetMaintenance(v1::MAINTENANCE_MODE_OFF, "").ok());
  WaitForState(name, v1::JOB_STATE_SUCCEEDED);
}

v1::TrainingJob ArrayOf(int count, int max_parallel, std::int64_t steps) {
  v1::TrainingJob job = SmallJob(1, steps);
  job.mutable_spec()->mutable_array()->set_count(count);
  job.mutable_spec()->mutable_array()->set_max_parallel(max_parallel);
  job.mutable_spec()->mutable_array()->add_set("train.seed={index}");
  return job;
}

TEST_F(TenancyTest, AnArrayRunsItsTasksAFewAtATime) {
  AddWorkers(4);
  gate_.AllowUpTo(1);
  const std::string array = Submit(ArrayOf(6, 2, 2));
  WaitForJob(array, [](const v1::Job& job) { return job.array().active() == 2; });
  const v1::Job third = WaitForReason(array + "-2", "of at most 2 (array.maxParallel)");
  EXPECT_EQ(third.array_job(), array);
  EXPECT_EQ(third.array_index(), 2);
  EXPECT_EQ(third.spec().spec().train().seed(), 2u);
  EXPECT_EQ(TaskStates(array)[v1::JOB_STATE_QUEUED], 4);
  gate_.Open();
  const v1::Job done = WaitForState(array, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.array().succeeded(), 6);
  EXPECT_EQ(done.reason(), "0 of 6 tasks run (at most 2 at a time), 6 succeeded");
  EXPECT_TRUE(HasEvent(array, "TASK_SUCCEEDED"));
  // It is one job for those who do not ask for its tasks.
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &list).ok());
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).name(), array);
}

TEST_F(TenancyTest, AnArrayIsWholeAfterARestartAndGoesOn) {
  const std::string array = Submit(ArrayOf(3, 1, 2));
  StartAgain();
  EXPECT_EQ(TaskStates(array)[v1::JOB_STATE_QUEUED], 3);
  AddWorkers(1);
  WaitForState(array, v1::JOB_STATE_SUCCEEDED);
}

TEST_F(TenancyTest, AnArrayIsCancelledRestartedAndDeletedAsOne) {
  AddWorkers(1);
  gate_.AllowUpTo(1);
  const std::string array = Submit(ArrayOf(3, 0, 4));
  WaitForStep(array + "-0", 1);
  {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(array);
    v1::CancelJobResponse response;
    ASSERT_TRUE(jobs_->CancelJob(&context, request, &response).ok());
  }
  WaitForState(array, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(TaskStates(array)[v1::JOB_STATE_CANCELLED], 3);
  {
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    request.set_name(array + "-0");
    v1::DeleteJobResponse response;
    const grpc::Status refused = jobs_->DeleteJob(&context, request, &response);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(refused.error_message(), HasSubstr("is a task of " + array));
  }
  gate_.Open();
  {
    grpc::ClientContext context;
    v1::RestartJobRequest request;
    request.set_name(array);
    v1::RestartJobResponse response;
    ASSERT_TRUE(jobs_->RestartJob(&context, request, &response).ok());
  }
  WaitForState(array, v1::JOB_STATE_SUCCEEDED);
  grpc::ClientContext context;
  v1::DeleteJobRequest request;
  request.set_name(array);
  v1::DeleteJobResponse response;
  ASSERT_TRUE(jobs_->DeleteJob(&context, request, &response).ok());
  EXPECT_TRUE(TaskStates(array).empty());
}

TEST_F(TenancyTest, ARepeatedRequestMakesNoSecondArray) {
  v1::CreateJobRequest request;
  *request.mutable_job() = ArrayOf(2, 0, 1);
  request.set_request_id("once");
  std::string first;
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    v1::CreateJobResponse response;
    ASSERT_TRUE(jobs_->CreateJob(&context, request, &response).ok());
    EXPECT_EQ(response.existing(), i == 1);
    if (i == 0) first = response.job().name();
    EXPECT_EQ(response.job().name(), first);
  }
  EXPECT_EQ(TaskStates(first)[v1::JOB_STATE_QUEUED], 2);
}

}  // namespace
}  // namespace fsdp::coordinator
