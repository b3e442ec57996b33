#include "coordinator/rpc/cluster_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "coordinator/errors/api_error.h"
#include "coordinator/rpc/page_token.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

absl::Status CheckWorkerName(const std::string& name) {
  if (!WorkerIdFromName(name).value().empty()) return absl::OkStatus();
  return BadField("name", name, "is empty: want workers/{id}");
}

// The worker, with its job only for who sees that: a job's name has its owner's words in it.
v1::Worker Shown(v1::Worker worker, const AdmittedCall& call) {
  if (!worker.job().empty() && !call.SeesJob(worker.job())) {
    worker.clear_job();
    worker.clear_rank();
    worker.clear_epoch();
  }
  return worker;
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::ListWorkers(Context* context,
                                                          const v1::ListWorkersRequest* request,
                                                          v1::ListWorkersResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::int64_t size, PageSize(request->page_size(), 1000, 1000));
    // The cursor is how many came before; workers are sorted and rarely leave.
    ASSIGN_OR_RETURN(const std::int64_t skip, DecodePageToken(request->page_token(), "workers"));
    std::vector<v1::Worker> workers = coordinator_.ListWorkers();
    const auto total = static_cast<std::int64_t>(workers.size());
    const std::int64_t end = std::min(total, skip + size);
    for (std::int64_t i = skip; i < end; ++i) {
      *response->add_workers() = Shown(std::move(workers[i]), call);
    }
    if (end < total) response->set_next_page_token(EncodePageToken(end, "workers"));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetWorker(Context* context,
                                                        const v1::GetWorkerRequest* request,
                                                        v1::GetWorkerResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    RETURN_IF_ERROR(CheckWorkerName(request->name()));
    ASSIGN_OR_RETURN(v1::Worker worker, coordinator_.GetWorker(WorkerIdFromName(request->name())));
    *response->mutable_worker() = Shown(std::move(worker), call);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::DrainWorker(Context* context,
                                                          const v1::DrainWorkerRequest* request,
                                                          v1::DrainWorkerResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    if (absl::Status status = CheckWorkerName(request->name()); !status.ok()) {
      return call.Finish(status);
    }
    coordinator_.DrainWorker(
        call.caller(), WorkerIdFromName(request->name()), request->stop_ranks(), request->reason(),
        [call, response](absl::StatusOr<Coordinator::WorkerReply> reply) {
          if (reply.ok()) {
            *response->mutable_worker() = std::move(reply->worker);
            response->mutable_warnings()->Assign(reply->warnings.begin(), reply->warnings.end());
          }
          call.Finish(reply.status());
        });
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::UncordonWorker(
    Context* context, const v1::UncordonWorkerRequest* request,
    v1::UncordonWorkerResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    if (absl::Status status = CheckWorkerName(request->name()); !status.ok()) {
      return call.Finish(status);
    }
    coordinator_.UncordonWorker(call.caller(), WorkerIdFromName(request->name()),
                                [call, response](absl::StatusOr<Coordinator::WorkerReply> reply) {
                                  if (reply.ok()) {
                                    *response->mutable_worker() = std::move(reply->worker);
                                  }
                                  call.Finish(reply.status());
                                });
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetCluster(Context* context,
                                                         const v1::GetClusterRequest* request,
                                                         v1::GetClusterResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& /*call*/) {
    *response = coordinator_.Describe();
    response->set_metrics_address(metrics_address_);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListQueues(Context* context,
                                                         const v1::ListQueuesRequest* request,
                                                         v1::ListQueuesResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::int64_t size, PageSize(request->page_size(), 1000, 1000));
    ASSIGN_OR_RETURN(const std::int64_t skip, DecodePageToken(request->page_token(), "queues"));
    Coordinator::QueueList list = coordinator_.ListQueues();
    std::erase_if(list.queues,
                  [&](const v1::Queue& queue) { return !call.Sees(queue.spec().name()); });
    const auto total = static_cast<std::int64_t>(list.queues.size());
    const std::int64_t end = std::min(total, skip + size);
    for (std::int64_t i = skip; i < end; ++i) *response->add_queues() = std::move(list.queues[i]);
    if (end < total) response->set_next_page_token(EncodePageToken(end, "queues"));
    response->set_configured(list.configured);
    response->set_config_error(list.config_error);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetQueue(Context* context,
                                                       const v1::GetQueueRequest* request,
                                                       v1::GetQueueResponse* response) {
  return gate_.Answer(context, *request, [&](AdmittedCall& call) -> absl::Status {
    const std::string name = StripCollection(request->name(), "queues/");
    if (name.empty()) return BadField("name", request->name(), "is empty: want queues/{name}");
    // A queue that the caller does not see is as if there were none.
    std::vector<v1::Queue> queues = coordinator_.ListQueues().queues;
    std::erase_if(queues, [&](const v1::Queue& queue) { return !call.Sees(queue.spec().name()); });
    ASSIGN_OR_RETURN(*response->mutable_queue(), FindQueue(std::move(queues), name));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::SetMaintenance(
    Context* context, const v1::SetMaintenanceRequest* request,
    v1::SetMaintenanceResponse* response) {
  return gate_.Unary(context, *request, [&](const UnaryCall& call) {
    coordinator_.SetMaintenance(call.caller(), request->mode(), request->reason(),
                                [call, response](absl::StatusOr<v1::Maintenance> maintenance) {
                                  if (maintenance.ok())
                                    *response->mutable_maintenance() = *std::move(maintenance);
                                  call.Finish(maintenance.status());
                                });
  });
}

}  // namespace fsdp::coordinator
