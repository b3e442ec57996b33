// A disk that takes nothing more: every call that writes says so, nothing is half there, and the
// coordinator goes on from the disk once it is well.

#include <sys/resource.h>

#include <csignal>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using ::testing::HasSubstr;

// While it lives no file of this process grows. Its failures are those of a broken disk; a full one
// is tried in tests/fault.
class FrozenFiles {
 public:
  FrozenFiles() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit none = before_;
    none.rlim_cur = 1;
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FrozenFiles() { setrlimit(RLIMIT_FSIZE, &before_); }
  FrozenFiles(const FrozenFiles&) = delete;
  FrozenFiles& operator=(const FrozenFiles&) = delete;

 private:
  rlimit before_{};
};

class StoreFailureTest : public ServiceTest {
 protected:
  using Jobs = v1::JobService::Stub;
  using Cluster = v1::ClusterService::Stub;

  template <typename Service, typename Request, typename Response>
  grpc::Status Call(Service& service,
                    grpc::Status (Service::*method)(grpc::ClientContext*, const Request&,
                                                    Response*),
                    const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    Response response;
    return (service.*method)(&context, request, &response);
  }
  template <typename Service, typename Request, typename Response>
  grpc::Status Call(Service& service,
                    grpc::Status (Service::*method)(grpc::ClientContext*, const Request&,
                                                    Response*),
                    const std::string& name) {
    Request request;
    request.set_name(name);
    return Call(service, method, request);
  }
  grpc::Status Create(const std::string& request_id) {
    v1::CreateJobRequest request;
    *request.mutable_job() = SmallJob(1, 1);
    request.set_request_id(request_id);
    return Call(*jobs_, &Jobs::CreateJob, request);
  }
  int NumJobs() {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(&context, v1::ListJobsRequest(), &response).ok());
    return response.jobs_size();
  }

  void ExpectStoreFailed(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_THAT(status.error_message(),
                ::testing::AllOf(HasSubstr("the store failed"), HasSubstr(directory_ + "/jobs.db"),
                                 HasSubstr("start the coordinator again")));
    google::rpc::Status details;
    EXPECT_TRUE(details.ParseFromString(status.error_details()));
    google::rpc::ErrorInfo info;
    for (const auto& detail : details.details()) detail.UnpackTo(&info);
    EXPECT_EQ(info.reason(), "STORE_FAILED");
    EXPECT_EQ(info.metadata().at("state_dir"), directory_);
  }
};

// Each as the first call that meets the failure, and as one that comes after it.
TEST_F(StoreFailureTest, EveryCallThatWritesSaysSo) {
  AddWorker({});
  Eventually([&] { return !server_->coordinator().ListWorkers().empty(); }, "the worker");
  workers_.clear();
  std::vector<std::function<grpc::Status()>> calls = {
      [&] { return Create("0a1b2c3d-0000-4000-8000-000000000001"); },
      [&] { return Call(*cluster_, &Cluster::DrainWorker, std::string("workers/w0")); },
      [&] { return Call(*cluster_, &Cluster::UncordonWorker, std::string("workers/w0")); },
  };
  // For more ranks than there ever was: the worker may be seen to be gone only after this.
  const std::string queued = Submit(SmallJob(2, 1));
  const std::string suspended = Submit(SmallJob(1, 1));
  ASSERT_TRUE(Call(*jobs_, &Jobs::SuspendJob, suspended).ok());
  const std::string cancelled = Submit(SmallJob(1, 1));
  ASSERT_TRUE(Call(*jobs_, &Jobs::CancelJob, cancelled).ok());
  calls.emplace_back([&] { return Call(*jobs_, &Jobs::SuspendJob, queued); });
  calls.emplace_back([&] { return Call(*jobs_, &Jobs::CancelJob, queued); });
  calls.emplace_back([&] { return Call(*jobs_, &Jobs::ResumeJob, suspended); });
  calls.emplace_back([&] { return Call(*jobs_, &Jobs::RestartJob, cancelled); });
  calls.emplace_back([&] { return Call(*jobs_, &Jobs::DeleteJob, cancelled); });
  options_.drain_timeout = absl::Milliseconds(50);
  for (std::size_t first = 0; first < calls.size(); ++first) {
    SCOPED_TRACE(first);
    server_.reset();
    StartServer();
    const FrozenFiles frozen;
    ExpectStoreFailed(calls[first]());
    for (const auto& call : calls) ExpectStoreFailed(call());
    EXPECT_EQ(NumJobs(), 3) << "reading goes on";
    EXPECT_EQ(server_->counters().Value("fsdp_store_errors_total"), 1);
  }
  // Nothing of all that has happened.
  server_.reset();
  StartServer();
  EXPECT_EQ(NumJobs(), 3);
  EXPECT_EQ(Get(queued).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get(suspended).state(), v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(Get(cancelled).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(Create("0a1b2c3d-0000-4000-8000-000000000001").ok());
  EXPECT_EQ(NumJobs(), 4);
}

// By itself gRPC cancels what meets a server that closes, without a word of why.
TEST_F(StoreFailureTest, CallsAreStillAnsweredWhileItEnds) {
  options_.drain_timeout = absl::Seconds(20);
  server_.reset();
  StartServer();
  const FrozenFiles frozen;
  ExpectStoreFailed(Create(""));
  std::thread drain([&] { server_->Drain(); });
  // As many as there is time for, at least these.
  for (int i = 0; i < 10; ++i) ExpectStoreFailed(Create(""));
  drain.join();
}

}  // namespace
}  // namespace fsdp::coordinator
