// The coordinator through real gRPC with fake workers: what happens when things break.

#include <algorithm>

#include "gmock/gmock.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

class RecoveryTest : public ServiceTest {
 protected:
  // A job of two ranks that stands after step 3, with a checkpoint of step 2.
  std::string RunToStepThree() {
    gate_.AllowUpTo(3);
    testing::FakeWorkerOptions worker;
    worker.checkpoint_every = 2;
    AddWorkers(2, worker);
    const std::string name = Submit(SmallJob(2, 6));
    WaitForStep(name, 3);
    Eventually([&] { return workers_[0]->step() == 3 && workers_[1]->step() == 3; },
               "both ranks at step 3");
    return name;
  }

  // Every step of every epoch once, in order, each epoch beginning after a checkpoint.
  static void ExpectOrderedSteps(const std::vector<v1::StepMetrics>& metrics) {
    for (size_t i = 1; i < metrics.size(); ++i) {
      if (metrics[i].epoch() == metrics[i - 1].epoch()) {
        EXPECT_EQ(metrics[i].step(), metrics[i - 1].step() + 1);
      } else {
        EXPECT_GT(metrics[i].epoch(), metrics[i - 1].epoch());
      }
    }
  }

  static bool HasSubstrIn(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  static v1::Job Succeeded(const v1::Job& job) {
    EXPECT_EQ(job.result().steps(), 6);
    return job;
  }
};

TEST_F(RecoveryTest, AKilledRankStopsAllAndTheNextEpochStartsFromTheCheckpoint) {
  const std::string name = RunToStepThree();
  workers_[1]->KillRank(9);
  Eventually([&] { return !workers_[0]->running() || workers_[0]->key().epoch() == 2; },
             "rank 0 is stopped");
  gate_.Open();
  const v1::Job job = Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.epoch(), 2);
  EXPECT_EQ(job.restarts().infrastructure(), 1);
  EXPECT_EQ(job.root_cause().cause(), v1::FAILURE_CAUSE_RANK_DIED);
  EXPECT_EQ(job.root_cause().rank(), 1);
  EXPECT_EQ(job.root_cause().signal(), 9);
  EXPECT_EQ(workers_[0]->resumed_after(), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(job.attempts(0).cause(), v1::FAILURE_CAUSE_RANK_DIED);
  ExpectOrderedSteps(Metrics(name));
  // No backoff: the failure came after progress.
  EXPECT_EQ(server_->counters().Value("fsdp_job_restarts_total", "rank_died"), 1);
}

// Three of the four workers come free while the fourth rank is slow to die: they are not for the
// younger job.
TEST_F(RecoveryTest, ARecoveringJobKeepsItsPlaceBeforeAYoungerOneThatWouldFit) {
  gate_.AllowUpTo(3);
  AddWorkers(4);
  const std::string older = Submit(SmallJob(4, 6));
  WaitForStep(older, 3);
  v1::TrainingJob spec = SmallJob(3, 6);
  spec.mutable_spec()->mutable_train()->set_global_batch(12);
  const std::string younger = Submit(spec);
  Eventually([&] { return HasSubstrIn(Get(younger).reason(), "0 free of 4"); }, "it waits");
  workers_[3]->BeginDying();
  workers_[0]->KillRank(9);
  const std::string why = absl::StrCat("waits behind ", older, ", which is recovering");
  Eventually([&] { return HasSubstrIn(Get(younger).reason(), why); }, "it waits behind");
  EXPECT_EQ(Get(older).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(Get(younger).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get(younger).epoch(), 0);
  workers_[3]->KillRank(9);
  EXPECT_EQ(WaitForJob(older, [](const v1::Job& job) { return job.epoch() == 2; }).epoch(), 2);
  EXPECT_EQ(Get(younger).epoch(), 0);
  gate_.Open();
  Succeeded(WaitForState(older, v1::JOB_STATE_SUCCEEDED));
  Succeeded(WaitForState(younger, v1::JOB_STATE_SUCCEEDED));
}

TEST_F(RecoveryTest, AJobThatIsCancelledWhileItRecoversKeepsNothing) {
  gate_.AllowUpTo(3);
  AddWorkers(4);
  const std::string older = Submit(SmallJob(4, 6));
  WaitForStep(older, 3);
  v1::TrainingJob spec = SmallJob(3, 6);
  spec.mutable_spec()->mutable_train()->set_global_batch(12);
  const std::string younger = Submit(spec);
  workers_[3]->BeginDying();
  workers_[0]->KillRank(9);
  WaitForState(older, v1::JOB_STATE_RECOVERING);
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(older);
  v1::CancelJobResponse response;
  ASSERT_TRUE(jobs_->CancelJob(&context, request, &response).ok());
  WaitForJob(younger, [](const v1::Job& job) { return job.epoch() == 1; });
  EXPECT_EQ(Get(older).state(), v1::JOB_STATE_CANCELLING);
  gate_.Open();
  Succeeded(WaitForState(younger, v1::JOB_STATE_SUCCEEDED));
  workers_[3]->KillRank(9);
  WaitForState(older, v1::JOB_STATE_CANCELLED);
}

TEST_F(RecoveryTest, AnErrorExitIsTheUsersAndFailsTheJobWithItsLastLines) {
  const std::string name = RunToStepThree();
  workers_[1]->ExitRank(1, {"traceback", "ValueError: the data is wrong"});
  const v1::Job job = WaitForState(name, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.root_cause().cause(), v1::FAILURE_CAUSE_RANK_FAILED);
  EXPECT_EQ(job.root_cause().exit_code(), 1);
  EXPECT_THAT(job.reason(), HasSubstr("ValueError: the data is wrong"));
  EXPECT_EQ(job.root_cause().last_lines_size(), 2);
  EXPECT_FALSE(workers_[0]->running());
}

TEST_F(RecoveryTest, APeersErrorNamesTheRankThatDiedNotTheOneThatSawIt) {
  const std::string name = RunToStepThree();
  workers_[1]->BeginDying();
  workers_[0]->FailRank(v1::FAILURE_CAUSE_COMMUNICATION, "connection reset by peer", 1);
  workers_[1]->ExitRank(139, {"segmentation fault"});
  Eventually([&] { return HasEvent(name, "RANK_FAILED"); }, "the cause is refined");
  const v1::Job job = WaitForState(name, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.root_cause().rank(), 1);
  EXPECT_EQ(job.root_cause().exit_code(), 139);
}

TEST_F(RecoveryTest, ARankThatAPeerBlamesAndWeKillHasNotDied) {
  const std::string name = RunToStepThree();
  workers_[0]->FailRank(v1::FAILURE_CAUSE_COMMUNICATION, "connection lost", 1);
  WaitForJob(name, [](const v1::Job& job) { return job.epoch() == 2; });
  gate_.Open();
  const v1::Job job = Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.root_cause().cause(), v1::FAILURE_CAUSE_COMMUNICATION);
  EXPECT_EQ(job.root_cause().rank(), 1);
  EXPECT_EQ(job.root_cause().signal(), 0);
  EXPECT_EQ(job.restarts().infrastructure(), 1);
}

TEST_F(RecoveryTest, ALostWorkerEndsTheEpochAndItsSuccessorCarriesOn) {
  const std::string name = RunToStepThree();
  workers_[1]->Die();
  const v1::Job lost = WaitForState(name, v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(lost.cause(), v1::FAILURE_CAUSE_WORKER_LOST);
  Eventually([&] { return !workers_[0]->running(); }, "rank 0 is stopped");
  gate_.Open();
  workers_[1]->Revive();
  const v1::Job job = Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.epoch(), 2);
  EXPECT_EQ(job.root_cause().rank(), 1);
}

TEST_F(RecoveryTest, AShortDisconnectChangesNothingAndReportsArriveOnce) {
  const std::string name = RunToStepThree();
  workers_[0]->Disconnect();
  gate_.AllowUpTo(5);
  workers_[0]->Connect();
  gate_.Open();
  const v1::Job job = Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.epoch(), 1);
  const std::vector<v1::StepMetrics> metrics = Metrics(name);
  EXPECT_EQ(metrics.size(), 6u);
  ExpectOrderedSteps(metrics);
}

TEST_F(RecoveryTest, ARestartedCoordinatorAdoptsRunningRanksAndLosesNoStep) {
  const std::string name = RunToStepThree();
  server_.reset();
  // Training goes on meanwhile; the reports wait on the workers.
  gate_.AllowUpTo(4);
  Eventually([&] { return workers_[0]->step() == 4 && workers_[1]->step() == 4; }, "step 4");
  StartServer();
  EXPECT_EQ(Get(name).state(), v1::JOB_STATE_RUNNING);
  for (auto& worker : workers_) worker->ConnectTo(address());
  gate_.Open();
  const v1::Job job = Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.epoch(), 1);
  EXPECT_EQ(workers_[0]->resumed_after(), std::vector<std::int64_t>{0});
  const std::vector<v1::StepMetrics> metrics = Metrics(name);
  ASSERT_EQ(metrics.size(), 6u);
  ExpectOrderedSteps(metrics);
}

// A daemon whose clock is an hour slow delivers the report of a death after an outage, before its
// first heartbeat.
TEST_F(RecoveryTest, TheClockOfAWorkerIsComparedBeforeItsReportsAreTaken) {
  gate_.AllowUpTo(3);
  testing::FakeWorkerOptions worker;
  worker.clock_ahead = -absl::Hours(1);
  AddWorkers(2, worker);
  const std::string name = Submit(SmallJob(2, 6));
  WaitForStep(name, 3);
  server_.reset();
  const absl::Time before = absl::Now();
  workers_[1]->KillRank(9);
  StartServer();
  for (auto& each : workers_) each->ConnectTo(address());
  gate_.Open();
  Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  const std::vector<v1::JobEvent> events = Events(name);
  const auto died = std::find_if(events.begin(), events.end(),
                                 [](const auto& event) { return event.type() == "RANK_DIED"; });
  ASSERT_NE(died, events.end());
  EXPECT_GE(FromTimestamp(died->time()), before);
  EXPECT_LE(FromTimestamp(died->time()), absl::Now());
}

TEST_F(RecoveryTest, QueuedJobsAndRequestIdsOutliveTheCoordinator) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  *request.mutable_job() = SmallJob(1, 1);
  request.set_request_id("again");
  v1::CreateJobResponse first;
  ASSERT_TRUE(jobs_->CreateJob(&context, request, &first).ok());
  server_.reset();
  StartServer();
  grpc::ClientContext again_context;
  v1::CreateJobResponse second;
  ASSERT_TRUE(jobs_->CreateJob(&again_context, request, &second).ok());
  EXPECT_TRUE(second.existing());
  EXPECT_EQ(second.job().name(), first.job().name());
  AddWorkers(1);
  WaitForState(first.job().name(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RecoveryTest, AStaleEpochsReportsAndManifestsAreRefused) {
  const std::string name = RunToStepThree();
  const v1::EpochKey old_key = workers_[0]->key();
  workers_[1]->KillRank(11);
  WaitForJob(name, [](const v1::Job& job) { return job.epoch() == 2; });
  v1::Report report;
  *report.mutable_key() = old_key;
  report.mutable_manifest()->mutable_checkpoint()->set_step(999);
  workers_[0]->SendReport(report);
  v1::Report step;
  *step.mutable_key() = old_key;
  step.mutable_step()->mutable_metrics()->set_step(998);
  workers_[0]->SendReport(step);
  Eventually([&] { return workers_[0]->CountReceived(v1::ConnectResponse::kStaleEpoch) >= 2; },
             "both are answered");
  std::string text;
  for (const auto& message : workers_[0]->received()) {
    if (message.has_stale_epoch()) text = message.stale_epoch().message();
    if (message.has_manifest_verdict() && message.manifest_verdict().step() == 999) {
      EXPECT_FALSE(message.manifest_verdict().admitted());
    }
  }
  EXPECT_THAT(text, HasSubstr("epoch 1 refused, the job is at epoch 2"));
  gate_.Open();
  const v1::Job job = WaitForState(name, v1::JOB_STATE_SUCCEEDED);
  EXPECT_NE(job.checkpoint().step(), 999);
  for (const v1::StepMetrics& metrics : Metrics(name)) EXPECT_LT(metrics.step(), 998);
}

TEST_F(RecoveryTest, AnUnjoinedGangIsReleasedAfterTheJoinTimeout) {
  AddWorker();
  testing::FakeWorkerOptions silent;
  silent.join = false;
  AddWorker(silent);
  v1::TrainingJob spec = SmallJob(2, 1);
  spec.mutable_spec()->mutable_limits()->set_join_timeout_seconds(1);
  spec.mutable_spec()->mutable_failure_policy()->set_max_infrastructure_restarts(0);
  const v1::Job job = WaitForState(Submit(spec), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause(), v1::FAILURE_CAUSE_JOIN_TIMEOUT);
  EXPECT_THAT(job.root_cause().message(),
              HasSubstr("1 of 2 ranks had not joined after 1s: 1 (w1)"));
  Eventually([&] { return !workers_[0]->running() && !workers_[1]->running(); }, "both released");
}

TEST_F(RecoveryTest, RanksThatReadOtherDataNeverStart) {
  AddWorker();
  testing::FakeWorkerOptions other;
  other.data_fingerprint = 8;
  other.data_path = "/data/other.bin";
  AddWorker(other);
  const v1::Job job = WaitForState(Submit(SmallJob(2, 1)), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.cause(), v1::FAILURE_CAUSE_RANKS_DIFFER);
  EXPECT_THAT(job.root_cause().message(), HasSubstr("rank 1"));
  EXPECT_THAT(job.root_cause().message(), HasSubstr("/data/other.bin"));
  EXPECT_EQ(workers_[0]->CountReceived(v1::ConnectResponse::kCommitEpoch), 0);
}

TEST_F(RecoveryTest, AWaitingGetIsAnsweredWhenTheValueIsPut) {
  RunToStepThree();
  workers_[0]->Get("address/1");
  workers_[1]->Put("address/1", "127.0.0.1:4711");
  Eventually([&] { return workers_[0]->CountReceived(v1::ConnectResponse::kRendezvousValue) == 1; },
             "the value arrives");
}

TEST_F(RecoveryTest, ASecondProcessOfTheSameNameIsRefusedAndAFencedOneAborted) {
  AddWorkers(1);
  Eventually([&] { return workers_[0]->CountReceived(v1::ConnectResponse::kWelcome) == 1; },
             "welcome");
  testing::FakeWorkerOptions options;
  options.name = "w0";
  testing::FakeWorker twin(address(), options, &gate_);
  twin.Revive();
  Eventually([&] { return twin.stream_status().has_value(); }, "the twin is answered");
  EXPECT_EQ(twin.stream_status()->error_code(), grpc::StatusCode::ALREADY_EXISTS);

  workers_[0]->Die();
  workers_[0]->Revive();
  Eventually([&] { return workers_[0]->CountReceived(v1::ConnectResponse::kWelcome) == 2; },
             "the next life is welcome");
  testing::FakeWorker ghost(address(), options, &gate_);
  ghost.Connect();
  Eventually([&] { return ghost.stream_status().has_value(); }, "the ghost is answered");
  EXPECT_EQ(ghost.stream_status()->error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(RecoveryTest, DrainMovesTheJobToAnotherWorker) {
  const std::string name = RunToStepThree();
  testing::FakeWorkerOptions worker;
  worker.checkpoint_every = 2;
  worker.host = "host-0";
  AddWorker(worker);
  grpc::ClientContext context;
  v1::DrainWorkerRequest request;
  request.set_name("workers/w1");
  request.set_stop_ranks(true);
  v1::DrainWorkerResponse response;
  ASSERT_TRUE(cluster_->DrainWorker(&context, request, &response).ok());
  EXPECT_TRUE(response.worker().cordoned());
  gate_.Open();
  const v1::Job job = Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.restarts().free(), 1);
  EXPECT_EQ(job.ranks(1).worker(), "workers/w2");
}

TEST_F(RecoveryTest, TheEndOfADaemonMovesTheJobToAnotherWorker) {
  const std::string name = RunToStepThree();
  testing::FakeWorkerOptions worker;
  worker.checkpoint_every = 2;
  worker.host = "host-0";
  AddWorker(worker);
  v1::ConnectRequest request;
  request.mutable_heartbeat()->set_shutdown_reason("Terminated");
  request.mutable_heartbeat()->set_unplaceable_reason("the worker is shutting down: Terminated");
  *request.mutable_heartbeat()->mutable_rank()->mutable_key() = workers_[1]->key();
  workers_[1]->Send(request);
  gate_.Open();
  const v1::Job job = Succeeded(WaitForState(name, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.restarts().free(), 1);
  EXPECT_EQ(job.restarts().infrastructure(), 0);
  EXPECT_EQ(job.attempts(0).cause(), v1::FAILURE_CAUSE_DRAINED);
  EXPECT_EQ(job.ranks(1).worker(), "workers/w2");
  EXPECT_EQ(server_->counters().Value("fsdp_job_restarts_total", "drained"), 1);
}

// The reply tells the caller, an event everybody else.
TEST_F(RecoveryTest, AVerbThatLosesProgressWarnsInItsReply) {
  gate_.AllowUpTo(3);
  AddWorkers(1);
  v1::TrainingJob spec = SmallJob(1, 6);
  spec.mutable_spec()->clear_checkpoint();
  const std::string name = Submit(spec);
  WaitForStep(name, 3);
  grpc::ClientContext restart_context;
  v1::RestartJobRequest restart;
  restart.set_name(name);
  v1::RestartJobResponse restarted;
  ASSERT_TRUE(jobs_->RestartJob(&restart_context, restart, &restarted).ok());
  ASSERT_EQ(restarted.warnings_size(), 1);
  EXPECT_THAT(restarted.warnings(0), HasSubstr("Set checkpoint.dir"));
  WaitForJob(name, [](const v1::Job& job) {
    return job.attempts_size() == 2 && job.attempts(1).last_step() == 3;
  });
  grpc::ClientContext drain_context;
  v1::DrainWorkerRequest drain;
  drain.set_name("workers/w0");
  drain.set_stop_ranks(true);
  v1::DrainWorkerResponse drained;
  ASSERT_TRUE(cluster_->DrainWorker(&drain_context, drain, &drained).ok());
  ASSERT_EQ(drained.warnings_size(), 1);
  EXPECT_THAT(drained.warnings(0), HasSubstr("up to step 3"));
  int events = 0;
  for (const v1::JobEvent& event : Events(name)) {
    if (event.type() != "PROGRESS_LOST") continue;
    EXPECT_EQ(event.severity(), v1::EVENT_SEVERITY_WARNING);
    ++events;
  }
  EXPECT_EQ(events, 2);
}

TEST_F(RecoveryTest, AWatcherThatResumesStillGetsTheFinalState) {
  const std::string name = RunToStepThree();
  gate_.Open();
  const v1::Job job = WaitForState(name, v1::JOB_STATE_SUCCEEDED);
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_after_revision(job.revision());
  auto stream = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  int messages = 0;
  while (stream->Read(&response)) ++messages;
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(messages, 1);
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RecoveryTest, ASecondCoordinatorOnTheSameStateIsRefused) {
  const auto second = Server::Start(options_, nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another coordinator (pid"));
}

}  // namespace
}  // namespace fsdp::coordinator
