#include "coordinator/rpc/job_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/rpc/caller.h"
#include "coordinator/rpc/page_token.h"
#include "coordinator/rpc/status_codec.h"
#include "coordinator/store/resource_names.h"
#include "google/protobuf/util/field_mask_util.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

using google::protobuf::FieldMask;
using google::protobuf::util::FieldMaskUtil;

absl::Status CheckJobName(const std::string& name) {
  if (name.empty()) return BadField("name", name, "is empty: want jobs/{id}");
  const std::string id = JobIdFromName(name).value();
  if (id.empty() || id.find('/') != std::string::npos) {
    return BadField("name", name, absl::StrCat("'", name.substr(0, 100), "': want jobs/{id}"));
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const FieldMask& mask) {
  for (const std::string& path : mask.paths()) {
    if (path != "*" && !FieldMaskUtil::IsValidPath<v1::Job>(path)) {
      return BadField("read_mask", path, absl::StrCat("Job has no field '", path, "'"));
    }
  }
  return absl::OkStatus();
}

void TrimTo(const FieldMask& mask, v1::Job* job) {
  const bool all = mask.paths().empty() ||
                   std::find(mask.paths().begin(), mask.paths().end(), "*") != mask.paths().end();
  if (!all) FieldMaskUtil::TrimMessage(mask, job);
}

// What page tokens of ListJobs belong to.
std::string FilterOf(const v1::ListJobsRequest& request) {
  std::string filter = request.queue();
  for (const int state : request.states()) absl::StrAppend(&filter, "|", state);
  std::vector<std::string> labels;
  for (const auto& [key, value] : request.labels()) labels.push_back(absl::StrCat(key, "=", value));
  std::sort(labels.begin(), labels.end());
  for (const std::string& label : labels) absl::StrAppend(&filter, ";", label);
  return filter;
}

bool Matches(const v1::ListJobsRequest& request, const v1::Job& job) {
  const auto& states = request.states();
  if (!states.empty() && std::find(states.begin(), states.end(), job.state()) == states.end()) {
    return false;
  }
  if (!request.queue().empty() && job.spec().spec().queue() != request.queue()) return false;
  const auto& labels = job.spec().metadata().labels();
  return std::all_of(request.labels().begin(), request.labels().end(), [&](const auto& wanted) {
    const auto label = labels.find(wanted.first);
    return label != labels.end() && label->second == wanted.second;
  });
}

}  // namespace

void JobServiceImpl::Finish(Unary* reactor, const char* method, const absl::Status& status) {
  counters_.Add("fsdp_rpc_total", absl::StrCat("JobService.", method), CodeName(status.code()));
  reactor->Finish(ToGrpcStatus(status));
}

template <typename Request, typename Response, typename Verb>
grpc::ServerUnaryReactor* JobServiceImpl::RunVerb(Context* context, const char* method,
                                                  const Request& request, Response* response,
                                                  Verb verb) {
  Unary* reactor = context->DefaultReactor();
  if (absl::Status status = CheckJobName(request.name()); !status.ok()) {
    Finish(reactor, method, status);
    return reactor;
  }
  verb(CallerOf(*context), JobIdFromName(request.name()),
       [this, reactor, method, response](absl::StatusOr<Coordinator::JobReply> reply) {
         if (reply.ok()) {
           *response->mutable_job() = std::move(reply->job);
           if constexpr (requires { response->mutable_warnings(); }) {
             response->mutable_warnings()->Assign(reply->warnings.begin(), reply->warnings.end());
           }
         }
         Finish(reactor, method, reply.status());
       });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CreateJob(Context* context,
                                                    const v1::CreateJobRequest* request,
                                                    v1::CreateJobResponse* response) {
  Unary* reactor = context->DefaultReactor();
  coordinator_.CreateJob(CallerOf(*context), *request,
                         [this, reactor, response](absl::StatusOr<v1::CreateJobResponse> result) {
                           if (result.ok()) *response = std::move(*result);
                           Finish(reactor, "CreateJob", result.status());
                         });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(Context* context, const v1::GetJobRequest* request,
                                                 v1::GetJobResponse* response) {
  Unary* reactor = context->DefaultReactor();
  const absl::Status status = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckJobName(request->name()));
    RETURN_IF_ERROR(CheckMask(request->read_mask()));
    const JobSnapshot job = coordinator_.directory().Find(JobIdFromName(request->name()));
    if (job == nullptr) return NoSuchJob(JobIdFromName(request->name()).value());
    *response->mutable_job() = *job;
    TrimTo(request->read_mask(), response->mutable_job());
    return absl::OkStatus();
  }();
  Finish(reactor, "GetJob", status);
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(Context* context,
                                                   const v1::ListJobsRequest* request,
                                                   v1::ListJobsResponse* response) {
  Unary* reactor = context->DefaultReactor();
  const absl::Status status = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckMask(request->read_mask()));
    const std::string filter = FilterOf(*request);
    ASSIGN_OR_RETURN(const std::int64_t size, PageSize(request->page_size(), 100, 1000));
    ASSIGN_OR_RETURN(const std::int64_t before, DecodePageToken(request->page_token(), filter));
    std::vector<ListedJob> jobs = coordinator_.directory().List(
        before, size + 1, [&](const v1::Job& job) { return Matches(*request, job); });
    const bool more = static_cast<std::int64_t>(jobs.size()) > size;
    if (more) jobs.pop_back();
    for (const ListedJob& listed : jobs) {
      v1::Job* job = response->add_jobs();
      *job = *listed.job;
      TrimTo(request->read_mask(), job);
    }
    if (more) response->set_next_page_token(EncodePageToken(jobs.back().position, filter));
    return absl::OkStatus();
  }();
  Finish(reactor, "ListJobs", status);
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(Context* context,
                                                    const v1::CancelJobRequest* request,
                                                    v1::CancelJobResponse* response) {
  return RunVerb(context, "CancelJob", *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.CancelJob(caller, job, request->reason(), std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::SuspendJob(Context* context,
                                                     const v1::SuspendJobRequest* request,
                                                     v1::SuspendJobResponse* response) {
  return RunVerb(context, "SuspendJob", *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.SuspendJob(caller, job, request->reason(), std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::ResumeJob(Context* context,
                                                    const v1::ResumeJobRequest* request,
                                                    v1::ResumeJobResponse* response) {
  return RunVerb(context, "ResumeJob", *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.ResumeJob(caller, job, std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::RestartJob(Context* context,
                                                     const v1::RestartJobRequest* request,
                                                     v1::RestartJobResponse* response) {
  return RunVerb(context, "RestartJob", *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.RestartJob(caller, job, request->reason(), std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(Context* context,
                                                    const v1::DeleteJobRequest* request,
                                                    v1::DeleteJobResponse* /*response*/) {
  Unary* reactor = context->DefaultReactor();
  if (absl::Status status = CheckJobName(request->name()); !status.ok()) {
    Finish(reactor, "DeleteJob", status);
    return reactor;
  }
  coordinator_.DeleteJob(
      CallerOf(*context), JobIdFromName(request->name()),
      [this, reactor](absl::Status status) { Finish(reactor, "DeleteJob", status); });
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::PlanJob(Context* context,
                                                  const v1::PlanJobRequest* request,
                                                  v1::PlanJobResponse* response) {
  Unary* reactor = context->DefaultReactor();
  absl::StatusOr<v1::Plan> plan = coordinator_.PlanJob(CallerOf(*context), request->job());
  if (plan.ok()) *response->mutable_plan() = std::move(*plan);
  Finish(reactor, "PlanJob", plan.status());
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ListCheckpoints(Context* context,
                                                          const v1::ListCheckpointsRequest* request,
                                                          v1::ListCheckpointsResponse* response) {
  Unary* reactor = context->DefaultReactor();
  const absl::Status status = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckJobName(request->name()));
    const JobId job = JobIdFromName(request->name());
    if (coordinator_.directory().Find(job) == nullptr) return NoSuchJob(job.value());
    ASSIGN_OR_RETURN(const std::int64_t size, PageSize(request->page_size(), 100, 1000));
    ASSIGN_OR_RETURN(const std::int64_t before,
                     DecodePageToken(request->page_token(), job.value()));
    auto checkpoints = coordinator_.store().ReadCheckpoints(job);
    if (!checkpoints.ok()) return WithInfo(checkpoints.status(), "STORE_FAILED");
    for (v1::CheckpointInfo& checkpoint : *checkpoints) {
      if (before > 0 && checkpoint.step() >= before) continue;
      if (response->checkpoints_size() == size) {
        const std::int64_t last = response->checkpoints(response->checkpoints_size() - 1).step();
        response->set_next_page_token(EncodePageToken(last, job.value()));
        break;
      }
      *response->add_checkpoints() = std::move(checkpoint);
    }
    return absl::OkStatus();
  }();
  Finish(reactor, "ListCheckpoints", status);
  return reactor;
}

grpc::ServerUnaryReactor* JobServiceImpl::ReadCheckpoint(Context* context,
                                                         const v1::ReadCheckpointRequest* request,
                                                         v1::ReadCheckpointResponse* response) {
  Unary* reactor = context->DefaultReactor();
  if (absl::Status status = CheckJobName(request->name()); !status.ok()) {
    Finish(reactor, "ReadCheckpoint", status);
    return reactor;
  }
  coordinator_.ReadCheckpoint(
      CallerOf(*context), *request,
      [this, reactor, response](absl::StatusOr<v1::ReadCheckpointResponse> piece) {
        if (piece.ok()) *response = std::move(*piece);
        Finish(reactor, "ReadCheckpoint", piece.status());
      });
  return reactor;
}

StreamContext JobServiceImpl::Stream(const char* method) {
  return {.directory = &coordinator_.directory(),
          .store = &coordinator_.store(),
          .pump = &pump_,
          .draining = &draining_,
          .on_end = [this, method](const absl::Status& status) {
            counters_.Add("fsdp_rpc_total", absl::StrCat("JobService.", method),
                          CodeName(status.code()));
          }};
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobServiceImpl::WatchJob(
    Context* /*context*/, const v1::WatchJobRequest* request) {
  return StartWatch(Stream("WatchJob"), *request);
}

grpc::ServerWriteReactor<v1::StreamEventsResponse>* JobServiceImpl::StreamEvents(
    Context* /*context*/, const v1::StreamEventsRequest* request) {
  return StartEvents(Stream("StreamEvents"), *request);
}

grpc::ServerWriteReactor<v1::StreamLogsResponse>* JobServiceImpl::StreamLogs(
    Context* /*context*/, const v1::StreamLogsRequest* request) {
  return StartLogs(Stream("StreamLogs"), *request);
}

grpc::ServerWriteReactor<v1::StreamMetricsResponse>* JobServiceImpl::StreamMetrics(
    Context* /*context*/, const v1::StreamMetricsRequest* request) {
  return StartMetrics(Stream("StreamMetrics"), *request);
}

}  // namespace fsdp::coordinator
