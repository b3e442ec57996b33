// Every error of the API carries exactly one ErrorInfo, whose reason names the case and whose
// metadata holds the variables of the text.

#include <map>
#include <set>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

struct Failure {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;
  int num_infos = 0;
  google::rpc::ErrorInfo info;
};

Failure Read(const grpc::Status& status) {
  Failure failure{status.error_code(), status.error_message(), 0, {}};
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  for (const auto& any : details.details()) {
    if (!any.Is<google::rpc::ErrorInfo>()) continue;
    ++failure.num_infos;
    any.UnpackTo(&failure.info);
  }
  return failure;
}

// The status of a stream without answers.
template <typename Response>
grpc::Status Finish(std::unique_ptr<grpc::ClientReader<Response>> stream) {
  Response response;
  while (stream->Read(&response)) {
  }
  return stream->Finish();
}

// One request of these bytes, and how the call ended.
grpc::Status CallRaw(grpc::GenericStub& stub, const std::string& method, const std::string& bytes) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

class ErrorsTest : public ServiceTest {
 protected:
  // A call of JobService by name, for `name`.
  grpc::Status CallJob(const std::string& method, const std::string& name) {
    grpc::ClientContext context;
    const auto call = [&]<typename Request, typename Response>(Request request, Response response,
                                                               auto stub) {
      request.set_name(name);
      return ((*jobs_).*stub)(&context, request, &response);
    };
    using Stub = v1::JobService::Stub;
    if (method == "GetJob") {
      return call(v1::GetJobRequest(), v1::GetJobResponse(), &Stub::GetJob);
    }
    if (method == "CancelJob") {
      return call(v1::CancelJobRequest(), v1::CancelJobResponse(), &Stub::CancelJob);
    }
    if (method == "SuspendJob") {
      return call(v1::SuspendJobRequest(), v1::SuspendJobResponse(), &Stub::SuspendJob);
    }
    if (method == "ResumeJob") {
      return call(v1::ResumeJobRequest(), v1::ResumeJobResponse(), &Stub::ResumeJob);
    }
    if (method == "RestartJob") {
      return call(v1::RestartJobRequest(), v1::RestartJobResponse(), &Stub::RestartJob);
    }
    if (method == "DeleteJob") {
      return call(v1::DeleteJobRequest(), v1::DeleteJobResponse(), &Stub::DeleteJob);
    }
    if (method == "ListCheckpoints") {
      return call(v1::ListCheckpointsRequest(), v1::ListCheckpointsResponse(),
                  &Stub::ListCheckpoints);
    }
    if (method == "ReadCheckpoint") {
      v1::ReadCheckpointRequest request;
      request.set_file("manifest.json");
      return call(request, v1::ReadCheckpointResponse(), &Stub::ReadCheckpoint);
    }
    if (method == "ProfileJob") {
      return call(v1::ProfileJobRequest(), v1::ProfileJobResponse(), &Stub::ProfileJob);
    }
    if (method == "GetProfile") {
      return call(v1::GetProfileRequest(), v1::GetProfileResponse(), &Stub::GetProfile);
    }
    if (method == "ReadProfile") {
      return call(v1::ReadProfileRequest(), v1::ReadProfileResponse(), &Stub::ReadProfile);
    }
    if (method == "DumpCollectives") {
      return call(v1::DumpCollectivesRequest(), v1::DumpCollectivesResponse(),
                  &Stub::DumpCollectives);
    }
    return Streamed(method, name, &context);
  }

  grpc::Status Streamed(const std::string& method, const std::string& name,
                        grpc::ClientContext* context) {
    if (method == "WatchJob") {
      v1::WatchJobRequest request;
      request.set_name(name);
      return Finish(jobs_->WatchJob(context, request));
    }
    if (method == "StreamEvents") {
      v1::StreamEventsRequest request;
      request.set_name(name);
      return Finish(jobs_->StreamEvents(context, request));
    }
    if (method == "StreamLogs") {
      v1::StreamLogsRequest request;
      request.set_name(name);
      return Finish(jobs_->StreamLogs(context, request));
    }
    if (method == "StreamMetrics") {
      v1::StreamMetricsRequest request;
      request.set_name(name);
      return Finish(jobs_->StreamMetrics(context, request));
    }
    ADD_FAILURE() << "no case for " << method;
    return grpc::Status::OK;
  }

  grpc::Status Create(const v1::TrainingJob& job, const std::string& request_id = "") {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    *request.mutable_job() = job;
    request.set_request_id(request_id);
    v1::CreateJobResponse response;
    grpc::Status status = jobs_->CreateJob(&context, request, &response);
    created_ = response.job();
    return status;
  }

  static void Expect(const grpc::Status& status, grpc::StatusCode code, const std::string& reason,
                     const std::map<std::string, std::string>& metadata) {
    const Failure failure = Read(status);
    EXPECT_EQ(failure.code, code) << failure.message;
    EXPECT_EQ(failure.num_infos, 1) << failure.message;
    EXPECT_EQ(failure.info.reason(), reason) << failure.message;
    EXPECT_EQ(failure.info.domain(), "fsdp.v1");
    EXPECT_THAT(failure.info.reason(), MatchesRegex("[A-Z][A-Z0-9_]+[A-Z0-9]"));
    for (const auto& [key, value] : metadata) {
      const auto& found = failure.info.metadata();
      ASSERT_TRUE(found.contains(key)) << key << ": " << failure.message;
      EXPECT_EQ(found.at(key), value);
      EXPECT_THAT(failure.message, HasSubstr(value));
    }
  }

  v1::Job created_;
};

TEST_F(ErrorsTest, EveryMethodThatNamesAJobTellsThatThereIsNone) {
  // What takes no job's name has cases of its own below.
  const std::set<std::string> others = {"CreateJob", "PlanJob", "ListJobs"};
  const auto* service =
      v1::Job::descriptor()->file()->pool()->FindServiceByName("fsdp.v1.JobService");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string method = service->method(i)->name();
    if (others.contains(method)) continue;
    SCOPED_TRACE(method);
    Expect(CallJob(method, "jobs/none"), grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND",
           {{"job", "none"}});
  }
  for (const char* method : {"GetJob", "CancelJob", "SuspendJob", "ResumeJob", "RestartJob",
                             "DeleteJob", "ListCheckpoints", "ReadCheckpoint", "ProfileJob",
                             "GetProfile", "ReadProfile", "DumpCollectives"}) {
    SCOPED_TRACE(method);
    Expect(CallJob(method, ""), grpc::StatusCode::INVALID_ARGUMENT, "NAME_INVALID",
           {{"field", "name"}});
    Expect(CallJob(method, "jobs/a/b"), grpc::StatusCode::INVALID_ARGUMENT, "NAME_INVALID",
           {{"value", "jobs/a/b"}});
  }
}

TEST_F(ErrorsTest, ClusterMethodsTellWhichWorkerIsMissing) {
  const auto check = [&](auto stub, auto request, auto response) {
    for (const std::string name : {"workers/none", ""}) {
      request.set_name(name);
      grpc::ClientContext context;
      const grpc::Status status = ((*cluster_).*stub)(&context, request, &response);
      if (name.empty()) {
        Expect(status, grpc::StatusCode::INVALID_ARGUMENT, "NAME_INVALID", {{"field", "name"}});
      } else {
        Expect(status, grpc::StatusCode::NOT_FOUND, "WORKER_NOT_FOUND", {{"worker", "none"}});
      }
    }
  };
  using Stub = v1::ClusterService::Stub;
  check(&Stub::GetWorker, v1::GetWorkerRequest(), v1::GetWorkerResponse());
  check(&Stub::DrainWorker, v1::DrainWorkerRequest(), v1::DrainWorkerResponse());
  check(&Stub::UncordonWorker, v1::UncordonWorkerRequest(), v1::UncordonWorkerResponse());

  grpc::ClientContext context;
  v1::ListWorkersRequest request;
  request.set_page_size(-3);
  v1::ListWorkersResponse response;
  Expect(cluster_->ListWorkers(&context, request, &response), grpc::StatusCode::INVALID_ARGUMENT,
         "PAGE_SIZE_INVALID", {{"field", "page_size"}, {"value", "-3"}});
}

TEST_F(ErrorsTest, ListsTellWhichArgumentIsWrong) {
  const auto list = [&](const std::string& token, const std::string& mask) {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_page_token(token);
    if (!mask.empty()) request.mutable_read_mask()->add_paths(mask);
    v1::ListJobsResponse response;
    return jobs_->ListJobs(&context, request, &response);
  };
  Expect(list("?", ""), grpc::StatusCode::INVALID_ARGUMENT, "PAGE_TOKEN_INVALID",
         {{"field", "page_token"}});
  Expect(list("", "nonsense"), grpc::StatusCode::INVALID_ARGUMENT, "READ_MASK_INVALID",
         {{"value", "nonsense"}});
}

// An empty answer would look like a rank that wrote nothing.
TEST_F(ErrorsTest, LogsOfARankOrAttemptThatTheJobDoesNotHaveAreRefused) {
  const std::string name = Submit(SmallJob(2, 1));
  const auto logs = [&](std::optional<int> rank, int attempt, bool follow = false) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
    v1::StreamLogsRequest request;
    request.set_name(name);
    if (rank) request.set_rank(*rank);
    request.set_attempt(attempt);
    request.set_follow(follow);
    return Finish(jobs_->StreamLogs(&context, request));
  };
  EXPECT_TRUE(logs(1, 0).ok()) << "nothing is placed yet, but there will be a rank 1";
  for (const int rank : {2, 9, -1}) {
    const grpc::Status status = logs(rank, 0);
    Expect(status, grpc::StatusCode::INVALID_ARGUMENT, "RANK_INVALID",
           {{"field", "rank"}, {"value", std::to_string(rank)}});
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(name + " has ranks 0..1"));
  }
  Expect(logs(0, 3), grpc::StatusCode::INVALID_ARGUMENT, "ATTEMPT_INVALID", {{"value", "3"}});
  EXPECT_EQ(logs(0, 3, true).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
      << "a third attempt may still come";
  Expect(logs(0, -1, true), grpc::StatusCode::INVALID_ARGUMENT, "ATTEMPT_INVALID", {});
}

TEST_F(ErrorsTest, ASpecThatIsWrongOrAnIdThatIsTakenIsNamed) {
  v1::TrainingJob bad = SmallJob(1, 1);
  bad.mutable_spec()->mutable_model()->set_num_heads(5);
  Expect(Create(bad), grpc::StatusCode::INVALID_ARGUMENT, "SPEC_INVALID", {});
  grpc::ClientContext context;
  v1::PlanJobRequest request;
  *request.mutable_job() = bad;
  v1::PlanJobResponse response;
  Expect(jobs_->PlanJob(&context, request, &response), grpc::StatusCode::INVALID_ARGUMENT,
         "SPEC_INVALID", {});

  Expect(Create(SmallJob(1, 1), "not an id"), grpc::StatusCode::INVALID_ARGUMENT,
         "REQUEST_ID_INVALID", {{"value", "not an id"}});
  const std::string id = "0a1b2c3d-0000-4000-8000-000000000002";
  ASSERT_TRUE(Create(SmallJob(1, 1), id).ok());
  const std::string name = created_.name();
  Expect(Create(SmallJob(1, 2), id), grpc::StatusCode::ALREADY_EXISTS, "REQUEST_ID_REUSED",
         {{"request_id", id}, {"job", name}});
}

TEST_F(ErrorsTest, AVerbThatTheStateForbidsTellsTheState) {
  const std::string name = Submit(SmallJob(1, 1));
  for (const char* method : {"ResumeJob", "DeleteJob", "RestartJob"}) {
    SCOPED_TRACE(method);
    Expect(CallJob(method, name), grpc::StatusCode::FAILED_PRECONDITION, "JOB_STATE_CONFLICT",
           {{"job", name}, {"state", "QUEUED"}});
  }
  ASSERT_TRUE(CallJob("CancelJob", name).ok());
  Expect(CallJob("SuspendJob", name), grpc::StatusCode::FAILED_PRECONDITION, "JOB_STATE_CONFLICT",
         {{"state", "CANCELLED"}, {"wanted", "suspended"}});
}

// By itself gRPC answers bytes that are no message with UNIMPLEMENTED and not a word.
TEST_F(ErrorsTest, ARequestThatIsNoMessageIsInvalidWhateverTheMethod) {
  const auto channel = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  const std::string not_utf8 = "\x0a\x02\xff\xff";
  int num_methods = 0;
  for (const char* service : {"JobService", "ClusterService"}) {
    const auto* descriptor = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        absl::StrCat("fsdp.v1.", service));
    ASSERT_NE(descriptor, nullptr);
    for (int i = 0; i < descriptor->method_count(); ++i, ++num_methods) {
      const std::string method =
          absl::StrCat("/fsdp.v1.", service, "/", descriptor->method(i)->name());
      // A field that ends early is no message of any kind.
      for (const std::string& bytes : {std::string("\x0a\x7f"), std::string(64, '\xff')}) {
        Expect(CallRaw(stub, method, bytes), grpc::StatusCode::INVALID_ARGUMENT,
               "REQUEST_MALFORMED", {{"method", method}});
      }
      EXPECT_EQ(server_->counters().Value("fsdp_rpc_total",
                                          absl::StrCat(service, ".", descriptor->method(i)->name()),
                                          "INVALID_ARGUMENT"),
                2)
          << method;
    }
  }
  EXPECT_GE(num_methods, 15);
  Expect(CallRaw(stub, "/fsdp.v1.JobService/GetJob", not_utf8), grpc::StatusCode::INVALID_ARGUMENT,
         "REQUEST_MALFORMED", {});
  // The connection is none the worse, and what does not exist is still that.
  EXPECT_EQ(CallRaw(stub, "/fsdp.v1.ClusterService/ListWorkers", "").error_code(),
            grpc::StatusCode::OK);
  EXPECT_EQ(CallRaw(stub, "/fsdp.v1.JobService/Nothing", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ErrorsTest, AFullQueueTellsItsLimit) {
  server_.reset();
  options_.queue.max_unfinished_jobs = 1;
  StartServer();
  ASSERT_TRUE(Create(SmallJob(1, 1)).ok());
  Expect(Create(SmallJob(1, 1)), grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL",
         {{"unfinished_jobs", "1"}, {"limit", "1"}});
}

TEST_F(ErrorsTest, AWorkersConversationEndsWithAReason) {
  const auto workers = v1::WorkerService::NewStub(
      grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
  const auto say = [&](const v1::ConnectRequest& request) {
    grpc::ClientContext context;
    auto stream = workers->Connect(&context);
    stream->Write(request);
    v1::ConnectResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  };
  v1::ConnectRequest request;
  request.mutable_heartbeat();
  Expect(say(request), grpc::StatusCode::FAILED_PRECONDITION, "HELLO_MISSING", {});
  request.mutable_hello()->set_worker("no/such name");
  Expect(say(request), grpc::StatusCode::INVALID_ARGUMENT, "WORKER_INVALID",
         {{"value", "no/such name"}});
  request.mutable_hello()->set_worker("w");
  Expect(say(request), grpc::StatusCode::INVALID_ARGUMENT, "INCARNATION_INVALID", {});
  request.mutable_hello()->set_incarnation("1");
  request.mutable_hello()->set_protocol_version(99);
  Expect(say(request), grpc::StatusCode::FAILED_PRECONDITION, "PROTOCOL_VERSION_UNSUPPORTED",
         {{"worker", "w"}, {"worker_version", "99"}, {"coordinator_version", "1"}});
}

TEST_F(ErrorsTest, AWatcherOfACoordinatorThatStopsIsToldSo) {
  const std::string name = Submit(SmallJob(1, 1));
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  auto stream = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  std::thread stop([&] { server_.reset(); });
  Expect(Finish(std::move(stream)), grpc::StatusCode::UNAVAILABLE, "COORDINATOR_DRAINING", {});
  stop.join();
}

TEST_F(ErrorsTest, AJobThatFitsOnNoKnownDeviceIsRefusedAndOneThatFitsOnSomeIsWarnedOf) {
  const auto warned = [&](const std::string& text) {
    return std::any_of(
        created_.warnings().begin(), created_.warnings().end(),
        [&](const std::string& warning) { return warning.find(text) != std::string::npos; });
  };
  // Nothing is known: it may be queued.
  ASSERT_TRUE(Create(SmallJob(2, 1)).ok());
  EXPECT_TRUE(warned("no worker with such a device is known yet"));

  gate_.AllowUpTo(0);
  AddWorker({.device_memory_bytes = 4096});
  const auto num_workers = [&] {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(cluster_->ListWorkers(&context, {}, &response).ok());
    return response.workers_size();
  };
  Eventually([&] { return num_workers() == 1; }, "the small worker is known");
  const grpc::Status refused = Create(SmallJob(2, 1));
  Expect(refused, grpc::StatusCode::RESOURCE_EXHAUSTED, "PLAN_DOES_NOT_FIT", {});
  EXPECT_EQ(Read(refused).info.metadata().at("largest_device_bytes"), "4096");
  EXPECT_NE(refused.error_message().find("remedies: no number of ranks up to 1024 is enough"),
            std::string::npos)
      << refused.error_message();
  grpc::ClientContext context;
  v1::PlanJobRequest request;
  *request.mutable_job() = SmallJob(2, 1);
  v1::PlanJobResponse response;
  Expect(jobs_->PlanJob(&context, request, &response), grpc::StatusCode::RESOURCE_EXHAUSTED,
         "PLAN_DOES_NOT_FIT", {});

  // One of two fits: it may wait for another.
  AddWorker({.device_memory_bytes = std::int64_t{1} << 30});
  Eventually([&] { return num_workers() == 2; }, "the large worker is known");
  ASSERT_TRUE(Create(SmallJob(2, 1)).ok());
  EXPECT_TRUE(warned("which 1 of 2 known devices have"));
  ASSERT_TRUE(Create(SmallJob(1, 1)).ok());
  EXPECT_FALSE(warned("known devices"));
  grpc::ClientContext planned;
  ASSERT_TRUE(jobs_->PlanJob(&planned, request, &response).ok());
  EXPECT_EQ(response.plan().memory_advice().device_memory_bytes(), std::int64_t{1} << 30);
  EXPECT_EQ(response.plan().memory_advice().policies(0).as_is().world_size(), 1);
  // A device of another type says nothing.
  v1::TrainingJob cuda = SmallJob(1, 1);
  cuda.mutable_spec()->mutable_resources()->set_device(v1::DEVICE_TYPE_CUDA);
  ASSERT_TRUE(Create(cuda).ok());
  EXPECT_TRUE(warned("no worker with such a device is known yet"));
}

}  // namespace
}  // namespace fsdp::coordinator
