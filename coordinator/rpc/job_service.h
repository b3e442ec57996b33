#ifndef FSDPCTL_COORDINATOR_RPC_JOB_SERVICE_H_
#define FSDPCTL_COORDINATOR_RPC_JOB_SERVICE_H_

// JobService on the wire: let in (gate.h), decode, call, encode.

#include <atomic>
#include <memory>

#include "coordinator/coordinator.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/job_streams.h"
#include "coordinator/rpc/stream_pump.h"
#include "fsdp/v1/job_service.grpc.pb.h"

namespace fsdp::coordinator {

class JobServiceImpl : public v1::JobService::CallbackService {
 public:
  // All outlive the service.
  JobServiceImpl(Coordinator& coordinator, StreamPump& pump, Gate& gate,
                 const std::atomic<bool>& draining)
      : coordinator_(coordinator), pump_(pump), gate_(gate), draining_(draining) {}

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* CreateJob(Context* context, const v1::CreateJobRequest* request,
                   v1::CreateJobResponse* response) override;
  Unary* GetJob(Context* context, const v1::GetJobRequest* request,
                v1::GetJobResponse* response) override;
  Unary* ListJobs(Context* context, const v1::ListJobsRequest* request,
                  v1::ListJobsResponse* response) override;
  Unary* CancelJob(Context* context, const v1::CancelJobRequest* request,
                   v1::CancelJobResponse* response) override;
  Unary* SuspendJob(Context* context, const v1::SuspendJobRequest* request,
                    v1::SuspendJobResponse* response) override;
  Unary* ResumeJob(Context* context, const v1::ResumeJobRequest* request,
                   v1::ResumeJobResponse* response) override;
  Unary* RestartJob(Context* context, const v1::RestartJobRequest* request,
                    v1::RestartJobResponse* response) override;
  Unary* DeleteJob(Context* context, const v1::DeleteJobRequest* request,
                   v1::DeleteJobResponse* response) override;
  Unary* PlanJob(Context* context, const v1::PlanJobRequest* request,
                 v1::PlanJobResponse* response) override;
  Unary* ListCheckpoints(Context* context, const v1::ListCheckpointsRequest* request,
                         v1::ListCheckpointsResponse* response) override;
  Unary* ReadCheckpoint(Context* context, const v1::ReadCheckpointRequest* request,
                        v1::ReadCheckpointResponse* response) override;
  Unary* ProfileJob(Context* context, const v1::ProfileJobRequest* request,
                    v1::ProfileJobResponse* response) override;
  Unary* GetProfile(Context* context, const v1::GetProfileRequest* request,
                    v1::GetProfileResponse* response) override;
  Unary* ReadProfile(Context* context, const v1::ReadProfileRequest* request,
                     v1::ReadProfileResponse* response) override;
  Unary* DumpCollectives(Context* context, const v1::DumpCollectivesRequest* request,
                         v1::DumpCollectivesResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      Context* context, const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamEventsResponse>* StreamEvents(
      Context* context, const v1::StreamEventsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamLogsResponse>* StreamLogs(
      Context* context, const v1::StreamLogsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamMetricsResponse>* StreamMetrics(
      Context* context, const v1::StreamMetricsRequest* request) override;

 private:
  StreamContext Stream(std::shared_ptr<AdmittedCall> call);
  // Runs `verb`, whose callback fills `response` and finishes.
  template <typename Request, typename Response, typename Verb>
  Unary* RunVerb(Context* context, const Request& request, Response* response, Verb verb);

  Coordinator& coordinator_;
  StreamPump& pump_;
  Gate& gate_;
  const std::atomic<bool>& draining_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_JOB_SERVICE_H_
