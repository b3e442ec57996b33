#ifndef FSDPCTL_COORDINATOR_STORE_MEMORY_STORE_H_
#define FSDPCTL_COORDINATOR_STORE_MEMORY_STORE_H_

// JobStore's twin in memory: the same contract without a disk. `done` runs inside Write.

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/store/job_store.h"

namespace fsdp::coordinator {

class MemoryStore : public JobStore {
 public:
  absl::StatusOr<StoreContents> Load() override;
  void Write(StoreBatch batch, Done done) override;
  absl::Status Flush() override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const JobId& job, std::int64_t after,
                                                       std::int64_t limit) override;
  absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetrics(const JobId& job, std::int64_t after,
                                                           std::int64_t limit) override;
  absl::StatusOr<LogPage> ReadLogs(const LogQuery& query) override;
  absl::StatusOr<std::int64_t> FindLogTail(const LogQuery& query, std::int64_t num_lines) override;
  absl::StatusOr<std::vector<v1::CheckpointInfo>> ReadCheckpoints(const JobId& job) override;
  absl::StatusOr<std::vector<records::JoinTokenRecord>> ReadJoinTokens() override;

 private:
  struct JobData {
    records::JobRecord record;
    std::map<std::int32_t, v1::Attempt> attempts;
    std::map<std::int64_t, v1::JobEvent> events;
    std::map<std::int64_t, v1::CheckpointInfo> checkpoints;
    std::map<std::int64_t, v1::LogEntry> logs;
    std::map<std::int64_t, v1::StepMetrics> metrics;
    std::map<std::pair<std::int64_t, std::string>, std::string> rendezvous;
  };

  void Apply(StoreBatch& batch);

  std::mutex mutex_;
  std::map<JobId, JobData> jobs_;
  std::map<std::string, records::WorkerRecord> workers_;
  records::ClusterRecord cluster_;
  std::map<std::string, records::JoinTokenRecord> join_tokens_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_MEMORY_STORE_H_
