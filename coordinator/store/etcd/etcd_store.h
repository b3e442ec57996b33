#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_STORE_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_STORE_H_

// JobStore on etcd v3, for the coordinator that leads (election.h). As many waiting batches as fit
// share a transaction; one that does not fit into one is staged (fenced_log.h).
//
// Of a job's log and of its step records etcd keeps the newest `history_bytes`: its store is small.
// All else is kept as in every store.

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>

#include "coordinator/store/etcd/etcd.h"
#include "coordinator/store/etcd/etcd_keys.h"
#include "coordinator/store/etcd/etcd_txn.h"
#include "coordinator/store/etcd/fenced_log.h"
#include "coordinator/store/job_store.h"
#include "coordinator/store/write_queue.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

struct EtcdStoreOptions {
  // As EtcdAddress::prefix.
  std::string prefix;
  // Of the logs, and as much of the metrics, of one job.
  std::int64_t history_bytes = std::int64_t{8} << 20;
  // How often what was overwritten is given up (compacted): after this long to twice as long. Zero:
  // never, etcd does it by itself.
  absl::Duration compaction_period = absl::Minutes(5);
  // How long a write is tried again while no member of etcd answers.
  absl::Duration patience = absl::Seconds(10);
  EtcdLimits limits;
};

class EtcdStore : public JobStore {
 public:
  // `etcd` outlives it.
  //   errors as FencedLog::Open
  static absl::StatusOr<std::unique_ptr<EtcdStore>> Open(EtcdStoreOptions options, Etcd* etcd,
                                                         Leadership leadership,
                                                         StoreObserver observer = {});
  // Writes what is queued.
  ~EtcdStore() override { writes_.Stop(); }

  // Removes everything, for a copy that begins anew. Before the first Write.
  absl::Status Clear();

  absl::StatusOr<StoreContents> Load() override;
  void Write(StoreBatch batch, Done done) override {
    writes_.Write(std::move(batch), std::move(done));
  }
  absl::Status Flush() override { return writes_.Flush(); }
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const JobId& job, std::int64_t after,
                                                       std::int64_t limit) override;
  absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetrics(const JobId& job, std::int64_t after,
                                                           std::int64_t limit) override;
  absl::StatusOr<LogPage> ReadLogs(const LogQuery& query) override;
  absl::StatusOr<std::int64_t> FindLogTail(const LogQuery& query, std::int64_t num_lines) override;
  absl::StatusOr<std::vector<v1::CheckpointInfo>> ReadCheckpoints(const JobId& job) override;
  absl::StatusOr<std::vector<records::JoinTokenRecord>> ReadJoinTokens() override;

 private:
  // False: enough.
  using OnItem =
      std::function<absl::StatusOr<bool>(const std::string& key, const std::string& value)>;

  EtcdStore(EtcdStoreOptions options, Etcd* etcd, Leadership leadership, StoreObserver observer);
  absl::Status Start();

  // --- Writing, on the queue's thread
  absl::StatusOr<std::size_t> Commit(const std::deque<WriteQueue::Pending>& group);
  absl::StatusOr<EtcdOps> OpsOf(const StoreBatch& batch);
  void AddJobs(const StoreBatch& batch, EtcdOps* ops);
  absl::Status AddStreams(const StoreBatch& batch, EtcdOps* ops);
  void AddRendezvous(const StoreBatch& batch, EtcdOps* ops);
  void EraseJob(const JobId& job, EtcdOps* ops);
  // Gives up the oldest chunks of a job's stream of so many bytes, if these are too many. How many
  // are left.
  absl::StatusOr<std::int64_t> Trim(const std::string& kind, const JobId& job, std::int64_t bytes,
                                    EtcdOps* ops);
  void Compact();
  // With the remedy.
  [[nodiscard]] absl::Status Explain(const absl::Status& status) const;

  // --- Reading
  absl::Status Scan(const std::string& begin, const std::string& end, const OnItem& on_item);
  template <typename Record>
  absl::StatusOr<std::vector<Record>> ReadAll(const std::string& prefix);
  // The records of a stream after a position, in order.
  template <typename Chunk, typename OnEntry>
  absl::Status ReadStream(const std::string& kind, const JobId& job, std::int64_t after,
                          OnEntry on_entry);
  absl::Status LoadJobs(StoreContents* contents);
  absl::Status LoadRendezvous(StoreContents* contents);

  const EtcdStoreOptions options_;
  Etcd& etcd_;
  const EtcdKeys keys_;
  FencedLog log_;
  // A staged batch is carried out in several transactions: nobody reads in between.
  std::shared_mutex staging_mutex_;

  std::mutex tails_mutex_;
  std::map<JobId, etcd_v1::Tails> tails_;
  // Of the queue's thread: the keys of each job's values.
  std::map<JobId, std::set<std::string>> rendezvous_keys_;
  // Of the queue's thread: where the rest of a stream that was trimmed begins, by its prefix.
  std::map<std::string, std::string> trimmed_to_;
  std::int64_t compact_to_ = 0;
  MonotonicTime compacted_at_;

  WriteQueue writes_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_STORE_H_
