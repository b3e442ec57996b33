#ifndef FSDPCTL_COORDINATOR_RPC_JOB_STREAMS_H_
#define FSDPCTL_COORDINATOR_RPC_JOB_STREAMS_H_

// The four streams of JobService, as pull streams.

#include <atomic>
#include <functional>

#include "coordinator/events/job_directory.h"
#include "coordinator/rpc/stream_pump.h"
#include "coordinator/store/job_store.h"
#include "fsdp/v1/job_service.pb.h"
#include "grpcpp/support/server_callback.h"

namespace fsdp::coordinator {

struct StreamContext {
  JobDirectory* directory = nullptr;
  JobStore* store = nullptr;
  StreamPump* pump = nullptr;
  const std::atomic<bool>* draining = nullptr;
  // Before each message: may the reader still have it? Its error ends the stream.
  std::function<absl::Status()> recheck;
  // Told the end of a stream, for metrics.
  std::function<void(const absl::Status&)> on_end;
};

grpc::ServerWriteReactor<v1::WatchJobResponse>* StartWatch(const StreamContext& context,
                                                           const v1::WatchJobRequest& request);
grpc::ServerWriteReactor<v1::StreamEventsResponse>* StartEvents(
    const StreamContext& context, const v1::StreamEventsRequest& request);
grpc::ServerWriteReactor<v1::StreamLogsResponse>* StartLogs(const StreamContext& context,
                                                            const v1::StreamLogsRequest& request);
grpc::ServerWriteReactor<v1::StreamMetricsResponse>* StartMetrics(
    const StreamContext& context, const v1::StreamMetricsRequest& request);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_JOB_STREAMS_H_
