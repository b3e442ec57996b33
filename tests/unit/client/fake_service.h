#ifndef FSDPCTL_TESTS_UNIT_CLIENT_FAKE_SERVICE_H_
#define FSDPCTL_TESTS_UNIT_CLIENT_FAKE_SERVICE_H_

// A small coordinator for client tests: real gRPC on a loopback port, jobs in memory, scripted
// errors. The port can be served again after Stop, as by a restarted coordinator that kept its
// state. Thread-safe.

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/cluster_service.grpc.pb.h"
#include "fsdp/v1/job_service.grpc.pb.h"

namespace fsdp {

// A status as the coordinator makes it: with ErrorInfo and, where given, bad fields.
grpc::Status ServiceError(grpc::StatusCode code, const std::string& message,
                          const std::string& reason,
                          const std::vector<std::pair<std::string, std::string>>& fields = {},
                          const std::map<std::string, std::string>& metadata = {});

class FakeService final : public v1::JobService::Service, public v1::ClusterService::Service {
 public:
  // 0: a free port.
  explicit FakeService(int port = 0);
  ~FakeService() override;

  // "127.0.0.1:PORT"; the same over restarts.
  [[nodiscard]] std::string address() const;
  void Stop();
  void Serve();

  // State.
  void PutJob(v1::Job job);
  // Changes the job and its revision, and wakes watchers.
  void UpdateJob(const std::string& name, const std::function<void(v1::Job&)>& change);
  void SetState(const std::string& name, v1::JobState state);
  v1::Job job(const std::string& name);
  void AddLog(const std::string& name, v1::LogEntry entry);
  void AddEvent(const std::string& name, v1::JobEvent event);
  void AddMetrics(const std::string& name, v1::StepMetrics metrics);
  void PutWorker(v1::Worker worker);
  void PutQueue(v1::Queue queue);

  // Replies of SuspendJob, RestartJob and DrainWorker carry it.
  void Warn(const std::string& warning);
  // SuspendJob answers while the ranks still save; SetState ends that.
  void SuspendSlowly();
  // Every unary call fails with this until it is set to OK.
  void FailUnary(grpc::Status status);
  // The next N unary calls fail with UNAVAILABLE after they took effect.
  void LoseAnswers(int count);
  // Answers ReadCheckpoint.
  using ReadPiece =
      std::function<absl::StatusOr<v1::ReadCheckpointResponse>(const v1::ReadCheckpointRequest&)>;
  void SetCheckpoint(ReadPiece read);
  // Streams end with UNAVAILABLE after this many messages, once.
  void BreakStreamAfter(int messages);
  // A stream that is asked to follow ends with OK although the job is not finished, once.
  void EndStreamEarly();

  int num_created();
  std::vector<std::string> calls();
  v1::CreateJobRequest last_create();
  // Requests of all log streams, in order.
  std::vector<v1::StreamLogsRequest> log_requests();
  // Blocks until that many streams were opened.
  void WaitForStreams(int count);

  using Context = grpc::ServerContext*;
  grpc::Status CreateJob(Context, const v1::CreateJobRequest*, v1::CreateJobResponse*) override;
  grpc::Status GetJob(Context, const v1::GetJobRequest*, v1::GetJobResponse*) override;
  grpc::Status ListJobs(Context, const v1::ListJobsRequest*, v1::ListJobsResponse*) override;
  grpc::Status CancelJob(Context, const v1::CancelJobRequest*, v1::CancelJobResponse*) override;
  grpc::Status SuspendJob(Context, const v1::SuspendJobRequest*, v1::SuspendJobResponse*) override;
  grpc::Status ResumeJob(Context, const v1::ResumeJobRequest*, v1::ResumeJobResponse*) override;
  grpc::Status RestartJob(Context, const v1::RestartJobRequest*, v1::RestartJobResponse*) override;
  grpc::Status DeleteJob(Context, const v1::DeleteJobRequest*, v1::DeleteJobResponse*) override;
  grpc::Status WatchJob(Context, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::WatchJobResponse>*) override;
  grpc::Status StreamLogs(Context, const v1::StreamLogsRequest*,
                          grpc::ServerWriter<v1::StreamLogsResponse>*) override;
  grpc::Status StreamEvents(Context, const v1::StreamEventsRequest*,
                            grpc::ServerWriter<v1::StreamEventsResponse>*) override;
  grpc::Status StreamMetrics(Context, const v1::StreamMetricsRequest*,
                             grpc::ServerWriter<v1::StreamMetricsResponse>*) override;
  grpc::Status ReadCheckpoint(Context, const v1::ReadCheckpointRequest*,
                              v1::ReadCheckpointResponse*) override;
  grpc::Status ListWorkers(Context, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse*) override;
  grpc::Status DrainWorker(Context, const v1::DrainWorkerRequest*,
                           v1::DrainWorkerResponse*) override;
  grpc::Status UncordonWorker(Context, const v1::UncordonWorkerRequest*,
                              v1::UncordonWorkerResponse*) override;
  grpc::Status GetCluster(Context, const v1::GetClusterRequest*, v1::GetClusterResponse*) override;
  grpc::Status ListQueues(Context, const v1::ListQueuesRequest*, v1::ListQueuesResponse*) override;
  grpc::Status GetQueue(Context, const v1::GetQueueRequest*, v1::GetQueueResponse*) override;
  grpc::Status SetMaintenance(Context, const v1::SetMaintenanceRequest*,
                              v1::SetMaintenanceResponse*) override;

 private:
  struct Record {
    v1::Job job;
    std::vector<v1::LogEntry> logs;
    std::vector<v1::JobEvent> events;
    std::vector<v1::StepMetrics> metrics;
  };

  // Notes the call; the error to answer with, after `effect` where it took effect.
  grpc::Status Enter(const std::string& call, const std::function<grpc::Status()>& effect);
  template <typename Response>
  void AddWarning(Response* response);
  grpc::Status WithJob(const std::string& name, const std::function<grpc::Status(Record&)>& use);
  grpc::Status Move(const std::string& call, const std::string& name, v1::JobState state,
                    const std::string& reason, v1::Job* out);
  // Sends items of a record from `next` on, and follows until the job is finished.
  grpc::Status Pump(Context context, const std::string& name, bool follow,
                    const std::function<bool(Record&, bool* sent)>& send);
  bool ShouldBreak();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Record> records_;
  std::map<std::string, v1::Worker> workers_;
  std::map<std::string, v1::Queue> queues_;
  v1::Maintenance maintenance_;
  std::map<std::string, std::string> request_ids_;
  std::vector<std::string> calls_;
  std::vector<v1::StreamLogsRequest> log_requests_;
  v1::CreateJobRequest last_create_;
  grpc::Status unary_error_;
  std::string warning_;
  ReadPiece read_piece_;
  bool suspend_slowly_ = false;
  int lost_answers_ = 0;
  int messages_until_break_ = -1;
  bool end_stream_early_ = false;
  int num_streams_ = 0;
  bool stopping_ = false;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_CLIENT_FAKE_SERVICE_H_
