#ifndef FSDPCTL_COORDINATOR_STORE_JOB_STORE_H_
#define FSDPCTL_COORDINATOR_STORE_JOB_STORE_H_

// The coordinator's memory. One writer, many readers.
//
// Writes are batches: a batch is applied whole or not at all, batches are applied in the order of
// the calls, and `done` runs once the batch is durable (also in that order, on the store's thread:
// it must be short and must not call Flush). Several batches may share one disk flush.
//
// Thread-safe. Errors: UNAVAILABLE the store failed and takes no more writes (the message has the
// cause and the remedy); DATA_LOSS a stored record does not parse.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/store/record.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

namespace records = ::fsdp::records::v1;

// A log line, step record, event, ... and the job that it belongs to.
template <typename Record>
struct JobItem {
  JobId job;
  Record record;
};

struct RendezvousItem {
  JobId job;
  Epoch epoch;
  std::string name;
  std::string value;
};

struct StoreBatch {
  // New or replaced, by id. A record's request_id is indexed.
  std::vector<records::JobRecord> jobs;
  // With everything that belongs to them. Applied before all else.
  std::vector<JobId> deleted_jobs;
  std::vector<JobItem<v1::Attempt>> attempts;
  std::vector<JobItem<v1::JobEvent>> events;
  // New or replaced, by step.
  std::vector<JobItem<v1::CheckpointInfo>> checkpoints;
  std::vector<JobItem<std::int64_t>> dropped_checkpoints;
  std::vector<records::WorkerRecord> workers;
  // Applied before `workers`.
  std::vector<WorkerId> deleted_workers;
  std::vector<JobItem<v1::LogEntry>> logs;
  std::vector<JobItem<v1::StepMetrics>> metrics;
  std::vector<RendezvousItem> rendezvous;
  // Replaces the one record of the cluster.
  std::optional<records::ClusterRecord> cluster;
  // New or replaced, by id.
  std::vector<records::JoinTokenRecord> join_tokens;
  std::vector<std::string> deleted_join_tokens;
  // Rendezvous values of these jobs are dropped (their epoch is over). Applied before `rendezvous`.
  std::vector<JobId> cleared_rendezvous;
};

struct StoredJob {
  records::JobRecord record;
  std::vector<v1::Attempt> attempts;
  // The last positions used.
  std::int64_t last_log = 0;
  std::int64_t last_metric = 0;
};

struct StoreContents {
  // By position.
  std::vector<StoredJob> jobs;
  std::vector<records::WorkerRecord> workers;
  std::vector<RendezvousItem> rendezvous;
  records::ClusterRecord cluster;
};

struct LogQuery {
  JobId job;
  // Only entries after this offset.
  std::int64_t after = 0;
  std::optional<std::int32_t> rank;
  // 0: all.
  std::int32_t attempt = 0;
  // Entries looked at, not matched: bounds the time of a call.
  std::int64_t limit = 1000;
};

struct LogPage {
  std::vector<v1::LogEntry> entries;
  // Everything up to here was looked at.
  std::int64_t next_after = 0;
};

// Durations of the last flushes, for metrics; called on the store's thread.
struct StoreObserver {
  // One flush: how many batches it took along, and how long it lasted.
  std::function<void(absl::Duration duration, std::int64_t num_batches)> on_flush;
};

class JobStore {
 public:
  using Done = std::function<void(absl::Status)>;

  virtual ~JobStore() = default;

  virtual absl::StatusOr<StoreContents> Load() = 0;
  virtual void Write(StoreBatch batch, Done done) = 0;
  // Blocks until everything written so far is durable and its `done` has run.
  virtual absl::Status Flush() = 0;

  // In order, after `after`, at most `limit`. Unknown jobs have nothing.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const JobId& job, std::int64_t after,
                                                               std::int64_t limit) = 0;
  virtual absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetrics(const JobId& job,
                                                                   std::int64_t after,
                                                                   std::int64_t limit) = 0;
  virtual absl::StatusOr<LogPage> ReadLogs(const LogQuery& query) = 0;
  // The offset after which the last `num_lines` lines that match (rank, attempt) begin; `after` and
  // `limit` are not looked at.
  virtual absl::StatusOr<std::int64_t> FindLogTail(const LogQuery& query,
                                                   std::int64_t num_lines) = 0;
  // Newest first.
  virtual absl::StatusOr<std::vector<v1::CheckpointInfo>> ReadCheckpoints(const JobId& job) = 0;
  // By id.
  virtual absl::StatusOr<std::vector<records::JoinTokenRecord>> ReadJoinTokens() = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_JOB_STORE_H_
