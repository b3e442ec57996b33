#include "client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/unit/client/fake_service.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = "jobs/a-00000001";

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    ClientOptions options;
    options.server = service_.address();
    options.interrupt = &interrupt_;
    client_ = *Client::Create(options);
    v1::Job job;
    job.set_name(kJob);
    job.set_state(v1::JOB_STATE_RUNNING);
    service_.PutJob(job);
  }
  void AddLogs(int first, int last) {
    for (int i = first; i <= last; ++i) {
      v1::LogEntry entry;
      entry.set_rank(i % 2);
      entry.set_attempt(1);
      entry.set_text("line " + std::to_string(i));
      service_.AddLog(kJob, entry);
    }
  }

  FakeService service_;
  Interrupt interrupt_;
  std::unique_ptr<Client> client_;
};

TEST(ClientCreateTest, RefusesWhatIsNoAddress) {
  for (const char* bad : {"", "host", "host:", ":7070", "host:0", "host:65536", "host:x",
                          "http://host:1", "two words:1", "unix:"}) {
    ClientOptions options;
    options.server = bad;
    EXPECT_EQ(Client::Create(options).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  for (const char* good : {"host:1", "[::1]:7070", "10.0.0.1:65535", "unix:/tmp/x"}) {
    ClientOptions options;
    options.server = good;
    EXPECT_TRUE(Client::Create(options).ok()) << good;
  }
}

TEST(ClientCreateTest, NamesAndIds) {
  EXPECT_EQ(Client::JobName("a-1"), "jobs/a-1");
  EXPECT_EQ(Client::JobName("jobs/a-1"), "jobs/a-1");
  EXPECT_EQ(Client::WorkerName("w"), "workers/w");
  const std::string id = Client::NewRequestId();
  // xxxxxxxx-xxxx-4xxx-[89ab]xxx-xxxxxxxxxxxx
  ASSERT_EQ(id.size(), 36U) << id;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    EXPECT_EQ(id.find_first_of(dash ? "-" : "0123456789abcdef", i), i) << id;
  }
  EXPECT_EQ(id[14], '4') << id;
  EXPECT_THAT(std::string("89ab"), HasSubstr(id.substr(19, 1))) << id;
  EXPECT_NE(id, Client::NewRequestId());
}

// Coordinators that stand in for each other: two services with the same job.
class SeveralAddressesTest : public ::testing::Test {
 protected:
  SeveralAddressesTest() {
    v1::Job job;
    job.set_name(kJob);
    job.set_state(v1::JOB_STATE_RUNNING);
    for (FakeService* service : {&first_, &second_}) service->PutJob(job);
    client_ = Over(first_.address() + "," + second_.address());
  }
  static std::unique_ptr<Client> Over(const std::string& servers) {
    ClientOptions options;
    options.server = servers;
    return *Client::Create(options);
  }
  static grpc::Status StandsBy(const std::string& leader) {
    return ServiceError(grpc::StatusCode::UNAVAILABLE, "this coordinator stands by", "NOT_LEADER",
                        {}, {{"leader", leader}});
  }

  FakeService first_;
  FakeService second_;
  std::unique_ptr<Client> client_;
};

TEST_F(SeveralAddressesTest, AllMustBeAddresses) {
  ClientOptions options;
  for (const char* bad :
       {"host:1,", ",host:1", "host:1,,host:2", "host:1,host", "host:1, host:2"}) {
    options.server = bad;
    EXPECT_EQ(Client::Create(options).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  options.server = "host:1,host:2,[::1]:3";
  EXPECT_TRUE(Client::Create(options).ok());
}

TEST_F(SeveralAddressesTest, OneThatIsGoneIsLeftForTheNext) {
  ASSERT_TRUE(client_->GetJob(kJob).ok());
  EXPECT_TRUE(second_.calls().empty());
  first_.Stop();
  ASSERT_TRUE(client_->GetJob(kJob).ok());
  EXPECT_EQ(second_.calls().size(), 1U);
  // And back, also with a call that is not repeated once sent.
  first_.Serve();
  second_.Stop();
  EXPECT_TRUE(client_->SuspendJob(kJob, "").ok());
}

TEST_F(SeveralAddressesTest, OneThatDoesNotLeadIsLeftAlsoByCallsThatAreNotRepeated) {
  first_.FailUnary(StandsBy(""));
  EXPECT_TRUE(client_->SuspendJob(kJob, "").ok());
  EXPECT_EQ(second_.calls().size(), 1U);
}

TEST_F(SeveralAddressesTest, TheLeaderThatIsNamedIsAskedNext) {
  FakeService third;
  const auto client = Over(first_.address() + "," + third.address() + "," + second_.address());
  first_.FailUnary(StandsBy(second_.address()));
  ASSERT_TRUE(client->GetJob(kJob).ok());
  EXPECT_TRUE(third.calls().empty());
  EXPECT_EQ(second_.calls().size(), 1U);
}

TEST_F(SeveralAddressesTest, AStreamGoesOnAtTheNext) {
  first_.BreakStreamAfter(1);
  first_.FailUnary(StandsBy(second_.address()));
  std::thread end([this] {
    first_.WaitForStreams(1);
    first_.Stop();
    second_.WaitForStreams(1);
    second_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  });
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  const absl::Status watched = client_->WatchJob(kJob, {}, [&](const v1::Job& job) {
    last = job.state();
    return true;
  });
  end.join();
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(last, v1::JOB_STATE_SUCCEEDED);
}

TEST(ClientUnreachableTest, FailsWithinItsWindow) {
  ClientOptions options;
  {
    FakeService gone;
    options.server = gone.address();
  }
  options.retry_window = absl::Milliseconds(100);
  const auto client = *Client::Create(options);
  const auto job = client->GetJob(kJob);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr(options.server));
  EXPECT_EQ(client->WatchJob(kJob, {}, [](const v1::Job&) { return true; }).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ClientTest, CreateIsRetriedWithoutMakingTwoJobs) {
  service_.LoseAnswers(2);
  v1::CreateJobRequest request;
  request.mutable_job()->mutable_metadata()->set_name("b");
  const auto created = client_->CreateJob(request);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(service_.num_created(), 1);
  EXPECT_TRUE(created->existing());
  EXPECT_THAT(service_.calls(), ElementsAre("CreateJob", "CreateJob", "CreateJob"));
}

TEST_F(ClientTest, RestartIsNotRepeatedOnceSent) {
  service_.LoseAnswers(1);
  EXPECT_EQ(client_->RestartJob(kJob, "").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(service_.calls(), ElementsAre("RestartJob"));
}

TEST_F(ClientTest, OtherErrorsAreNotRetried) {
  service_.FailUnary(ServiceError(grpc::StatusCode::PERMISSION_DENIED, "no", "FORBIDDEN"));
  EXPECT_EQ(client_->GetJob(kJob).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(service_.calls(), ElementsAre("GetJob"));
}

// Its reason would be lost behind "no coordinator answers", since the coordinator ends for it.
TEST_F(ClientTest, AFailedStoreIsToldAtOnce) {
  service_.FailUnary(ServiceError(grpc::StatusCode::UNAVAILABLE, "disk is full", "STORE_FAILED"));
  const absl::Status status = client_->CreateJob({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("disk is full"));
  EXPECT_THAT(service_.calls(), ElementsAre("CreateJob"));
}

// As a server does that closes while the call comes in: a bare CANCELLED.
TEST_F(ClientTest, ACallThatMeetsAClosingServerIsABrokenConnection) {
  service_.FailUnary({grpc::StatusCode::CANCELLED, "CANCELLED"});
  const absl::Status status = client_->RestartJob(kJob, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(service_.address()));
  EXPECT_EQ(client_->GetJob(kJob).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(service_.calls().size(), 2U) << "only what may be repeated is";
  EXPECT_EQ(service_.calls()[1], "GetJob");
}

TEST_F(ClientTest, AForeignPeerIsNamed) {
  // The stand-in has no PlanJob and no ListCheckpoints.
  const absl::Status status = client_->PlanJob({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr(service_.address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("is it a coordinator"));
}

TEST_F(ClientTest, ListsWalkAllPages) {
  for (const char* name : {"jobs/b", "jobs/c", "jobs/d", "jobs/e"}) {
    v1::Job job;
    job.set_name(name);
    service_.PutJob(job);
  }
  EXPECT_EQ(client_->ListJobs({}, 0)->size(), 5U);
  EXPECT_EQ(client_->ListJobs({}, 3)->size(), 3U);
}

TEST_F(ClientTest, WatchEndsWithTheFinishedJob) {
  std::vector<v1::JobState> seen;
  const absl::Status status = client_->WatchJob(kJob, {}, [&](const v1::Job& job) {
    seen.push_back(job.state());
    if (job.state() == v1::JOB_STATE_RUNNING) service_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(seen, ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED));
}

TEST_F(ClientTest, WatchSurvivesARestartOfTheServer) {
  std::vector<v1::JobState> seen;
  int reconnects = 0;
  StreamOptions options;
  options.on_reconnect = [&](const absl::Status&) {
    ++reconnects;
    // The job went on while nobody listened.
    service_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
    service_.Serve();
  };
  const absl::Status status = client_->WatchJob(kJob, options, [&](const v1::Job& job) {
    seen.push_back(job.state());
    if (seen.size() == 1) service_.Stop();
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(reconnects, 1);
  EXPECT_THAT(seen, ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED));
}

TEST_F(ClientTest, WatchGoesOnWhenTheServerEndsItEarly) {
  service_.EndStreamEarly();
  int calls = 0;
  std::thread second_stream([this] {
    service_.WaitForStreams(2);
    service_.SetState(kJob, v1::JOB_STATE_FAILED);
  });
  const absl::Status status = client_->WatchJob(kJob, {}, [&](const v1::Job&) {
    ++calls;
    return true;
  });
  second_stream.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 2);
}

TEST_F(ClientTest, LogsResumeWithoutGapOrRepeat) {
  AddLogs(1, 6);
  service_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  service_.BreakStreamAfter(4);
  std::vector<std::int64_t> offsets;
  LogFilter filter;
  filter.follow = true;
  const absl::Status status = client_->StreamLogs(kJob, filter, {}, [&](const v1::LogEntry& entry) {
    offsets.push_back(entry.offset());
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(offsets, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(ClientTest, FilteredLogsResumeWhereTheyWere) {
  AddLogs(1, 9);
  service_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  service_.BreakStreamAfter(5);
  std::vector<std::int64_t> offsets;
  LogFilter filter;
  filter.follow = true;
  filter.rank = 1;
  ASSERT_TRUE(client_
                  ->StreamLogs(kJob, filter, {},
                               [&](const v1::LogEntry& entry) {
                                 offsets.push_back(entry.offset());
                                 return true;
                               })
                  .ok());
  EXPECT_THAT(offsets, ElementsAre(1, 3, 5, 7, 9));
}

TEST_F(ClientTest, TailIsNotAppliedAgainAfterABreak) {
  AddLogs(1, 10);
  service_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  service_.BreakStreamAfter(2);
  std::vector<std::int64_t> offsets;
  LogFilter filter;
  filter.follow = true;
  filter.tail = 4;
  ASSERT_TRUE(client_
                  ->StreamLogs(kJob, filter, {},
                               [&](const v1::LogEntry& entry) {
                                 offsets.push_back(entry.offset());
                                 return true;
                               })
                  .ok());
  EXPECT_THAT(offsets, ElementsAre(7, 8, 9, 10));
}

TEST_F(ClientTest, FollowedLogsDoNotLookFinishedWhenTheServerDrains) {
  AddLogs(1, 2);
  service_.EndStreamEarly();
  std::vector<std::int64_t> offsets;
  LogFilter filter;
  filter.follow = true;
  const absl::Status status = client_->StreamLogs(kJob, filter, {}, [&](const v1::LogEntry& entry) {
    offsets.push_back(entry.offset());
    if (entry.offset() == 2) {
      AddLogs(3, 3);
      service_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
    }
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(offsets, ElementsAre(1, 2, 3));
}

TEST_F(ClientTest, EventsAndMetricsResume) {
  for (int i = 0; i < 4; ++i) {
    service_.AddEvent(kJob, {});
    v1::StepMetrics metrics;
    metrics.set_step(i + 1);
    service_.AddMetrics(kJob, metrics);
  }
  service_.SetState(kJob, v1::JOB_STATE_SUCCEEDED);
  service_.BreakStreamAfter(2);
  std::vector<std::int64_t> sequences;
  ASSERT_TRUE(client_
                  ->StreamEvents(kJob, 0, true, {},
                                 [&](const v1::JobEvent& event) {
                                   sequences.push_back(event.sequence());
                                   return true;
                                 })
                  .ok());
  EXPECT_THAT(sequences, ElementsAre(1, 2, 3, 4));
  service_.BreakStreamAfter(1);
  std::vector<std::int64_t> steps;
  ASSERT_TRUE(client_
                  ->StreamMetrics(kJob, 1, true, {},
                                  [&](const v1::StepMetrics& metrics) {
                                    steps.push_back(metrics.step());
                                    return true;
                                  })
                  .ok());
  EXPECT_THAT(steps, ElementsAre(2, 3, 4));
}

TEST_F(ClientTest, ACallbackCanStopAStream) {
  AddLogs(1, 5);
  int calls = 0;
  LogFilter filter;
  filter.follow = true;
  EXPECT_TRUE(
      client_->StreamLogs(kJob, filter, {}, [&](const v1::LogEntry&) { return ++calls < 2; }).ok());
  EXPECT_EQ(calls, 2);
}

TEST_F(ClientTest, AnInterruptEndsAStream) {
  std::thread stopper([this] {
    service_.WaitForStreams(1);
    interrupt_.Cancel();
  });
  const absl::Status status = client_->WatchJob(kJob, {}, [](const v1::Job&) { return true; });
  stopper.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client_->GetJob(kJob).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ClientTest, AStreamEndsAtItsDeadline) {
  StreamOptions options;
  options.deadline = absl::Now() + absl::Milliseconds(50);
  const absl::Status status = client_->WatchJob(kJob, options, [](const v1::Job&) { return true; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_F(ClientTest, UnknownJobsAreNotRetried) {
  EXPECT_EQ(client_->WatchJob("nope", {}, [](const v1::Job&) { return true; }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(client_->GetJob("nope").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fsdp
