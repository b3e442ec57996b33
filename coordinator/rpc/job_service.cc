#include "coordinator/rpc/job_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/rpc/page_token.h"
#include "coordinator/store/resource_names.h"
#include "google/protobuf/util/field_mask_util.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

using google::protobuf::FieldMask;
using google::protobuf::util::FieldMaskUtil;

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
  std::string filter =
      absl::StrCat(request.queue(), "/", request.array(), request.show_tasks() ? "/tasks" : "");
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
  const bool of_array = request.array().empty() || job.array_job() == request.array();
  const bool hidden = request.array().empty() && !request.show_tasks() && !job.array_job().empty();
  if (!of_array || hidden) return false;
  if (!request.queue().empty() && job.spec().spec().queue() != request.queue()) return false;
  const auto& labels = job.spec().metadata().labels();
  return std::all_of(request.labels().begin(), request.labels().end(), [&](const auto& wanted) {
    const auto label = labels.find(wanted.first);
    return label != labels.end() && label->second == wanted.second;
  });
}

}  // namespace

template <typename Request, typename Response, typename Verb>
grpc::ServerUnaryReactor* JobServiceImpl::RunVerb(Context* context, const Request& request,
                                                  Response* response, Verb verb) {
  return gate_.Unary(context, request, [&](const UnaryCall& call) {
    verb(call.caller(), JobIdFromName(request.name()),
         [call, response](absl::StatusOr<Coordinator::JobReply> reply) {
           if (reply.ok()) {
             *response->mutable_job() = std::move(reply->job);
             if constexpr (requires { response->mutable_warnings(); }) {
               response->mutable_warnings()->Assign(reply->warnings.begin(), reply->warnings.end());
             }
           }
           call.Finish(reply.status());
         });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::CreateJob(Context* context,
                                                    const v1::CreateJobRequest* request,
                                                    v1::CreateJobResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    coordinator_.CreateJob(call.caller(), *request,
                           [call, response](absl::StatusOr<v1::CreateJobResponse> result) {
                             if (result.ok()) {
                               *response = std::move(*result);
                               call.call().set_resource(response->job().name());
                             }
                             call.Finish(result.status());
                           });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::GetJob(Context* context, const v1::GetJobRequest* request,
                                                 v1::GetJobResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& /*call*/) -> absl::Status {
    RETURN_IF_ERROR(CheckMask(request->read_mask()));
    const JobSnapshot job = coordinator_.directory().Find(JobIdFromName(request->name()));
    if (job == nullptr) return NoSuchJob(JobIdFromName(request->name()).value());
    *response->mutable_job() = *job;
    TrimTo(request->read_mask(), response->mutable_job());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListJobs(Context* context,
                                                   const v1::ListJobsRequest* request,
                                                   v1::ListJobsResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    RETURN_IF_ERROR(CheckMask(request->read_mask()));
    const std::string filter = FilterOf(*request);
    ASSIGN_OR_RETURN(const std::int64_t size, PageSize(request->page_size(), 100, 1000));
    ASSIGN_OR_RETURN(const std::int64_t before, DecodePageToken(request->page_token(), filter));
    std::vector<ListedJob> jobs =
        coordinator_.directory().List(before, size + 1, [&](const v1::Job& job) {
          return call.Sees(job.spec().spec().queue()) && Matches(*request, job);
        });
    const bool more = static_cast<std::int64_t>(jobs.size()) > size;
    if (more) jobs.pop_back();
    for (const ListedJob& listed : jobs) {
      v1::Job* job = response->add_jobs();
      *job = *listed.job;
      TrimTo(request->read_mask(), job);
    }
    if (more) response->set_next_page_token(EncodePageToken(jobs.back().position, filter));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::CancelJob(Context* context,
                                                    const v1::CancelJobRequest* request,
                                                    v1::CancelJobResponse* response) {
  return RunVerb(context, *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.CancelJob(caller, job, request->reason(), std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::SuspendJob(Context* context,
                                                     const v1::SuspendJobRequest* request,
                                                     v1::SuspendJobResponse* response) {
  return RunVerb(context, *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.SuspendJob(caller, job, request->reason(), std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::ResumeJob(Context* context,
                                                    const v1::ResumeJobRequest* request,
                                                    v1::ResumeJobResponse* response) {
  return RunVerb(context, *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.ResumeJob(caller, job, std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::RestartJob(Context* context,
                                                     const v1::RestartJobRequest* request,
                                                     v1::RestartJobResponse* response) {
  return RunVerb(context, *request, response,
                 [&](const CallerIdentity& caller, const JobId& job, Coordinator::JobDone done) {
                   coordinator_.RestartJob(caller, job, request->reason(), std::move(done));
                 });
}

grpc::ServerUnaryReactor* JobServiceImpl::DeleteJob(Context* context,
                                                    const v1::DeleteJobRequest* request,
                                                    v1::DeleteJobResponse* /*response*/) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    coordinator_.DeleteJob(call.caller(), JobIdFromName(request->name()),
                           [call](const absl::Status& status) { call.Finish(status); });
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::PlanJob(Context* context,
                                                  const v1::PlanJobRequest* request,
                                                  v1::PlanJobResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    ASSIGN_OR_RETURN(*response->mutable_plan(),
                     coordinator_.PlanJob(call.caller(), request->job()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ListCheckpoints(Context* context,
                                                          const v1::ListCheckpointsRequest* request,
                                                          v1::ListCheckpointsResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& /*call*/) -> absl::Status {
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
  });
}

grpc::ServerUnaryReactor* JobServiceImpl::ReadCheckpoint(Context* context,
                                                         const v1::ReadCheckpointRequest* request,
                                                         v1::ReadCheckpointResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    coordinator_.ReadCheckpoint(call.caller(), *request,
                                [call, response](absl::StatusOr<v1::ReadCheckpointResponse> piece) {
                                  if (piece.ok()) *response = std::move(*piece);
                                  call.Finish(piece.status());
                                });
  });
}

StreamContext JobServiceImpl::Stream(std::shared_ptr<AdmittedCall> call) {
  return {.directory = &coordinator_.directory(),
          .store = &coordinator_.store(),
          .pump = &pump_,
          .draining = &draining_,
          .recheck = [call] { return call->Recheck(); },
          .on_end = [call](const absl::Status& status) { call->Done(status); }};
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobServiceImpl::WatchJob(
    Context* context, const v1::WatchJobRequest* request) {
  return gate_.Stream<v1::WatchJobResponse>(
      context, *request, [&](auto call) { return StartWatch(Stream(std::move(call)), *request); });
}

grpc::ServerWriteReactor<v1::StreamEventsResponse>* JobServiceImpl::StreamEvents(
    Context* context, const v1::StreamEventsRequest* request) {
  return gate_.Stream<v1::StreamEventsResponse>(
      context, *request, [&](auto call) { return StartEvents(Stream(std::move(call)), *request); });
}

grpc::ServerWriteReactor<v1::StreamLogsResponse>* JobServiceImpl::StreamLogs(
    Context* context, const v1::StreamLogsRequest* request) {
  return gate_.Stream<v1::StreamLogsResponse>(
      context, *request, [&](auto call) { return StartLogs(Stream(std::move(call)), *request); });
}

grpc::ServerWriteReactor<v1::StreamMetricsResponse>* JobServiceImpl::StreamMetrics(
    Context* context, const v1::StreamMetricsRequest* request) {
  return gate_.Stream<v1::StreamMetricsResponse>(context, *request, [&](auto call) {
    return StartMetrics(Stream(std::move(call)), *request);
  });
}

}  // namespace fsdp::coordinator
