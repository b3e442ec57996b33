// Elastic jobs and spares through real gRPC with fake workers.

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class ElasticTest : public ServiceTest {
 protected:
  ElasticTest() {
    options_.timing.shrink_after = absl::Milliseconds(1500);
    saver_.checkpoint_every = 2;
  }
  static v1::TrainingJob ElasticJob(int ranks, int fewest, int most) {
    v1::TrainingJob job = SmallJob(ranks, 1000);
    v1::ResourceSpec& resources = *job.mutable_spec()->mutable_resources();
    resources.set_any_node(true);
    resources.set_min_ranks(fewest);
    resources.set_max_ranks(most);
    job.mutable_spec()->mutable_train()->set_global_batch(12);
    job.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
    return job;
  }
  static v1::TrainingJob WithSpares(v1::TrainingJob job, int spares) {
    job.mutable_spec()->mutable_resources()->set_spares(spares);
    return job;
  }
  v1::Job WaitForRanks(const std::string& name, int ranks) {
    return WaitForJob(name, [ranks](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_RUNNING && job.ranks_size() == ranks;
    });
  }
  v1::Job WaitForReason(const std::string& name, const std::string& part) {
    return WaitForJob(name,
                      [&](const v1::Job& job) { return absl::StrContains(job.reason(), part); });
  }
  v1::Worker WorkerOf(const std::string& id) {
    grpc::ClientContext context;
    v1::GetWorkerRequest request;
    request.set_name("workers/" + id);
    v1::GetWorkerResponse response;
    EXPECT_TRUE(cluster_->GetWorker(&context, request, &response).ok());
    return response.worker();
  }
  void Cancel(const std::string& name) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(name);
    v1::CancelJobResponse response;
    EXPECT_TRUE(jobs_->CancelJob(&context, request, &response).ok());
  }

  testing::FakeWorkerOptions saver_;
};

TEST_F(ElasticTest, GoesOnWithFewerRanksAndGrowsAgainAtACheckpoint) {
  AddWorkers(3, saver_);
  gate_.AllowUpTo(3);
  const std::string job = Submit(ElasticJob(3, 2, 3));
  WaitForStep(job, 3);
  workers_[2]->Die();
  const v1::Job waiting = WaitForReason(job, "takes as few as 2 in");
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(waiting.reason(), HasSubstr("needs 3 cpu workers: 2 free of 3"));
  const v1::Job fewer = WaitForRanks(job, 2);
  EXPECT_EQ(fewer.restarts().infrastructure(), 1);
  EXPECT_TRUE(HasEvent(job, "RANKS_CHANGED"));
  EXPECT_EQ(server_->counters().Value("fsdp_job_rank_changes_total", "shrunk"), 1);
  workers_[2]->Revive();
  WaitForReason(job, "grows to 3 at its next checkpoint");
  gate_.AllowUpTo(8);
  const v1::Job again = WaitForRanks(job, 3);
  EXPECT_EQ(again.epoch(), 3);
  EXPECT_EQ(again.restarts().infrastructure(), 1);
  EXPECT_EQ(again.restarts().free(), 1);
  EXPECT_GE(again.checkpoint().step(), 4);
  EXPECT_TRUE(HasEvent(job, "GROWING"));
  EXPECT_EQ(server_->counters().Value("fsdp_job_rank_changes_total", "grown"), 1);
}

TEST_F(ElasticTest, StartsWithWhatThereIsOnceItsTimeIsOver) {
  AddWorkers(2, saver_);
  gate_.AllowUpTo(1);
  const std::string job = Submit(ElasticJob(3, 2, 4));
  const v1::Job first = WaitForRanks(job, 2);
  EXPECT_THAT(first.reason(), HasSubstr("grows at a checkpoint once 1 more worker is free"));
  // Beyond the size that its spec names, up to maxRanks.
  AddWorkers(4, saver_);
  WaitForReason(job, "grows to 4 at its next checkpoint");
  gate_.AllowUpTo(6);
  WaitForRanks(job, 4);
}

TEST_F(ElasticTest, DoesNotGrowIntoWhatAnotherJobWaitsFor) {
  AddWorkers(2, saver_);
  gate_.AllowUpTo(1);
  const std::string job = Submit(ElasticJob(2, 1, 4));
  WaitForRanks(job, 2);
  v1::TrainingJob other = SmallJob(2, 1000);
  other.mutable_spec()->mutable_resources()->set_any_node(true);
  const std::string waiting = Submit(other);
  WaitForReason(waiting, "needs 2 cpu workers");
  AddWorkers(1, saver_);
  WaitForReason(waiting, "1 free of 3");
  gate_.AllowUpTo(5);
  WaitForStep(job, 5);
  EXPECT_EQ(Get(job).ranks_size(), 2);
  Cancel(waiting);
  WaitForReason(job, "grows to 3 at its next checkpoint");
}

TEST_F(ElasticTest, ASpareIsNobodyElsesAndTakesTheLostWorkersPlaceAtOnce) {
  AddWorkers(3, saver_);
  gate_.AllowUpTo(3);
  v1::TrainingJob fixed = ElasticJob(2, 0, 0);
  const std::string job = Submit(WithSpares(fixed, 1));
  WaitForReason(job, "holds 1 of 1 spare (w2)");
  WaitForStep(job, 3);
  const v1::Worker spare = WorkerOf("w2");
  EXPECT_EQ(spare.job(), job);
  EXPECT_EQ(spare.rank(), -1);
  EXPECT_EQ(spare.state(), v1::WORKER_STATE_BUSY);
  const std::string other = Submit(SmallJob(1, 3));
  const v1::Job waiting = WaitForReason(other, "needs 1 cpu worker");
  EXPECT_THAT(waiting.reason(), HasSubstr(job + " holds 3"));
  workers_[1]->Die();
  const v1::Job recovered = WaitForJob(job, [](const v1::Job& now) {
    return now.state() == v1::JOB_STATE_RUNNING && now.epoch() == 2;
  });
  EXPECT_EQ(recovered.ranks(1).worker(), "workers/w2");
  EXPECT_THAT(recovered.reason(), HasSubstr("holds 0 of 1 spare"));
  // What comes back is the waiting job's first.
  workers_[1]->Revive();
  WaitForState(other, v1::JOB_STATE_SUCCEEDED);
  WaitForReason(job, "holds 1 of 1 spare (w1)");
  Cancel(job);
  WaitForState(job, v1::JOB_STATE_CANCELLED);
  Eventually([&] { return WorkerOf("w1").state() == v1::WORKER_STATE_READY; }, "w1 to be free");
}

TEST_F(ElasticTest, ARestartedCoordinatorStillHoldsTheSpares) {
  AddWorkers(2, saver_);
  gate_.AllowUpTo(1);
  const std::string job = Submit(WithSpares(ElasticJob(1, 0, 0), 1));
  WaitForReason(job, "holds 1 of 1 spare (w1)");
  const std::string other = Submit(SmallJob(1, 1));
  server_.reset();
  StartServer();
  for (const auto& worker : workers_) worker->ConnectTo(address());
  WaitForReason(other, job + " holds 2");
  EXPECT_THAT(Get(job).reason(), HasSubstr("holds 1 of 1 spare (w1)"));
}

TEST_F(ElasticTest, ADrainedSpareIsGivenUpForAnother) {
  AddWorkers(3, saver_);
  gate_.AllowUpTo(1);
  const std::string job = Submit(WithSpares(ElasticJob(1, 0, 0), 1));
  WaitForReason(job, "holds 1 of 1 spare (w1)");
  grpc::ClientContext context;
  v1::DrainWorkerRequest request;
  request.set_name("workers/w1");
  v1::DrainWorkerResponse response;
  ASSERT_TRUE(cluster_->DrainWorker(&context, request, &response).ok());
  EXPECT_EQ(response.worker().job(), "");
  WaitForReason(job, "holds 1 of 1 spare (w2)");
}

}  // namespace
}  // namespace fsdp::coordinator
