#ifndef FSDPCTL_COORDINATOR_STORE_SQLITE_STORE_H_
#define FSDPCTL_COORDINATOR_STORE_SQLITE_STORE_H_

// JobStore on SQLite (WAL, synchronous=FULL): one writer thread takes every batch that waits into
// one transaction, so concurrent submits share a disk flush. Readers use a connection of their own
// and do not wait for the writer.

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "coordinator/store/job_store.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/state_lock.h"
#include "coordinator/store/write_queue.h"

namespace fsdp::coordinator {

struct SqliteStoreOptions {
  // Created when missing; holds jobs.db and the lock file.
  std::string directory;
  // Databases up to this size are checked for corruption when opened (about 1 s a GiB).
  std::int64_t integrity_check_max_bytes = 256LL << 20;
  // Batches of one transaction at most.
  int max_batches_per_flush = 1024;
};

class SqliteStore : public JobStore {
 public:
  // Is it one of ours?
  //   FAILED_PRECONDITION  another program's, or a later version's
  static absl::Status CheckSchema(SqliteConnection& database);
  static std::string DatabasePath(const std::string& directory) { return directory + "/jobs.db"; }

  //   FAILED_PRECONDITION  another process holds the directory (its pid and host are named), or the
  //   schema is
  //                        newer than this program
  //   DATA_LOSS            the database is corrupt
  //   PERMISSION_DENIED, RESOURCE_EXHAUSTED, NOT_FOUND  the directory cannot be written
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(SqliteStoreOptions options,
                                                           StoreObserver observer = {});
  // Writes what is queued, then closes.
  ~SqliteStore() override;

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
  // Prepared once; used by the writer thread alone.
  struct Statements;

  SqliteStore(SqliteStoreOptions options, StoreObserver observer);
  absl::Status Start();
  absl::Status OpenDatabase();
  absl::Status PrepareSchema();
  [[nodiscard]] std::string DatabasePath() const { return DatabasePath(options_.directory); }
  // An error of the database with its file and the remedy.
  [[nodiscard]] absl::Status Explain(const absl::Status& status) const;
  absl::Status Commit(const std::deque<WriteQueue::Pending>& group);
  absl::Status Apply(const StoreBatch& batch);
  absl::Status ApplyJobs(const StoreBatch& batch);
  absl::Status ApplyStreams(const StoreBatch& batch);
  template <typename Record>
  absl::StatusOr<std::vector<Record>> ReadAfter(const std::string& table, const JobId& job,
                                                std::int64_t after, std::int64_t limit);

  const SqliteStoreOptions options_;
  std::unique_ptr<StateLock> lock_file_;
  SqliteConnection writer_;
  std::unique_ptr<Statements> statements_;
  std::mutex reader_mutex_;
  SqliteConnection reader_;
  WriteQueue writes_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_SQLITE_STORE_H_
