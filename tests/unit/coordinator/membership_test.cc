// The coordinator without a wire, with time as an argument: which workers it knows, and how long.

#include <algorithm>

#include "coordinator/coordinator.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/resource_names.h"
#include "gtest/gtest.h"
#include "proto/support/log.h"
#include "tests/fakes/fake_clock.h"

namespace fsdp::coordinator {
namespace {

// Takes everything; the jobs here are not about their specification.
class OpenAdmission : public Admission {
 public:
  [[nodiscard]] absl::StatusOr<Admitted> Admit(const v1::TrainingJob& job,
                                               const DeviceMemory&) const override {
    return Admitted{.job = job};
  }
};

class QuietSink : public WorkerSink {
 public:
  void Send(const v1::ConnectResponse&) override {}
  void Close(absl::Status) override {}
};

class MembershipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    StartCoordinator();
  }

  // Again: as after a restart, on the same store.
  void StartCoordinator() {
    Coordinator::Dependencies dependencies;
    dependencies.clock = &clock_;
    dependencies.store = &store_;
    dependencies.admission = &admission_;
    dependencies.counters = &counters_;
    coordinator_.reset();
    auto created = Coordinator::Create(options_, dependencies);
    ASSERT_TRUE(created.ok()) << created.status();
    coordinator_ = *std::move(created);
  }

  Coordinator::Session Connect(const std::string& name) {
    v1::WorkerHello hello;
    hello.set_worker("workers/" + name);
    hello.set_incarnation("life-1");
    hello.set_protocol_version(kProtocolVersion);
    hello.set_host("host");
    auto session = coordinator_->OnHello(hello, std::make_shared<QuietSink>());
    EXPECT_TRUE(session.ok()) << session.status();
    return *session;
  }

  // Ticks as the service does; `alive` sends a heartbeat of its rank each second.
  void Pass(absl::Duration time, const Coordinator::Session* alive = nullptr,
            const v1::EpochKey* rank = nullptr) {
    for (absl::Duration passed; passed < time; passed += absl::Seconds(1)) {
      clock_.Advance(absl::Seconds(1));
      if (alive != nullptr) {
        v1::ConnectRequest message;
        v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
        if (rank != nullptr) *heartbeat.mutable_rank()->mutable_key() = *rank;
        ASSERT_TRUE(coordinator_->OnMessage(*alive, message).ok());
      }
      coordinator_->Tick();
    }
  }

  // As a daemon does that was stopped.
  void Leave(const Coordinator::Session& session) {
    v1::ConnectRequest message;
    message.mutable_goodbye()->set_reason("Terminated");
    ASSERT_TRUE(coordinator_->OnMessage(session, message).ok());
    coordinator_->OnDisconnect(session);
  }
  v1::WorkerState StateOf(const std::string& name) {
    const auto worker = coordinator_->GetWorker(WorkerId(name));
    EXPECT_TRUE(worker.ok()) << worker.status();
    return worker.ok() ? worker->state() : v1::WORKER_STATE_UNSPECIFIED;
  }
  void Drain(const std::string& name) {
    coordinator_->DrainWorker({}, WorkerId(name), false, "broken fan", [](const auto& drained) {
      EXPECT_TRUE(drained.ok()) << drained.status();
    });
  }
  void Uncordon(const std::string& name) {
    coordinator_->UncordonWorker({}, WorkerId(name), [](const auto& worker) {
      EXPECT_TRUE(worker.ok()) << worker.status();
    });
  }

  std::string Names() {
    std::string names;
    for (const v1::Worker& worker : coordinator_->ListWorkers()) {
      names += worker.name().substr(8) + (worker.state() == v1::WORKER_STATE_LOST ? "- " : "+ ");
    }
    return names;
  }

  Options options_;
  FakeClock clock_;
  MemoryStore store_;
  OpenAdmission admission_;
  Counters counters_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(MembershipTest, ALostWorkerIsForgottenAfterAnHourAndMayComeBack) {
  coordinator_->OnDisconnect(Connect("w0"));
  const Coordinator::Session session = Connect("w1");
  Pass(absl::Minutes(59), &session);
  EXPECT_EQ(Names(), "w0- w1+ ");
  EXPECT_EQ(coordinator_->Stats().workers.at(v1::WORKER_STATE_LOST), 1);
  Pass(absl::Minutes(2), &session);
  EXPECT_EQ(Names(), "w1+ ");
  EXPECT_EQ(coordinator_->Stats().workers.count(v1::WORKER_STATE_LOST), 0u);
  EXPECT_EQ(coordinator_->Stats().heartbeat_age_seconds.count("w0"), 0u);
  EXPECT_EQ(coordinator_->GetWorker(WorkerId("w0")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.Load()->workers.size(), 1u);

  Connect("w0");
  EXPECT_EQ(Names(), "w0+ w1+ ");
}

// Nothing was lost: somebody stopped the daemon.
TEST_F(MembershipTest, AWorkerThatWasStoppedHasLeft) {
  const Coordinator::Session session = Connect("w0");
  Leave(session);
  EXPECT_EQ(StateOf("w0"), v1::WORKER_STATE_LEFT);
  EXPECT_EQ(coordinator_->Stats().workers.at(v1::WORKER_STATE_LEFT), 1);
  EXPECT_EQ(counters_.Value("fsdp_worker_losses_total", "stream_closed"), 0);
  EXPECT_EQ(counters_.Value("fsdp_worker_losses_total", "silent"), 0);
  // A restarted coordinator says so too, once it has waited for the worker.
  StartCoordinator();
  Pass(absl::Seconds(30));
  EXPECT_EQ(StateOf("w0"), v1::WORKER_STATE_LEFT);
  Connect("w0");
  EXPECT_EQ(StateOf("w0"), v1::WORKER_STATE_READY);
  // Forgotten like a lost one.
  Leave(Connect("w1"));
  Pass(absl::Hours(1) + absl::Seconds(10));
  EXPECT_FALSE(coordinator_->GetWorker(WorkerId("w1")).ok());
}

TEST_F(MembershipTest, ARestartOfTheCoordinatorDoesNotBeginTheHourAnew) {
  coordinator_->OnDisconnect(Connect("w0"));
  Pass(absl::Minutes(50));
  StartCoordinator();
  Pass(absl::Minutes(9));
  EXPECT_EQ(Names(), "w0- ");
  Pass(absl::Minutes(2));
  EXPECT_EQ(Names(), "");
}

TEST_F(MembershipTest, AWorkerThatComesBackHasItsWholeHourNextTime) {
  coordinator_->OnDisconnect(Connect("w0"));
  Pass(absl::Minutes(50));
  coordinator_->OnDisconnect(Connect("w0"));
  Pass(absl::Minutes(50));
  EXPECT_EQ(Names(), "w0- ");
  Pass(absl::Minutes(11));
  EXPECT_EQ(Names(), "");
}

TEST_F(MembershipTest, ADrainedWorkerIsNotForgottenUntilItIsUncordoned) {
  coordinator_->OnDisconnect(Connect("w0"));
  Drain("w0");
  Pass(absl::Hours(3));
  EXPECT_EQ(Names(), "w0- ");
  Uncordon("w0");
  Pass(absl::Seconds(10));
  EXPECT_EQ(Names(), "");
}

TEST_F(MembershipTest, InfinityKeepsLostWorkers) {
  options_.timing.forget_lost_after = absl::InfiniteDuration();
  StartCoordinator();
  coordinator_->OnDisconnect(Connect("w0"));
  Pass(absl::Hours(3));
  EXPECT_EQ(Names(), "w0- ");
}

TEST_F(MembershipTest, AMemberOfAnEpochThatIsNotOverIsNotForgotten) {
  const Coordinator::Session lost = Connect("w0");
  const Coordinator::Session stays = Connect("w1");
  v1::CreateJobRequest request;
  request.mutable_job()->mutable_metadata()->set_name("job");
  request.mutable_job()->mutable_spec()->mutable_resources()->set_devices_per_node(2);
  v1::Job job;
  coordinator_->CreateJob({}, request, [&](const auto& created) {
    ASSERT_TRUE(created.ok()) << created.status();
    job = created->job();
  });
  Pass(absl::Seconds(1));
  ASSERT_EQ(coordinator_->GetWorker(WorkerId("w1"))->job(), job.name());
  v1::EpochKey key;
  key.set_job(job.name());
  key.set_attempt(1);
  key.set_epoch(1);
  key.set_rank(coordinator_->GetWorker(WorkerId("w1"))->rank());

  // The epoch ends over the lost worker, but its other rank never does.
  coordinator_->OnDisconnect(lost);
  Pass(absl::Hours(2), &stays, &key);
  EXPECT_EQ(Names(), "w0- w1+ ");

  v1::ConnectRequest message;
  *message.mutable_report()->mutable_key() = key;
  message.mutable_report()->set_sequence(1);
  message.mutable_report()->mutable_exited()->set_signal(9);
  ASSERT_TRUE(coordinator_->OnMessage(stays, message).ok());
  Pass(absl::Seconds(10), &stays);
  EXPECT_EQ(Names(), "w1+ ");
}

// A process that was stopped: on waking, a message may come before the first tick.
TEST_F(MembershipTest, ACoordinatorThatStoodStillAbortsNoEpoch) {
  const Coordinator::Session sessions[] = {Connect("w0"), Connect("w1")};
  v1::CreateJobRequest request;
  request.mutable_job()->mutable_metadata()->set_name("job");
  request.mutable_job()->mutable_spec()->mutable_resources()->set_devices_per_node(2);
  v1::Job job;
  coordinator_->CreateJob({}, request, [&](const auto& created) { job = created->job(); });
  coordinator_->Tick();
  v1::ConnectRequest messages[2];
  std::int64_t sequence = 0;
  const auto send = [&](int worker) {
    ASSERT_TRUE(coordinator_->OnMessage(sessions[worker], messages[worker]).ok());
  };
  for (int worker = 0; worker < 2; ++worker) {
    v1::EpochKey key;
    key.set_job(job.name());
    key.set_attempt(1);
    key.set_epoch(1);
    key.set_rank(coordinator_->GetWorker(sessions[worker].worker)->rank());
    v1::Report& report = *messages[worker].mutable_report();
    *report.mutable_key() = key;
    report.set_sequence(++sequence);
    report.mutable_joined();
    send(worker);
    v1::RankPulse& pulse = *messages[worker].mutable_heartbeat()->mutable_rank();
    *pulse.mutable_key() = key;
    pulse.set_phase(v1::PHASE_TRAIN);
    pulse.set_step(10);
    pulse.set_collective_started(2);
    pulse.set_collective_finished(1);
    send(worker);
  }
  const auto state = [&] {
    return coordinator_->directory().Find(JobIdFromName(job.name()))->state();
  };
  coordinator_->Tick();
  ASSERT_EQ(state(), v1::JOB_STATE_RUNNING);
  for (const bool message_first : {true, false}) {
    clock_.Advance(absl::Seconds(42));
    if (message_first) send(0);
    coordinator_->Tick();
    EXPECT_EQ(state(), v1::JOB_STATE_RUNNING) << message_first;
    EXPECT_EQ(Names(), "w0+ w1+ ");
    clock_.Advance(absl::Seconds(1));
    for (const int worker : {0, 1}) send(worker);
    coordinator_->Tick();
    EXPECT_EQ(state(), v1::JOB_STATE_RUNNING) << message_first;
  }
}

}  // namespace
}  // namespace fsdp::coordinator
