#include "tests/unit/client/fake_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/exit_code.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/support/log.h"

namespace fsdp {

grpc::Status ServiceError(grpc::StatusCode code, const std::string& message,
                          const std::string& reason,
                          const std::vector<std::pair<std::string, std::string>>& fields,
                          const std::map<std::string, std::string>& metadata) {
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("fsdp.v1");
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  details.add_details()->PackFrom(info);
  if (!fields.empty()) {
    google::rpc::BadRequest bad;
    for (const auto& [field, description] : fields) {
      auto* violation = bad.add_field_violations();
      violation->set_field(field);
      violation->set_description(description);
    }
    details.add_details()->PackFrom(bad);
  }
  return {code, message, details.SerializeAsString()};
}

namespace {

grpc::Status NoSuchJob(const std::string& name) {
  return ServiceError(grpc::StatusCode::NOT_FOUND, "no job " + name, "JOB_NOT_FOUND", {},
                      {{"job", name}});
}

grpc::Status NoSuchWorker(const std::string& name) {
  return ServiceError(grpc::StatusCode::NOT_FOUND, "no worker " + name, "WORKER_NOT_FOUND", {},
                      {{"worker", name}});
}

grpc::Status WrongState(const v1::Job& job) {
  const std::string state = v1::JobState_Name(job.state()).substr(sizeof("JOB_STATE_") - 1);
  return ServiceError(grpc::StatusCode::FAILED_PRECONDITION, job.name() + " is " + state,
                      "JOB_STATE_CONFLICT", {}, {{"job", job.name()}, {"state", state}});
}

}  // namespace

FakeService::FakeService(int port) : port_(port) { Serve(); }
FakeService::~FakeService() { Stop(); }

std::string FakeService::address() const { return "127.0.0.1:" + std::to_string(port_); }

void FakeService::Serve() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = false;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(static_cast<v1::JobService::Service*>(this));
  builder.RegisterService(static_cast<v1::ClusterService::Service*>(this));
  server_ = builder.BuildAndStart();
  FSDP_CHECK(server_ != nullptr, "cannot listen on ", address());
}

void FakeService::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void FakeService::PutJob(v1::Job job) {
  const std::lock_guard lock(mutex_);
  if (job.revision() == 0) job.set_revision(1);
  records_[job.name()].job = std::move(job);
  changed_.notify_all();
}

void FakeService::UpdateJob(const std::string& name, const std::function<void(v1::Job&)>& change) {
  const std::lock_guard lock(mutex_);
  v1::Job& job = records_.at(name).job;
  change(job);
  job.set_revision(job.revision() + 1);
  changed_.notify_all();
}

void FakeService::SetState(const std::string& name, v1::JobState state) {
  UpdateJob(name, [state](v1::Job& job) { job.set_state(state); });
}

v1::Job FakeService::job(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return records_.at(name).job;
}

void FakeService::AddLog(const std::string& name, v1::LogEntry entry) {
  const std::lock_guard lock(mutex_);
  auto& logs = records_.at(name).logs;
  entry.set_offset(static_cast<std::int64_t>(logs.size()) + 1);
  logs.push_back(std::move(entry));
  changed_.notify_all();
}

void FakeService::AddEvent(const std::string& name, v1::JobEvent event) {
  const std::lock_guard lock(mutex_);
  auto& events = records_.at(name).events;
  event.set_sequence(static_cast<std::int64_t>(events.size()) + 1);
  events.push_back(std::move(event));
  changed_.notify_all();
}

void FakeService::AddMetrics(const std::string& name, v1::StepMetrics metrics) {
  const std::lock_guard lock(mutex_);
  auto& all = records_.at(name).metrics;
  metrics.set_offset(static_cast<std::int64_t>(all.size()) + 1);
  all.push_back(std::move(metrics));
  changed_.notify_all();
}

void FakeService::PutWorker(v1::Worker worker) {
  const std::lock_guard lock(mutex_);
  workers_[worker.name()] = std::move(worker);
}

void FakeService::FailUnary(grpc::Status status) {
  const std::lock_guard lock(mutex_);
  unary_error_ = std::move(status);
}

void FakeService::LoseAnswers(int count) {
  const std::lock_guard lock(mutex_);
  lost_answers_ = count;
}

void FakeService::SetCheckpoint(ReadPiece read) {
  const std::lock_guard lock(mutex_);
  read_piece_ = std::move(read);
}

void FakeService::BreakStreamAfter(int messages) {
  const std::lock_guard lock(mutex_);
  messages_until_break_ = messages;
}

void FakeService::EndStreamEarly() {
  const std::lock_guard lock(mutex_);
  end_stream_early_ = true;
}

int FakeService::num_created() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(request_ids_.size());
}

std::vector<std::string> FakeService::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

v1::CreateJobRequest FakeService::last_create() {
  const std::lock_guard lock(mutex_);
  return last_create_;
}

std::vector<v1::StreamLogsRequest> FakeService::log_requests() {
  const std::lock_guard lock(mutex_);
  return log_requests_;
}

void FakeService::WaitForStreams(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_streams_ >= count; });
}

grpc::Status FakeService::Enter(const std::string& call,
                                const std::function<grpc::Status()>& effect) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(call);
  if (!unary_error_.ok()) return unary_error_;
  const grpc::Status status = effect();
  if (lost_answers_ > 0) {
    --lost_answers_;
    return {grpc::StatusCode::UNAVAILABLE, "connection reset"};
  }
  return status;
}

grpc::Status FakeService::WithJob(const std::string& name,
                                  const std::function<grpc::Status(Record&)>& use) {
  const auto found = records_.find(name);
  if (found == records_.end()) {
    return NoSuchJob(name);
  }
  return use(found->second);
}

grpc::Status FakeService::CreateJob(Context, const v1::CreateJobRequest* request,
                                    v1::CreateJobResponse* response) {
  return Enter("CreateJob", [&] {
    last_create_ = *request;
    response->mutable_plan()->set_world_size(2);
    response->mutable_plan()->set_parameters(1234567);
    response->mutable_plan()->set_total_bytes(3 << 20);
    if (request->validate_only()) {
      *response->mutable_job()->mutable_spec() = request->job();
      if (!warning_.empty()) response->mutable_job()->add_warnings(warning_);
      return grpc::Status::OK;
    }
    const auto known = request_ids_.find(request->request_id());
    response->set_existing(known != request_ids_.end());
    if (response->existing()) {
      *response->mutable_job() = records_.at(known->second).job;
      return grpc::Status::OK;
    }
    v1::Job job;
    job.set_name("jobs/" + request->job().metadata().name() + "-0000000" +
                 std::to_string(request_ids_.size() + 1));
    job.set_state(v1::JOB_STATE_QUEUED);
    job.set_revision(1);
    *job.mutable_spec() = request->job();
    if (!warning_.empty()) job.add_warnings(warning_);
    request_ids_[request->request_id()] = job.name();
    records_[job.name()].job = job;
    *response->mutable_job() = job;
    changed_.notify_all();
    return grpc::Status::OK;
  });
}

grpc::Status FakeService::GetJob(Context, const v1::GetJobRequest* request,
                                 v1::GetJobResponse* response) {
  return Enter("GetJob", [&] {
    return WithJob(request->name(), [&](Record& record) {
      *response->mutable_job() = record.job;
      return grpc::Status::OK;
    });
  });
}

grpc::Status FakeService::ListJobs(Context, const v1::ListJobsRequest* request,
                                   v1::ListJobsResponse* response) {
  return Enter("ListJobs", [&] {
    // Pages of two, so that every listing walks them.
    const std::size_t page = std::min(2, request->page_size());
    for (const auto& [name, record] : records_) {
      if (name <= request->page_token()) continue;
      const auto& states = request->states();
      if (!states.empty() &&
          std::find(states.begin(), states.end(), record.job.state()) == states.end()) {
        continue;
      }
      if (static_cast<std::size_t>(response->jobs_size()) == page) {
        response->set_next_page_token(response->jobs(response->jobs_size() - 1).name());
        break;
      }
      *response->add_jobs() = record.job;
    }
    return grpc::Status::OK;
  });
}

grpc::Status FakeService::Move(const std::string& call, const std::string& name, v1::JobState state,
                               const std::string& reason, v1::Job* out) {
  return Enter(call, [&] {
    return WithJob(name, [&](Record& record) {
      if (IsFinished(record.job.state()) && state != v1::JOB_STATE_QUEUED &&
          record.job.state() != state) {
        return WrongState(record.job);
      }
      record.job.set_state(state);
      record.job.set_reason(reason);
      record.job.set_revision(record.job.revision() + 1);
      *out = record.job;
      changed_.notify_all();
      return grpc::Status::OK;
    });
  });
}

void FakeService::Warn(const std::string& warning) {
  const std::lock_guard<std::mutex> lock(mutex_);
  warning_ = warning;
}

void FakeService::SuspendSlowly() {
  const std::lock_guard<std::mutex> lock(mutex_);
  suspend_slowly_ = true;
}

template <typename Response>
void FakeService::AddWarning(Response* response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!warning_.empty()) response->add_warnings(warning_);
}

grpc::Status FakeService::CancelJob(Context, const v1::CancelJobRequest* request,
                                    v1::CancelJobResponse* response) {
  return Move("CancelJob", request->name(), v1::JOB_STATE_CANCELLED, request->reason(),
              response->mutable_job());
}

grpc::Status FakeService::SuspendJob(Context, const v1::SuspendJobRequest* request,
                                     v1::SuspendJobResponse* response) {
  AddWarning(response);
  v1::JobState next = v1::JOB_STATE_SUSPENDED;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = records_.find(request->name());
    if (found != records_.end()) {
      const v1::Job& job = found->second.job;
      if (job.state() == next) return WrongState(job);
      if (suspend_slowly_ && !IsFinished(job.state())) next = job.state();
    }
  }
  return Move("SuspendJob", request->name(), next, request->reason(), response->mutable_job());
}

grpc::Status FakeService::ResumeJob(Context, const v1::ResumeJobRequest* request,
                                    v1::ResumeJobResponse* response) {
  return Move("ResumeJob", request->name(), v1::JOB_STATE_QUEUED, "", response->mutable_job());
}

grpc::Status FakeService::RestartJob(Context, const v1::RestartJobRequest* request,
                                     v1::RestartJobResponse* response) {
  AddWarning(response);
  return Move("RestartJob", request->name(), v1::JOB_STATE_QUEUED, request->reason(),
              response->mutable_job());
}

grpc::Status FakeService::DeleteJob(Context, const v1::DeleteJobRequest* request,
                                    v1::DeleteJobResponse*) {
  return Enter("DeleteJob", [&] {
    return WithJob(request->name(), [&](Record& record) {
      if (!IsFinished(record.job.state())) {
        return WrongState(record.job);
      }
      records_.erase(request->name());
      return grpc::Status::OK;
    });
  });
}

bool FakeService::ShouldBreak() {
  if (messages_until_break_ < 0) return false;
  return messages_until_break_-- == 0;
}

grpc::Status FakeService::Pump(Context context, const std::string& name, bool follow,
                               const std::function<bool(Record&, bool* sent)>& send) {
  std::unique_lock lock(mutex_);
  ++num_streams_;
  changed_.notify_all();
  for (;;) {
    const auto found = records_.find(name);
    if (found == records_.end()) {
      return NoSuchJob(name);
    }
    bool sent = false;
    if (!send(found->second, &sent)) {
      return {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
    }
    if (sent) continue;
    if (end_stream_early_ && follow) {
      end_stream_early_ = false;
      return grpc::Status::OK;
    }
    if (!follow || IsFinished(found->second.job.state())) return grpc::Status::OK;
    changed_.wait_for(lock, std::chrono::milliseconds(20));
    if (stopping_) return {grpc::StatusCode::UNAVAILABLE, "shutting down"};
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
  }
}

grpc::Status FakeService::WatchJob(Context context, const v1::WatchJobRequest* request,
                                   grpc::ServerWriter<v1::WatchJobResponse>* writer) {
  std::int64_t revision = request->after_revision();
  return Pump(context, request->name(), true, [&](Record& record, bool* sent) {
    if (record.job.revision() <= revision) return true;
    if (ShouldBreak()) return false;
    revision = record.job.revision();
    v1::WatchJobResponse response;
    *response.mutable_job() = record.job;
    *sent = writer->Write(response);
    return true;
  });
}

grpc::Status FakeService::StreamLogs(Context context, const v1::StreamLogsRequest* request,
                                     grpc::ServerWriter<v1::StreamLogsResponse>* writer) {
  {
    const std::lock_guard lock(mutex_);
    log_requests_.push_back(*request);
  }
  auto next = static_cast<std::size_t>(request->after_offset());
  bool skip = request->tail() > 0;
  return Pump(context, request->name(), request->follow(), [&](Record& record, bool* sent) {
    const auto matches = [&](const v1::LogEntry& entry) {
      return (!request->has_rank() || entry.rank() == request->rank()) &&
             (request->attempt() == 0 || entry.attempt() == request->attempt());
    };
    if (skip) {
      skip = false;
      std::int64_t wanted = request->tail();
      next = record.logs.size();
      while (next > 0 && wanted > 0) wanted -= matches(record.logs[--next]) ? 1 : 0;
    }
    if (next >= record.logs.size()) return true;
    if (ShouldBreak()) return false;
    const v1::LogEntry& entry = record.logs[next++];
    v1::StreamLogsResponse response;
    response.set_next_offset(entry.offset());
    if (matches(entry)) *response.add_entries() = entry;
    *sent = writer->Write(response);
    return true;
  });
}

grpc::Status FakeService::StreamEvents(Context context, const v1::StreamEventsRequest* request,
                                       grpc::ServerWriter<v1::StreamEventsResponse>* writer) {
  auto next = static_cast<std::size_t>(request->after_sequence());
  return Pump(context, request->name(), request->follow(), [&](Record& record, bool* sent) {
    if (next >= record.events.size()) return true;
    if (ShouldBreak()) return false;
    v1::StreamEventsResponse response;
    *response.add_events() = record.events[next++];
    *sent = writer->Write(response);
    return true;
  });
}

grpc::Status FakeService::StreamMetrics(Context context, const v1::StreamMetricsRequest* request,
                                        grpc::ServerWriter<v1::StreamMetricsResponse>* writer) {
  auto next = static_cast<std::size_t>(request->after_offset());
  return Pump(context, request->name(), request->follow(), [&](Record& record, bool* sent) {
    if (next >= record.metrics.size()) return true;
    if (ShouldBreak()) return false;
    v1::StreamMetricsResponse response;
    *response.add_metrics() = record.metrics[next++];
    *sent = writer->Write(response);
    return true;
  });
}

grpc::Status FakeService::ListWorkers(Context, const v1::ListWorkersRequest*,
                                      v1::ListWorkersResponse* response) {
  return Enter("ListWorkers", [&] {
    for (const auto& [name, worker] : workers_) *response->add_workers() = worker;
    return grpc::Status::OK;
  });
}

grpc::Status FakeService::ReadCheckpoint(Context, const v1::ReadCheckpointRequest* request,
                                         v1::ReadCheckpointResponse* response) {
  return Enter("ReadCheckpoint", [&] {
    const auto piece = read_piece_(*request);
    if (piece.ok()) {
      *response = *piece;
      return grpc::Status::OK;
    }
    return grpc::Status(static_cast<grpc::StatusCode>(piece.status().code()),
                        std::string(piece.status().message()));
  });
}

grpc::Status FakeService::DrainWorker(Context, const v1::DrainWorkerRequest* request,
                                      v1::DrainWorkerResponse* response) {
  AddWarning(response);
  return Enter("DrainWorker", [&] {
    const auto found = workers_.find(request->name());
    if (found == workers_.end()) {
      return NoSuchWorker(request->name());
    }
    found->second.set_cordoned(true);
    *response->mutable_worker() = found->second;
    return grpc::Status::OK;
  });
}

grpc::Status FakeService::UncordonWorker(Context, const v1::UncordonWorkerRequest* request,
                                         v1::UncordonWorkerResponse* response) {
  return Enter("UncordonWorker", [&] {
    const auto found = workers_.find(request->name());
    if (found == workers_.end()) {
      return NoSuchWorker(request->name());
    }
    found->second.set_cordoned(false);
    *response->mutable_worker() = found->second;
    return grpc::Status::OK;
  });
}

grpc::Status FakeService::GetCluster(Context, const v1::GetClusterRequest*,
                                     v1::GetClusterResponse* response) {
  return Enter("GetCluster", [&] {
    response->set_version("9.9.9");
    response->set_protocol_version(1);
    response->set_workers_ready(static_cast<int>(workers_.size()));
    response->set_metrics_address("127.0.0.1:9464");
    *response->mutable_maintenance() = maintenance_;
    return grpc::Status::OK;
  });
}

void FakeService::PutQueue(v1::Queue queue) {
  const std::lock_guard lock(mutex_);
  const std::string name = queue.name();
  queues_[name] = std::move(queue);
}

grpc::Status FakeService::ListQueues(Context, const v1::ListQueuesRequest*,
                                     v1::ListQueuesResponse* response) {
  return Enter("ListQueues", [&] {
    for (const auto& [name, queue] : queues_) {
      *response->add_queues() = queue;
      response->set_configured(response->configured() || queue.configured());
    }
    return grpc::Status::OK;
  });
}

grpc::Status FakeService::GetQueue(Context, const v1::GetQueueRequest* request,
                                   v1::GetQueueResponse* response) {
  return Enter("GetQueue", [&] {
    const auto found = queues_.find(request->name());
    if (found == queues_.end()) {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no queue " + request->name());
    }
    *response->mutable_queue() = found->second;
    return grpc::Status::OK;
  });
}

grpc::Status FakeService::SetMaintenance(Context, const v1::SetMaintenanceRequest* request,
                                         v1::SetMaintenanceResponse* response) {
  return Enter("SetMaintenance", [&] {
    maintenance_.set_mode(request->mode());
    maintenance_.set_reason(request->reason());
    maintenance_.set_owner("ann");
    *response->mutable_maintenance() = maintenance_;
    return grpc::Status::OK;
  });
}

}  // namespace fsdp
