#include "client/client.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "fsdp/v1/cluster_service.grpc.pb.h"
#include "fsdp/v1/enrollment_service.grpc.pb.h"
#include "fsdp/v1/job_service.grpc.pb.h"
#include "proto/support/access_token.h"
#include "proto/support/address_list.h"
#include "proto/support/status.h"
#include "proto/support/tls/grpc_credentials.h"

namespace fsdp {
namespace {

using JobStub = v1::JobService::StubInterface;
using ClusterStub = v1::ClusterService::StubInterface;
using EnrollmentStub = v1::EnrollmentService::StubInterface;

constexpr int kPageSize = 500;

absl::Status CheckToken(const ClientOptions& options) {
  if (options.token_file.empty()) return absl::OkStatus();
  if (const auto token = ReadTokenFile(options.token_file); !token.ok()) {
    return absl::InvalidArgumentError(token.status().message());
  }
  const bool private_way = AllLoopback(options.server) || !options.tls.empty();
  if (private_way || options.allow_plaintext_token) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the token of ", options.token_file, " would travel in the clear to ", options.server,
      ": use TLS (--tls-ca), or accept that with --allow-plaintext-token"));
}

class GrpcClient final : public Client {
 public:
  GrpcClient(ClientOptions options, std::shared_ptr<grpc::ChannelCredentials> credentials)
      : connection_(std::move(options), std::move(credentials)),
        jobs_(connection_.MakeStubs<v1::JobService>()),
        cluster_(connection_.MakeStubs<v1::ClusterService>()),
        enrollment_(connection_.MakeStubs<v1::EnrollmentService>()) {}

  const std::string& server() const override { return connection_.options().server; }

  absl::StatusOr<v1::CreateJobResponse> CreateJob(v1::CreateJobRequest request) override {
    if (request.request_id().empty()) request.set_request_id(NewRequestId());
    return connection_.Call(jobs_, &JobStub::CreateJob, request, true);
  }

  absl::StatusOr<v1::Job> GetJob(const std::string& job) override {
    v1::GetJobRequest request;
    request.set_name(JobName(job));
    return JobOf(connection_.Call(jobs_, &JobStub::GetJob, request, true));
  }

  absl::StatusOr<std::vector<v1::Job>> ListJobs(v1::ListJobsRequest filter, int limit) override {
    std::vector<v1::Job> jobs;
    do {
      const int missing = limit == 0 ? kPageSize : limit - static_cast<int>(jobs.size());
      filter.set_page_size(std::min(missing, kPageSize));
      ASSIGN_OR_RETURN(v1::ListJobsResponse page,
                       connection_.Call(jobs_, &JobStub::ListJobs, filter, true));
      for (auto& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
      filter.set_page_token(page.next_page_token());
    } while (!filter.page_token().empty() && (limit == 0 || static_cast<int>(jobs.size()) < limit));
    return jobs;
  }

  absl::StatusOr<v1::Job> CancelJob(const std::string& job, const std::string& reason) override {
    v1::CancelJobRequest request;
    request.set_name(JobName(job));
    request.set_reason(reason);
    return JobOf(connection_.Call(jobs_, &JobStub::CancelJob, request, true));
  }

  absl::StatusOr<v1::SuspendJobResponse> SuspendJob(const std::string& job,
                                                    const std::string& reason) override {
    v1::SuspendJobRequest request;
    request.set_name(JobName(job));
    request.set_reason(reason);
    return connection_.Call(jobs_, &JobStub::SuspendJob, request, false);
  }

  absl::StatusOr<v1::Job> ResumeJob(const std::string& job) override {
    v1::ResumeJobRequest request;
    request.set_name(JobName(job));
    return JobOf(connection_.Call(jobs_, &JobStub::ResumeJob, request, false));
  }

  absl::StatusOr<v1::RestartJobResponse> RestartJob(const std::string& job,
                                                    const std::string& reason) override {
    v1::RestartJobRequest request;
    request.set_name(JobName(job));
    request.set_reason(reason);
    return connection_.Call(jobs_, &JobStub::RestartJob, request, false);
  }

  absl::Status DeleteJob(const std::string& job) override {
    v1::DeleteJobRequest request;
    request.set_name(JobName(job));
    return connection_.Call(jobs_, &JobStub::DeleteJob, request, false).status();
  }

  absl::StatusOr<v1::Plan> PlanJob(const v1::TrainingJob& job) override {
    v1::PlanJobRequest request;
    *request.mutable_job() = job;
    ASSIGN_OR_RETURN(v1::PlanJobResponse response,
                     connection_.Call(jobs_, &JobStub::PlanJob, request, true));
    return std::move(*response.mutable_plan());
  }

  absl::StatusOr<std::vector<v1::CheckpointInfo>> ListCheckpoints(const std::string& job) override {
    v1::ListCheckpointsRequest request;
    request.set_name(JobName(job));
    std::vector<v1::CheckpointInfo> checkpoints;
    do {
      ASSIGN_OR_RETURN(v1::ListCheckpointsResponse page,
                       connection_.Call(jobs_, &JobStub::ListCheckpoints, request, true));
      for (auto& one : *page.mutable_checkpoints()) checkpoints.push_back(std::move(one));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return checkpoints;
  }

  absl::StatusOr<v1::ReadCheckpointResponse> ReadCheckpoint(
      const v1::ReadCheckpointRequest& request) override {
    return connection_.Call(jobs_, &JobStub::ReadCheckpoint, request, true);
  }

  absl::StatusOr<v1::ProfileJobResponse> ProfileJob(const v1::ProfileJobRequest& request) override {
    return connection_.Call(jobs_, &JobStub::ProfileJob, request, false);
  }

  absl::StatusOr<v1::GetProfileResponse> GetProfile(const std::string& job,
                                                    const std::string& profile) override {
    v1::GetProfileRequest request;
    request.set_name(JobName(job));
    request.set_profile(profile);
    return connection_.Call(jobs_, &JobStub::GetProfile, request, true);
  }

  absl::StatusOr<v1::ReadProfileResponse> ReadProfile(
      const v1::ReadProfileRequest& request) override {
    return connection_.Call(jobs_, &JobStub::ReadProfile, request, true);
  }

  absl::StatusOr<v1::DumpCollectivesResponse> DumpCollectives(const std::string& job) override {
    v1::DumpCollectivesRequest request;
    request.set_name(JobName(job));
    return connection_.Call(jobs_, &JobStub::DumpCollectives, request, true);
  }

  absl::StatusOr<std::vector<v1::Worker>> ListWorkers() override {
    v1::ListWorkersRequest request;
    std::vector<v1::Worker> workers;
    do {
      ASSIGN_OR_RETURN(v1::ListWorkersResponse page,
                       connection_.Call(cluster_, &ClusterStub::ListWorkers, request, true));
      for (auto& worker : *page.mutable_workers()) workers.push_back(std::move(worker));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return workers;
  }

  absl::StatusOr<v1::DrainWorkerResponse> DrainWorker(const std::string& worker, bool stop_ranks,
                                                      const std::string& reason) override {
    v1::DrainWorkerRequest request;
    request.set_name(WorkerName(worker));
    request.set_stop_ranks(stop_ranks);
    request.set_reason(reason);
    return connection_.Call(cluster_, &ClusterStub::DrainWorker, request, true);
  }

  absl::StatusOr<v1::Worker> UncordonWorker(const std::string& worker) override {
    v1::UncordonWorkerRequest request;
    request.set_name(WorkerName(worker));
    ASSIGN_OR_RETURN(v1::UncordonWorkerResponse response,
                     connection_.Call(cluster_, &ClusterStub::UncordonWorker, request, true));
    return std::move(*response.mutable_worker());
  }

  absl::StatusOr<v1::GetClusterResponse> GetCluster() override {
    return connection_.Call(cluster_, &ClusterStub::GetCluster, v1::GetClusterRequest(), true);
  }

  absl::StatusOr<v1::ListQueuesResponse> ListQueues() override {
    v1::ListQueuesRequest request;
    v1::ListQueuesResponse all;
    do {
      ASSIGN_OR_RETURN(v1::ListQueuesResponse page,
                       connection_.Call(cluster_, &ClusterStub::ListQueues, request, true));
      request.set_page_token(page.next_page_token());
      page.clear_next_page_token();
      all.MergeFrom(page);
    } while (!request.page_token().empty());
    return all;
  }

  absl::StatusOr<v1::Queue> GetQueue(const std::string& queue) override {
    v1::GetQueueRequest request;
    request.set_name(absl::StartsWith(queue, "queues/") ? queue : absl::StrCat("queues/", queue));
    ASSIGN_OR_RETURN(v1::GetQueueResponse response,
                     connection_.Call(cluster_, &ClusterStub::GetQueue, request, true));
    return std::move(*response.mutable_queue());
  }

  absl::StatusOr<v1::Maintenance> SetMaintenance(v1::MaintenanceMode mode,
                                                 const std::string& reason) override {
    v1::SetMaintenanceRequest request;
    request.set_mode(mode);
    request.set_reason(reason);
    ASSIGN_OR_RETURN(v1::SetMaintenanceResponse response,
                     connection_.Call(cluster_, &ClusterStub::SetMaintenance, request, true));
    return std::move(*response.mutable_maintenance());
  }

  absl::StatusOr<v1::CreateJoinTokenResponse> CreateJoinToken(
      const v1::CreateJoinTokenRequest& request) override {
    return connection_.Call(enrollment_, &EnrollmentStub::CreateJoinToken, request, false);
  }

  absl::StatusOr<std::vector<v1::JoinToken>> ListJoinTokens() override {
    v1::ListJoinTokensRequest request;
    request.set_page_size(1000);
    std::vector<v1::JoinToken> tokens;
    do {
      ASSIGN_OR_RETURN(
          v1::ListJoinTokensResponse page,
          connection_.Call(enrollment_, &EnrollmentStub::ListJoinTokens, request, true));
      for (auto& token : *page.mutable_join_tokens()) tokens.push_back(std::move(token));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return tokens;
  }

  absl::Status RevokeJoinToken(const std::string& token) override {
    v1::RevokeJoinTokenRequest request;
    request.set_name(absl::StartsWith(token, "joinTokens/") ? token
                                                            : absl::StrCat("joinTokens/", token));
    return connection_.Call(enrollment_, &EnrollmentStub::RevokeJoinToken, request, false).status();
  }

  absl::Status WatchJob(const std::string& job, const StreamOptions& options,
                        const std::function<bool(const v1::Job&)>& on_job) override;
  absl::Status StreamLogs(const std::string& job, const LogFilter& filter,
                          const StreamOptions& options,
                          const std::function<bool(const v1::LogEntry&)>& on_line) override;
  absl::Status StreamEvents(const std::string& job, std::int64_t after_sequence, bool follow,
                            const StreamOptions& options,
                            const std::function<bool(const v1::JobEvent&)>& on_event) override;
  absl::Status StreamMetrics(
      const std::string& job, std::int64_t after_offset, bool follow, const StreamOptions& options,
      const std::function<bool(const v1::StepMetrics&)>& on_metrics) override;

 private:
  template <typename Response>
  static absl::StatusOr<v1::Job> JobOf(absl::StatusOr<Response> response) {
    if (!response.ok()) return response.status();
    return std::move(*response->mutable_job());
  }

  // Runs `stream` until it fails, was stopped by its callback, or ended well with the job
  // finished: a server that ends a followed stream early (it drains) does not end the following.
  template <typename Stream>
  absl::Status UntilJobFinished(const std::string& job, bool follow, const bool& stopped,
                                Stream stream);

  Connection connection_;
  const Stubs<JobStub> jobs_;
  const Stubs<ClusterStub> cluster_;
  const Stubs<EnrollmentStub> enrollment_;
};

template <typename Stream>
absl::Status GrpcClient::UntilJobFinished(const std::string& job, bool follow, const bool& stopped,
                                          Stream stream) {
  bool was_finished = false;
  for (int rounds = 0;; ++rounds) {
    RETURN_IF_ERROR(stream());
    if (stopped || !follow || was_finished) return absl::OkStatus();
    ASSIGN_OR_RETURN(const v1::Job now, GetJob(job));
    // Finished only now: what came between the stream's end and this look is still to be read.
    was_finished = IsFinished(now.state());
    if (!was_finished && connection_.Backoff(rounds)) return absl::CancelledError("interrupted");
  }
}

absl::Status GrpcClient::WatchJob(const std::string& job, const StreamOptions& options,
                                  const std::function<bool(const v1::Job&)>& on_job) {
  v1::WatchJobRequest request;
  request.set_name(JobName(job));
  bool over = false;
  for (int rounds = 0; !over; ++rounds) {
    RETURN_IF_ERROR(connection_.Stream(
        jobs_, &JobStub::WatchJob, options, [&] { return request; },
        [&](const v1::WatchJobResponse& response) {
          request.set_after_revision(response.job().revision());
          const bool wanted = on_job(response.job());
          over = over || !wanted || IsFinished(response.job().state());
          return wanted;
        }));
    if (over) break;
    // The server ended the watch of an unfinished job, or the job finished at the revision that we
    // already had: look once, then go on watching.
    ASSIGN_OR_RETURN(const v1::Job now, GetJob(job));
    if (IsFinished(now.state())) {
      if (now.revision() != request.after_revision()) on_job(now);
      break;
    }
    if (connection_.Backoff(rounds)) return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

absl::Status GrpcClient::StreamLogs(const std::string& job, const LogFilter& filter,
                                    const StreamOptions& options,
                                    const std::function<bool(const v1::LogEntry&)>& on_line) {
  v1::StreamLogsRequest request;
  request.set_name(JobName(job));
  request.set_after_offset(filter.after_offset);
  request.set_follow(filter.follow);
  if (filter.rank >= 0) request.set_rank(filter.rank);
  request.set_attempt(filter.attempt);
  request.set_tail(filter.tail);
  bool stopped = false;
  const auto on_response = [&](const v1::StreamLogsResponse& response) {
    for (const auto& entry : response.entries()) {
      if (entry.offset() <= request.after_offset()) continue;
      // `tail` is a place to start: once anything came, the offset says where to go on.
      request.set_tail(0);
      request.set_after_offset(entry.offset());
      stopped = !on_line(entry);
      if (stopped) return false;
    }
    if (response.next_offset() > 0) {
      request.set_tail(0);
      request.set_after_offset(std::max(request.after_offset(), response.next_offset() - 1));
    }
    return true;
  };
  return UntilJobFinished(job, filter.follow, stopped, [&] {
    return connection_.Stream(
        jobs_, &JobStub::StreamLogs, options, [&] { return request; }, on_response);
  });
}

absl::Status GrpcClient::StreamEvents(const std::string& job, std::int64_t after_sequence,
                                      bool follow, const StreamOptions& options,
                                      const std::function<bool(const v1::JobEvent&)>& on_event) {
  v1::StreamEventsRequest request;
  request.set_name(JobName(job));
  request.set_after_sequence(after_sequence);
  request.set_follow(follow);
  bool stopped = false;
  const auto on_response = [&](const v1::StreamEventsResponse& response) {
    for (const auto& event : response.events()) {
      if (stopped || event.sequence() <= request.after_sequence()) continue;
      request.set_after_sequence(event.sequence());
      stopped = !on_event(event);
    }
    return !stopped;
  };
  return UntilJobFinished(job, follow, stopped, [&] {
    return connection_.Stream(
        jobs_, &JobStub::StreamEvents, options, [&] { return request; }, on_response);
  });
}

absl::Status GrpcClient::StreamMetrics(
    const std::string& job, std::int64_t after_offset, bool follow, const StreamOptions& options,
    const std::function<bool(const v1::StepMetrics&)>& on_metrics) {
  v1::StreamMetricsRequest request;
  request.set_name(JobName(job));
  request.set_after_offset(after_offset);
  request.set_follow(follow);
  bool stopped = false;
  const auto on_response = [&](const v1::StreamMetricsResponse& response) {
    for (const auto& metrics : response.metrics()) {
      if (stopped || metrics.offset() <= request.after_offset()) continue;
      request.set_after_offset(metrics.offset());
      stopped = !on_metrics(metrics);
    }
    return !stopped;
  };
  return UntilJobFinished(job, follow, stopped, [&] {
    return connection_.Stream(
        jobs_, &JobStub::StreamMetrics, options, [&] { return request; }, on_response);
  });
}

std::string WithPrefix(const char* prefix, const std::string& text) {
  return absl::StartsWith(text, prefix) ? text : absl::StrCat(prefix, text);
}

bool IsServerAddress(const std::string& server) {
  if (absl::StartsWith(server, "unix:")) return server.size() > 5;
  const std::size_t colon = server.rfind(':');
  int port = 0;
  return colon != std::string::npos && colon > 0 && server.size() <= 300 &&
         server.find_first_of(" \t\r\n/") == std::string::npos &&
         absl::SimpleAtoi(server.substr(colon + 1), &port) && port >= 1 && port <= 65535;
}

absl::Status CheckServer(const std::string& servers) {
  for (const std::string& server : SplitAddresses(servers)) {
    if (IsServerAddress(server)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "server address \"", server, "\" is not host:port (port 1..65535) or unix:/path"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  RETURN_IF_ERROR(CheckServer(options.server));
  RETURN_IF_ERROR(CheckToken(options));
  ASSIGN_OR_RETURN(auto credentials,
                   ChannelCredentialsFrom(options.tls, options.tls_names, absl::Now()));
  return std::make_unique<GrpcClient>(std::move(options), std::move(credentials));
}

std::string Client::JobName(const std::string& id_or_name) {
  return WithPrefix("jobs/", id_or_name);
}

std::string Client::WorkerName(const std::string& id_or_name) {
  return WithPrefix("workers/", id_or_name);
}

std::string Client::NewRequestId() {
  std::random_device random;
  const auto word = [&random] { return static_cast<std::uint32_t>(random()); };
  const std::uint32_t a = word(), b = word(), c = word(), d = word();
  // A version-4 UUID.
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", a, b >> 16, b & 0xfff,
                         0x8000 | (c & 0x3fff), c >> 16, d);
}

}  // namespace fsdp
