#ifndef FSDPCTL_COORDINATOR_RPC_CLUSTER_SERVICE_H_
#define FSDPCTL_COORDINATOR_RPC_CLUSTER_SERVICE_H_

// ClusterService on the wire.

#include <string>
#include <utility>

#include "coordinator/coordinator.h"
#include "coordinator/rpc/gate.h"
#include "fsdp/v1/cluster_service.grpc.pb.h"

namespace fsdp::coordinator {

class ClusterServiceImpl : public v1::ClusterService::CallbackService {
 public:
  // Both outlive the service.
  ClusterServiceImpl(Coordinator& coordinator, Gate& gate)
      : coordinator_(coordinator), gate_(gate) {}

  // Known once the endpoint is bound; before the service serves.
  void SetMetricsAddress(std::string address) { metrics_address_ = std::move(address); }

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* ListWorkers(Context* context, const v1::ListWorkersRequest* request,
                     v1::ListWorkersResponse* response) override;
  Unary* GetWorker(Context* context, const v1::GetWorkerRequest* request,
                   v1::GetWorkerResponse* response) override;
  Unary* DrainWorker(Context* context, const v1::DrainWorkerRequest* request,
                     v1::DrainWorkerResponse* response) override;
  Unary* UncordonWorker(Context* context, const v1::UncordonWorkerRequest* request,
                        v1::UncordonWorkerResponse* response) override;
  Unary* GetCluster(Context* context, const v1::GetClusterRequest* request,
                    v1::GetClusterResponse* response) override;
  Unary* ListQueues(Context* context, const v1::ListQueuesRequest* request,
                    v1::ListQueuesResponse* response) override;
  Unary* GetQueue(Context* context, const v1::GetQueueRequest* request,
                  v1::GetQueueResponse* response) override;
  Unary* SetMaintenance(Context* context, const v1::SetMaintenanceRequest* request,
                        v1::SetMaintenanceResponse* response) override;

 private:
  Coordinator& coordinator_;
  Gate& gate_;
  std::string metrics_address_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_CLUSTER_SERVICE_H_
