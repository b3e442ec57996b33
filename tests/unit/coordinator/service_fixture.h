#ifndef FSDPCTL_TESTS_UNIT_COORDINATOR_SERVICE_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_COORDINATOR_SERVICE_FIXTURE_H_

// A whole coordinator on port 0 with fake workers, for tests through real gRPC.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/config/options.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/rpc/server.h"
#include "fsdp/v1/cluster_service.grpc.pb.h"
#include "fsdp/v1/job_service.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/support/log.h"
#include "tests/fakes/fake_worker.h"

namespace fsdp::coordinator {

inline v1::TrainingJob SmallJob(int ranks, std::int64_t steps) {
  v1::TrainingJob job;
  job.set_api_version("fsdp.v1");
  job.set_kind("TrainingJob");
  job.mutable_metadata()->set_name("tiny");
  v1::JobSpec& spec = *job.mutable_spec();
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_LLAMA);
  spec.mutable_model()->set_vocab_size(256);
  spec.mutable_model()->set_dim(32);
  spec.mutable_model()->set_num_layers(2);
  spec.mutable_model()->set_num_heads(4);
  spec.mutable_model()->set_mlp_dim(64);
  spec.mutable_data()->set_source(v1::DATA_SOURCE_SYNTHETIC);
  spec.mutable_data()->set_sequence_length(16);
  spec.mutable_train()->set_global_batch(4);
  spec.mutable_checkpoint()->set_dir("/tmp/fsdp-test-checkpoints");
  spec.mutable_resources()->set_devices_per_node(ranks);
  spec.mutable_limits()->set_max_steps(steps);
  return job;
}

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    char pattern[] = "/tmp/fsdp-coordinator-test-XXXXXX";
    directory_ = mkdtemp(pattern);
    options_.listen = "127.0.0.1:0";
    options_.metrics_listen = "";
    options_.state_dir = directory_;
    options_.drain_timeout = absl::Milliseconds(500);
    options_.timing.tick_period = absl::Milliseconds(5);
    options_.timing.stream_grace = absl::Milliseconds(150);
    options_.timing.idle_release_after = absl::Milliseconds(100);
    options_.timing.progress_publish_period = absl::Milliseconds(5);
    StartServer();
  }

  void TearDown() override {
    gate_.Open();
    workers_.clear();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void StartServer() {
    auto server = Server::Start(options_, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect();
  }

  void Connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto channel =
        grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
    jobs_ = v1::JobService::NewStub(channel);
    cluster_ = v1::ClusterService::NewStub(channel);
  }

  [[nodiscard]] std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }

  testing::FakeWorker& AddWorker(testing::FakeWorkerOptions options = {}) {
    const int index = static_cast<int>(workers_.size());
    options.name = absl::StrCat("w", index);
    options.index = index;
    workers_.push_back(
        std::make_unique<testing::FakeWorker>(address(), std::move(options), &gate_));
    workers_.back()->Connect();
    return *workers_.back();
  }
  void AddWorkers(int count, const testing::FakeWorkerOptions& options = {}) {
    for (int i = 0; i < count; ++i) AddWorker(options);
  }

  std::string Submit(const v1::TrainingJob& job) {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    *request.mutable_job() = job;
    v1::CreateJobResponse response;
    const grpc::Status status = jobs_->CreateJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().name();
  }

  v1::Job Get(const std::string& name) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name(name);
    v1::GetJobResponse response;
    const grpc::Status status = jobs_->GetJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }

  // Follows the job until `accept`, or fails after 20 s.
  v1::Job WaitForJob(const std::string& name, const std::function<bool(const v1::Job&)>& accept) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::WatchJobRequest request;
    request.set_name(name);
    auto stream = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse response;
    while (stream->Read(&response)) {
      if (!accept(response.job())) continue;
      v1::Job job = response.job();
      context.TryCancel();
      while (stream->Read(&response)) {
      }
      stream->Finish();
      return job;
    }
    const grpc::Status status = stream->Finish();
    ADD_FAILURE() << "the job never got there: " << StateName(response.job().state()) << " "
                  << response.job().reason() << "; " << status.error_message();
    return response.job();
  }

  v1::Job WaitForState(const std::string& name, v1::JobState state) {
    return WaitForJob(name, [state](const v1::Job& job) { return job.state() == state; });
  }
  v1::Job WaitForStep(const std::string& name, std::int64_t step) {
    return WaitForJob(name, [step](const v1::Job& job) { return job.progress().step() >= step; });
  }

  // For what no stream tells: polls, fails after 10 s.
  void Eventually(const std::function<bool()>& condition, const std::string& what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  std::vector<v1::JobEvent> Events(const std::string& name) {
    grpc::ClientContext context;
    v1::StreamEventsRequest request;
    request.set_name(name);
    auto stream = jobs_->StreamEvents(&context, request);
    std::vector<v1::JobEvent> events;
    v1::StreamEventsResponse response;
    while (stream->Read(&response)) {
      events.insert(events.end(), response.events().begin(), response.events().end());
    }
    EXPECT_TRUE(stream->Finish().ok());
    return events;
  }

  bool HasEvent(const std::string& name, const std::string& type) {
    for (const v1::JobEvent& event : Events(name)) {
      if (event.type() == type) return true;
    }
    return false;
  }

  std::vector<v1::StepMetrics> Metrics(const std::string& name, std::int64_t after = 0) {
    grpc::ClientContext context;
    v1::StreamMetricsRequest request;
    request.set_name(name);
    request.set_after_offset(after);
    auto stream = jobs_->StreamMetrics(&context, request);
    std::vector<v1::StepMetrics> metrics;
    v1::StreamMetricsResponse response;
    while (stream->Read(&response)) {
      metrics.insert(metrics.end(), response.metrics().begin(), response.metrics().end());
    }
    EXPECT_TRUE(stream->Finish().ok());
    return metrics;
  }

  Options options_;
  std::string directory_;
  testing::StepGate gate_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
  std::vector<std::unique_ptr<testing::FakeWorker>> workers_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_TESTS_UNIT_COORDINATOR_SERVICE_FIXTURE_H_
