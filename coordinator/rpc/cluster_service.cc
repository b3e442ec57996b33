#include "coordinator/rpc/cluster_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/rpc/caller.h"
#include "coordinator/rpc/page_token.h"
#include "coordinator/rpc/status_codec.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

absl::Status CheckWorkerName(const std::string& name) {
  if (!WorkerIdFromName(name).value().empty()) return absl::OkStatus();
  return BadField("name", name, "is empty: want workers/{id}");
}

}  // namespace

void ClusterServiceImpl::Finish(Unary* reactor, const char* method, const absl::Status& status) {
  counters_.Add("fsdp_rpc_total", absl::StrCat("ClusterService.", method), CodeName(status.code()));
  reactor->Finish(ToGrpcStatus(status));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListWorkers(Context* context,
                                                          const v1::ListWorkersRequest* request,
                                                          v1::ListWorkersResponse* response) {
  Unary* reactor = context->DefaultReactor();
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::int64_t size, PageSize(request->page_size(), 1000, 1000));
    // The cursor is how many came before; workers are sorted and rarely leave.
    ASSIGN_OR_RETURN(const std::int64_t skip, DecodePageToken(request->page_token(), "workers"));
    std::vector<v1::Worker> workers = coordinator_.ListWorkers();
    const auto total = static_cast<std::int64_t>(workers.size());
    const std::int64_t end = std::min(total, skip + size);
    for (std::int64_t i = skip; i < end; ++i) *response->add_workers() = std::move(workers[i]);
    if (end < total) response->set_next_page_token(EncodePageToken(end, "workers"));
    return absl::OkStatus();
  }();
  Finish(reactor, "ListWorkers", status);
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetWorker(Context* context,
                                                        const v1::GetWorkerRequest* request,
                                                        v1::GetWorkerResponse* response) {
  Unary* reactor = context->DefaultReactor();
  const absl::Status status = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckWorkerName(request->name()));
    ASSIGN_OR_RETURN(*response->mutable_worker(),
                     coordinator_.GetWorker(WorkerIdFromName(request->name())));
    return absl::OkStatus();
  }();
  Finish(reactor, "GetWorker", status);
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::DrainWorker(Context* context,
                                                          const v1::DrainWorkerRequest* request,
                                                          v1::DrainWorkerResponse* response) {
  Unary* reactor = context->DefaultReactor();
  if (absl::Status status = CheckWorkerName(request->name()); !status.ok()) {
    Finish(reactor, "DrainWorker", status);
    return reactor;
  }
  coordinator_.DrainWorker(
      CallerOf(*context), WorkerIdFromName(request->name()), request->stop_ranks(),
      request->reason(), [this, reactor, response](absl::StatusOr<Coordinator::WorkerReply> reply) {
        if (reply.ok()) {
          *response->mutable_worker() = std::move(reply->worker);
          response->mutable_warnings()->Assign(reply->warnings.begin(), reply->warnings.end());
        }
        Finish(reactor, "DrainWorker", reply.status());
      });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::UncordonWorker(
    Context* context, const v1::UncordonWorkerRequest* request,
    v1::UncordonWorkerResponse* response) {
  Unary* reactor = context->DefaultReactor();
  if (absl::Status status = CheckWorkerName(request->name()); !status.ok()) {
    Finish(reactor, "UncordonWorker", status);
    return reactor;
  }
  coordinator_.UncordonWorker(
      CallerOf(*context), WorkerIdFromName(request->name()),
      [this, reactor, response](absl::StatusOr<Coordinator::WorkerReply> reply) {
        if (reply.ok()) *response->mutable_worker() = std::move(reply->worker);
        Finish(reactor, "UncordonWorker", reply.status());
      });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetCluster(Context* context,
                                                         const v1::GetClusterRequest* /*request*/,
                                                         v1::GetClusterResponse* response) {
  Unary* reactor = context->DefaultReactor();
  *response = coordinator_.Describe();
  response->set_metrics_address(metrics_address_);
  Finish(reactor, "GetCluster", absl::OkStatus());
  return reactor;
}

}  // namespace fsdp::coordinator
