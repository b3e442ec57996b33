// The gate in front of every method, through a real server: who gets in, what they see, what is
// recorded. The expectations are written down here, apart from the rules that they check.

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "coordinator/rpc/services.h"
#include "coordinator/security/rpc_rules.h"
#include "fsdp/v1/enrollment_service.pb.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "proto/support/access_file.h"
#include "proto/support/access_token.h"
#include "tests/support/generic_call.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using testing::CallAnything;
using ::testing::Contains;
using testing::GenericReply;
using ::testing::HasSubstr;
using ::testing::Not;

// Which of viewer, submitter, operator, admin and worker get in, for another's job.
const std::map<std::string, std::string> kExpected = {
    {"JobService/CreateJob", "soa"},
    {"JobService/GetJob", "vsoa"},
    {"JobService/ListJobs", "vsoa"},
    {"JobService/CancelJob", "oa"},
    {"JobService/SuspendJob", "oa"},
    {"JobService/ResumeJob", "oa"},
    {"JobService/RestartJob", "oa"},
    {"JobService/DeleteJob", "oa"},
    {"JobService/PlanJob", "soa"},
    {"JobService/WatchJob", "vsoa"},
    {"JobService/StreamEvents", "vsoa"},
    {"JobService/StreamLogs", "vsoa"},
    {"JobService/StreamMetrics", "vsoa"},
    {"JobService/ListCheckpoints", "vsoa"},
    {"JobService/ReadCheckpoint", "oa"},
    {"JobService/ProfileJob", "oa"},
    {"JobService/GetProfile", "vsoa"},
    {"JobService/ReadProfile", "vsoa"},
    {"JobService/DumpCollectives", "vsoa"},
    {"ClusterService/ListWorkers", "vsoa"},
    {"ClusterService/GetWorker", "vsoa"},
    {"ClusterService/DrainWorker", "oa"},
    {"ClusterService/UncordonWorker", "oa"},
    {"ClusterService/GetCluster", "vsoa"},
    {"ClusterService/ListQueues", "vsoa"},
    {"ClusterService/GetQueue", "vsoa"},
    {"ClusterService/SetMaintenance", "oa"},
    {"WorkerService/Connect", "w"},
    {"EnrollmentService/CreateJoinToken", "a"},
    {"EnrollmentService/ListJoinTokens", "a"},
    {"EnrollmentService/RevokeJoinToken", "a"},
    // A host that enrols has nothing but its join token, which the method checks itself.
    {"EnrollmentService/EnrollWorker", "vsoaw"},
    {"EnrollmentService/RenewCertificate", "w"},
};

class AccessServiceTest : public ServiceTest {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/fsdp-access-test-XXXXXX";
    files_ = mkdtemp(pattern);
    options_.access_file = files_ + "/access.yaml";
    options_.audit_log = files_ + "/audit.jsonl";
    Add("viewer", {{.role = Role::kViewer, .queues = {}}});
    Add("submitter", {{.role = Role::kSubmitter, .queues = {}}});
    Add("operator", {{.role = Role::kOperator, .queues = {}}});
    Add("admin", {{.role = Role::kAdmin, .queues = {}}});
    Add("worker", {{.role = Role::kWorker, .queues = {}}});
    Add("owner", {{.role = Role::kSubmitter, .queues = {}}});
    Add("researcher", {{.role = Role::kOperator, .queues = {"research"}}});
    Add("late", {{.role = Role::kAdmin, .queues = {}}}, absl::Now() - absl::Seconds(1));
    WriteAccess();
    ServiceTest::SetUp();
    channel_ = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  }
  void TearDown() override {
    ServiceTest::TearDown();
    std::filesystem::remove_all(files_);
  }

  void Add(const std::string& name, std::vector<Grant> grants,
           absl::Time expires = absl::InfiniteFuture()) {
    tokens_[name] = NewToken();
    entries_[name] = {.name = name,
                      .token_sha256 = TokenHash(tokens_[name]),
                      .certificate = "",
                      .expires = expires,
                      .grants = std::move(grants)};
  }
  void WriteAccess() const {
    std::string text = "identities:\n";
    for (const auto& [name, entry] : entries_) text += RenderAccessEntry(entry);
    std::ofstream(options_.access_file) << text;
  }
  std::string Bearer(const std::string& name) { return "Bearer " + tokens_.at(name); }

  GenericReply Call(const std::string& method, const google::protobuf::Message& request,
                    const std::string& who) {
    return CallAnything(channel_, "/fsdp.v1." + method, request.SerializeAsString(),
                        who.empty() ? "" : Bearer(who));
  }

  std::string Create(const std::string& who, const std::string& queue) {
    v1::CreateJobRequest request;
    *request.mutable_job() = SmallJob(1, 1);
    request.mutable_job()->mutable_spec()->set_queue(queue);
    const GenericReply reply = Call("JobService/CreateJob", request, who);
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
    v1::CreateJobResponse response;
    EXPECT_TRUE(!reply.messages.empty() && response.ParseFromString(reply.messages[0]));
    return response.job().name();
  }

  // A request of the method about this job, in this queue.
  static std::unique_ptr<google::protobuf::Message> RequestOf(
      const google::protobuf::MethodDescriptor& method, const std::string& job) {
    const auto* prototype =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(method.input_type());
    auto request = std::unique_ptr<google::protobuf::Message>(prototype->New());
    if (const auto* name = method.input_type()->FindFieldByName("name")) {
      const bool worker = method.service()->name() == "ClusterService";
      request->GetReflection()->SetString(request.get(), name, worker ? "workers/none" : job);
    }
    if (const auto* spec = method.input_type()->FindFieldByName("job")) {
      request->GetReflection()->MutableMessage(request.get(), spec)->CopyFrom(SmallJob(1, 1));
    }
    return request;
  }

  std::vector<nlohmann::json> Audit() const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(options_.audit_log);
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  std::string files_;
  std::map<std::string, std::string> tokens_;
  std::map<std::string, AccessEntry> entries_;
  std::shared_ptr<grpc::Channel> channel_;
};

bool GotIn(const grpc::Status& status) {
  return status.error_code() != grpc::StatusCode::UNAUTHENTICATED &&
         status.error_code() != grpc::StatusCode::PERMISSION_DENIED;
}

TEST_F(AccessServiceTest, EveryMethodHasARuleAndAnExpectation) {
  std::set<std::string> served;
  for (const auto* service : OurServices()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string method = absl::StrCat(service->name(), "/", service->method(i)->name());
      served.insert(method);
      const RpcRule* rule = FindRpcRule("fsdp.v1." + method);
      ASSERT_NE(rule, nullptr) << method << ": add its rule to coordinator/security/rpc_rules.cc";
      EXPECT_TRUE(kExpected.contains(method)) << method << ": who may call it?";
      const auto* request = service->method(i)->input_type();
      if (rule->reach == Reach::kSeeJob || rule->reach == Reach::kChangeJob) {
        EXPECT_NE(request->FindFieldByName("name"), nullptr) << method;
      }
      if (rule->reach == Reach::kNewJob) {
        ASSERT_NE(request->FindFieldByName("job"), nullptr) << method;
        EXPECT_EQ(request->FindFieldByName("job")->message_type(), v1::TrainingJob::descriptor());
      }
    }
  }
  for (const auto& [method, roles] : kExpected) EXPECT_TRUE(served.contains(method)) << method;
  // Every rule is of a method that is served.
  for (const RpcRule& rule : RpcRules()) {
    if (rule.method.starts_with("grpc.")) continue;
    EXPECT_TRUE(served.contains(std::string(rule.method.substr(8)))) << rule.method;
  }
}

TEST_F(AccessServiceTest, EveryServiceOnTheWireIsCovered) {
  for (const auto* service : OurServices()) {
    EXPECT_EQ(service->file()->package(), "fsdp.v1");
  }
  // A service of the package that is linked in but not in the list would be served without rules.
  std::set<std::string> ours;
  for (const auto* service : OurServices()) ours.insert(service->full_name());
  std::set<const google::protobuf::FileDescriptor*> files;
  for (const auto* service : OurServices()) files.insert(service->file());
  for (const auto* file : files) {
    for (int i = 0; i < file->service_count(); ++i) {
      EXPECT_TRUE(ours.contains(file->service(i)->full_name())) << file->service(i)->full_name();
    }
  }
}

TEST_F(AccessServiceTest, EachRoleGetsIntoItsMethodsAndNoOthers) {
  const std::vector<std::pair<char, std::string>> roles = {
      {'v', "viewer"}, {'w', "worker"}, {'s', "submitter"}, {'o', "operator"}, {'a', "admin"}};
  int calls = 0;
  for (const auto* service : OurServices()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string method = absl::StrCat(service->name(), "/", service->method(i)->name());
      const std::string job = Create("owner", "research");
      const auto request = RequestOf(*service->method(i), job);
      const bool open = FindRpcRule("fsdp.v1." + method)->reach == Reach::kOpen;
      EXPECT_EQ(open, method == "EnrollmentService/EnrollWorker");
      for (const std::string nobody : {"", "late"}) {
        if (open) continue;
        EXPECT_EQ(Call(method, *request, nobody).status.error_code(),
                  grpc::StatusCode::UNAUTHENTICATED)
            << method << " " << nobody;
      }
      for (const auto& [letter, who] : roles) {
        const bool expected = kExpected.at(method).find(letter) != std::string::npos;
        const grpc::Status status = Call(method, *request, who).status;
        EXPECT_EQ(GotIn(status), expected) << method << " by " << who << ": " << status.error_code()
                                           << " " << status.error_message();
        if (!expected) {
          EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << method;
          EXPECT_THAT(status.error_message(), HasSubstr(who + " may not ")) << method;
        }
        ++calls;
      }
    }
  }
  EXPECT_GE(calls, 125);
}

TEST_F(AccessServiceTest, WrongTokensAreRefusedWithoutBeingRepeated) {
  const v1::ListJobsRequest request;
  for (const std::string& text :
       {"Bearer " + NewToken(), std::string("Basic YTpi"), std::string("Bearer x"),
        "Bearer " + tokens_["admin"] + "x", std::string(3000, 'y')}) {
    const GenericReply reply =
        CallAnything(channel_, "/fsdp.v1.JobService/ListJobs", request.SerializeAsString(), text);
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << text;
    EXPECT_THAT(reply.status.error_message(), Not(HasSubstr(text.substr(text.find(' ') + 1))));
    EXPECT_THAT(reply.status.error_details(), Not(HasSubstr(tokens_["admin"])));
  }
}

TEST_F(AccessServiceTest, TwoTokensAtOnceAreNone) {
  const GenericReply reply = CallAnything(channel_, "/fsdp.v1.JobService/ListJobs", "",
                                          Bearer("admin"), {{"authorization", Bearer("viewer")}});
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessServiceTest, OthersQueuesAreNotThere) {
  const std::string research = Create("owner", "research");
  const std::string secret = Create("owner", "secret");
  v1::GetJobRequest get;
  get.set_name(research);
  EXPECT_TRUE(Call("JobService/GetJob", get, "researcher").status.ok());
  get.set_name(secret);
  const GenericReply hidden = Call("JobService/GetJob", get, "researcher");
  EXPECT_EQ(hidden.status.error_code(), grpc::StatusCode::NOT_FOUND);
  get.set_name("jobs/none-aaaaaaaa");
  const GenericReply none = Call("JobService/GetJob", get, "researcher");
  EXPECT_EQ(none.status.error_code(), grpc::StatusCode::NOT_FOUND);
  // Apart from the names the answers do not differ.
  EXPECT_EQ(hidden.status.error_message(), "there is no job '" + secret.substr(5) + "'");
  EXPECT_EQ(none.status.error_message(), "there is no job 'none-aaaaaaaa'");

  v1::ListJobsResponse listed;
  const GenericReply list = Call("JobService/ListJobs", v1::ListJobsRequest(), "researcher");
  ASSERT_TRUE(list.status.ok());
  ASSERT_TRUE(listed.ParseFromString(list.messages[0]));
  ASSERT_EQ(listed.jobs_size(), 1);
  EXPECT_EQ(listed.jobs(0).name(), research);

  v1::WatchJobRequest watch;
  watch.set_name(secret);
  EXPECT_EQ(Call("JobService/WatchJob", watch, "researcher").status.error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(AccessServiceTest, AJobBelongsToWhoSubmittedIt) {
  const std::string name = Create("owner", "research");
  v1::CancelJobRequest cancel;
  cancel.set_name(name);
  const GenericReply denied = Call("JobService/CancelJob", cancel, "submitter");
  EXPECT_EQ(denied.status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(denied.status.error_message(), HasSubstr("its owner, owner"));
  const GenericReply done = Call("JobService/CancelJob", cancel, "owner");
  ASSERT_TRUE(done.status.ok()) << done.status.error_message();
  v1::CancelJobResponse response;
  ASSERT_TRUE(response.ParseFromString(done.messages[0]));
  EXPECT_EQ(response.job().owner(), "owner");
}

TEST_F(AccessServiceTest, ARequestIdIsItsOwnersAlone) {
  v1::CreateJobRequest request;
  *request.mutable_job() = SmallJob(1, 1);
  request.set_request_id("the-same");
  std::set<std::string> names;
  for (const char* who : {"owner", "submitter", "owner"}) {
    const GenericReply reply = Call("JobService/CreateJob", request, who);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    v1::CreateJobResponse response;
    ASSERT_TRUE(response.ParseFromString(reply.messages[0]));
    EXPECT_EQ(response.job().owner(), who);
    names.insert(response.job().name());
  }
  EXPECT_EQ(names.size(), 2u);
}

TEST_F(AccessServiceTest, ARevokedTokenEndsItsStreams) {
  const std::string name = Create("owner", "research");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.AddMetadata("authorization", Bearer("viewer"));
  v1::WatchJobRequest request;
  request.set_name(name);
  auto stream = v1::JobService::NewStub(channel_)->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  entries_.erase("viewer");
  WriteAccess();
  server_->Reload();
  v1::CancelJobRequest cancel;
  cancel.set_name(name);
  ASSERT_TRUE(Call("JobService/CancelJob", cancel, "owner").status.ok());
  // Nothing of the change is sent any more.
  EXPECT_FALSE(stream->Read(&response)) << response.job().state();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessServiceTest, AChangedAccessFileCountsWithoutASignal) {
  Add("fresh", {{.role = Role::kViewer, .queues = {}}});
  EXPECT_FALSE(Call("JobService/ListJobs", v1::ListJobsRequest(), "fresh").status.ok());
  WriteAccess();
  Eventually(
      [&] { return Call("JobService/ListJobs", v1::ListJobsRequest(), "fresh").status.ok(); },
      "the new token to count");
}

TEST_F(AccessServiceTest, WhatChangesSomethingOrIsDeniedIsRecorded) {
  const std::string name = Create("owner", "research");
  v1::CancelJobRequest cancel;
  cancel.set_name(name);
  Call("JobService/CancelJob", cancel, "submitter");
  Call("JobService/CancelJob", cancel, "owner");
  Call("JobService/ListJobs", v1::ListJobsRequest(), "viewer");
  Call("JobService/ListJobs", v1::ListJobsRequest(), "");
  Eventually([&] { return Audit().size() >= 4; }, "four lines");
  const auto lines = Audit();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["method"], "JobService.CreateJob");
  EXPECT_EQ(lines[0]["resource"], name);
  EXPECT_EQ(lines[0]["code"], "OK");
  EXPECT_EQ(lines[1]["code"], "PERMISSION_DENIED");
  EXPECT_EQ(lines[1]["reason"], "NOT_OWNER");
  EXPECT_EQ(lines[1]["subject"], "submitter");
  EXPECT_EQ(lines[2]["subject"], "owner");
  EXPECT_EQ(lines[2]["code"], "OK");
  EXPECT_EQ(lines[3]["code"], "UNAUTHENTICATED");
  EXPECT_EQ(lines[3]["subject"], "");
  std::set<std::string> ids;
  std::string text;
  for (const auto& line : lines) {
    EXPECT_TRUE(line["peer"].get<std::string>().starts_with("ipv4:127.0.0.1:"));
    EXPECT_GE(line["latency_seconds"].get<double>(), 0);
    ids.insert(line["id"].get<std::string>());
    text += line.dump();
  }
  EXPECT_EQ(ids.size(), 4u);
  for (const auto& [who, token] : tokens_) EXPECT_THAT(text, Not(HasSubstr(token)));
  EXPECT_EQ(server_->counters().Value("fsdp_rpc_denied_total", "not_owner"), 1);
  EXPECT_EQ(server_->counters().Value("fsdp_rpc_denied_total", "token_missing"), 1);
}

TEST_F(AccessServiceTest, UnknownCallersCannotFillTheAuditLog) {
  for (int i = 0; i < 400; ++i) Call("JobService/ListJobs", v1::ListJobsRequest(), "");
  EXPECT_EQ(server_->counters().Value("fsdp_rpc_denied_total", "token_missing"), 400);
  // 50 at once, and five a second; machines differ in how long 400 calls take.
  EXPECT_LT(Audit().size(), 400u);
}

TEST_F(AccessServiceTest, RefusedEnrolmentsCannotFillTheAuditLog) {
  v1::EnrollWorkerRequest request;
  request.set_token("a guess");
  for (int i = 0; i < 400; ++i) Call("EnrollmentService/EnrollWorker", request, "");
  // 50 at once, and five a second.
  const std::size_t lines = Audit().size();
  EXPECT_GE(lines, 50u);
  EXPECT_LT(lines, 400u);
  // What changes something finds room all the same, and is written.
  const std::string job = Create("owner", "research");
  EXPECT_EQ(Audit().back()["resource"], job);
  // A line that comes later tells how many were left out.
  std::int64_t suppressed = 0;
  for (int i = 0; i < 200 && suppressed == 0; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
    Call("EnrollmentService/EnrollWorker", request, "");
    suppressed = Audit().back().value("suppressed", std::int64_t{0});
  }
  EXPECT_GE(suppressed, 1);
}

TEST_F(AccessServiceTest, HealthAnswersWithoutAToken) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(
      grpc::health::v1::Health::NewStub(channel_)->Check(&context, request, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_F(AccessServiceTest, ThereIsNoReflection) {
  const GenericReply reply = CallAnything(
      channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "", "");
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(AccessServiceTest, AWorkerNeedsItsRole) {
  v1::ConnectRequest hello;
  const GenericReply admin = Call("WorkerService/Connect", hello, "admin");
  EXPECT_EQ(admin.status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const GenericReply worker = Call("WorkerService/Connect", hello, "worker");
  EXPECT_EQ(worker.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION)
      << worker.status.error_message();
}

// --- Limits

class LimitedServiceTest : public AccessServiceTest {
 protected:
  void SetUp() override {
    options_.limits = {.requests_per_second = 0.001,
                       .burst = 40,
                       .streams = 3,
                       .spec_bytes = 2000,
                       .hello_timeout = absl::Milliseconds(50)};
    AccessServiceTest::SetUp();
  }
};

TEST_F(LimitedServiceTest, WhoAsksTooMuchIsToldWhenToTryAgain) {
  GenericReply reply;
  for (int i = 0; i < 41; ++i) {
    reply = Call("JobService/ListJobs", v1::ListJobsRequest(), "viewer");
  }
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(reply.status.error_message(), HasSubstr("viewer sends more than 0.001 requests"));
  EXPECT_THAT(reply.status.error_details(), HasSubstr("google.rpc.RetryInfo"));
  // Others are not held up.
  EXPECT_TRUE(Call("JobService/ListJobs", v1::ListJobsRequest(), "admin").status.ok());
}

TEST_F(LimitedServiceTest, LargeSpecsAreRefused) {
  v1::CreateJobRequest request;
  *request.mutable_job() = SmallJob(1, 1);
  for (int i = 0; i < 30; ++i) {
    (*request.mutable_job()->mutable_metadata()->mutable_labels())[absl::StrCat("k", i)] =
        std::string(63, 'x');
  }
  const GenericReply reply = Call("JobService/CreateJob", request, "submitter");
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(reply.status.error_message(), HasSubstr("the limit is 2000"));
}

TEST_F(LimitedServiceTest, OpenStreamsAreCountedAndGivenBack) {
  const std::string name = Create("owner", "research");
  const auto stub = v1::JobService::NewStub(channel_);
  v1::WatchJobRequest request;
  request.set_name(name);
  v1::WatchJobResponse response;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>>> streams;
  const auto open = [&] {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->AddMetadata("authorization", Bearer("viewer"));
    streams.push_back(stub->WatchJob(contexts.back().get(), request));
    return streams.back()->Read(&response);
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(open());
  EXPECT_FALSE(open());
  EXPECT_EQ(streams.back()->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (int i = 0; i < 3; ++i) contexts[i]->TryCancel();
  for (int i = 0; i < 3; ++i) {
    while (streams[i]->Read(&response)) {
    }
    streams[i]->Finish();
  }
  Eventually(open, "a place to be free again");
  contexts.back()->TryCancel();
  while (streams.back()->Read(&response)) {
  }
  streams.back()->Finish();
}

TEST_F(LimitedServiceTest, AWorkerThatSaysNothingIsCutOff) {
  grpc::ClientContext context;
  context.AddMetadata("authorization", Bearer("worker"));
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  auto stream = v1::WorkerService::NewStub(channel_)->Connect(&context);
  v1::ConnectResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("must say hello within 50ms"));
}

// --- A disk without room for the audit log

class FullAuditTest : public AccessServiceTest {
 protected:
  void SetUp() override {
    AccessServiceTest::SetUp();
    // Takes no byte: the next line fails.
    std::filesystem::remove(options_.audit_log);
    std::filesystem::create_symlink("/dev/full", options_.audit_log);
    server_->Reload();
  }
};

TEST_F(FullAuditTest, ChangesAreRefusedAndTheRestGoesOn) {
  // Its outcome cannot be written any more; everything after it is refused.
  const std::string name = Create("owner", "research");
  v1::CreateJobRequest request;
  *request.mutable_job() = SmallJob(1, 1);
  const GenericReply refused = Call("JobService/CreateJob", request, "owner");
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("No space left on device"));
  EXPECT_TRUE(Call("JobService/ListJobs", v1::ListJobsRequest(), "viewer").status.ok());
  EXPECT_GE(server_->counters().Value("fsdp_audit_errors_total"), 1);

  std::filesystem::remove(options_.audit_log);
  server_->Reload();
  EXPECT_TRUE(Call("JobService/CreateJob", request, "owner").status.ok());
  // The job of the first call is on record after all, and the one that was refused made none.
  Eventually([&] { return Audit().size() >= 2; }, "two lines");
  EXPECT_EQ(Audit()[0]["resource"], name);
  v1::ListJobsResponse listed;
  const GenericReply list = Call("JobService/ListJobs", v1::ListJobsRequest(), "viewer");
  ASSERT_TRUE(listed.ParseFromString(list.messages[0]));
  EXPECT_EQ(listed.jobs_size(), 2);
}

// --- Paths

class PathServiceTest : public AccessServiceTest {
 protected:
  void SetUp() override {
    options_.allowed_paths = {"/data", "/tmp/fsdp-test-checkpoints"};
    AccessServiceTest::SetUp();
  }
};

TEST_F(PathServiceTest, PathsOutsideTheRootsAreRefusedAllAtOnce) {
  v1::CreateJobRequest request;
  *request.mutable_job() = SmallJob(1, 1);
  v1::JobSpec& spec = *request.mutable_job()->mutable_spec();
  spec.mutable_model()->set_init_from("/data/../etc");
  spec.mutable_checkpoint()->set_resume_from("/home/mallory/step-1");
  (*spec.mutable_env())["NCCL_DEBUG_FILE"] = "/etc/cron.d/nccl";
  const GenericReply reply = Call("JobService/CreateJob", request, "admin");
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  for (const char* field :
       {"spec.model.initFrom", "spec.checkpoint.resumeFrom", "NCCL_DEBUG_FILE"}) {
    EXPECT_THAT(reply.status.error_details(), HasSubstr(field));
  }
  EXPECT_THAT(reply.status.error_details(), HasSubstr("PATH_FORBIDDEN"));
  EXPECT_THAT(reply.status.error_details(), HasSubstr("/data or /tmp/fsdp-test-checkpoints"));
}

TEST_F(PathServiceTest, ATaskOfAnArrayIsNoWayOut) {
  v1::CreateJobRequest request;
  *request.mutable_job() = SmallJob(1, 1);
  v1::ArraySpec& array = *request.mutable_job()->mutable_spec()->mutable_array();
  array.set_count(3);
  array.add_set("model.configPath=/etc/{where}");
  v1::ArrayParameter& parameter = *array.add_parameters();
  parameter.set_name("where");
  for (const char* value : {"passwd", "shadow", "shadow"}) parameter.add_values(value);
  const GenericReply reply = Call("JobService/CreateJob", request, "admin");
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(reply.status.error_details(), HasSubstr("PATH_FORBIDDEN"));
  for (const char* path : {"/etc/passwd", "/etc/shadow"}) {
    EXPECT_THAT(reply.status.error_details(), HasSubstr(path));
  }
}

}  // namespace
}  // namespace fsdp::coordinator
