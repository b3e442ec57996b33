#ifndef FSDPCTL_COORDINATOR_STORE_SQLITE_STORE_H_
#define FSDPCTL_COORDINATOR_STORE_SQLITE_STORE_H_

// JobStore on SQLite (WAL, synchronous=FULL): one writer thread takes every batch that waits into
// one transaction, so concurrent submits share a disk flush. Readers use a connection of their own
// and do not wait for the writer.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "coordinator/store/job_store.h"
#include "coordinator/store/sqlite.h"

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
  //   FAILED_PRECONDITION  another process holds the directory (its pid is named), or the schema is
  //                        newer than this program
  //   DATA_LOSS            the database is corrupt
  //   PERMISSION_DENIED, RESOURCE_EXHAUSTED, NOT_FOUND  the directory cannot be written
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(SqliteStoreOptions options,
                                                           StoreObserver observer = {});
  // Writes what is queued, then closes.
  ~SqliteStore() override;

  absl::StatusOr<StoreContents> Load() override;
  void Write(StoreBatch batch, Done done) override;
  absl::Status Flush() override;
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const JobId& job, std::int64_t after,
                                                       std::int64_t limit) override;
  absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetrics(const JobId& job, std::int64_t after,
                                                           std::int64_t limit) override;
  absl::StatusOr<LogPage> ReadLogs(const LogQuery& query) override;
  absl::StatusOr<std::int64_t> FindLogTail(const LogQuery& query, std::int64_t num_lines) override;
  absl::StatusOr<std::vector<v1::CheckpointInfo>> ReadCheckpoints(const JobId& job) override;
  absl::StatusOr<std::vector<records::JoinTokenRecord>> ReadJoinTokens() override;

 private:
  struct Pending {
    StoreBatch batch;
    Done done;
  };
  // Prepared once; used by the writer thread alone.
  struct Statements;
  class LockFile;

  SqliteStore(SqliteStoreOptions options, StoreObserver observer);
  absl::Status Start();
  absl::Status OpenDatabase();
  absl::Status PrepareSchema();
  [[nodiscard]] std::string DatabasePath() const;
  // An error of the database with its file and the remedy.
  [[nodiscard]] absl::Status Explain(const absl::Status& status) const;
  void WriterLoop();
  absl::Status Commit(std::deque<Pending>& group);
  absl::Status Apply(const StoreBatch& batch);
  absl::Status ApplyJobs(const StoreBatch& batch);
  absl::Status ApplyStreams(const StoreBatch& batch);
  template <typename Record>
  absl::StatusOr<std::vector<Record>> ReadAfter(const std::string& table, const JobId& job,
                                                std::int64_t after, std::int64_t limit);

  const SqliteStoreOptions options_;
  const StoreObserver observer_;
  std::unique_ptr<LockFile> lock_file_;
  SqliteConnection writer_;
  std::unique_ptr<Statements> statements_;
  std::mutex reader_mutex_;
  SqliteConnection reader_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Pending> queue_;
  bool stopping_ = false;
  // Once a commit failed nothing is written any more: memory and disk would part.
  absl::Status failed_;
  std::thread thread_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_SQLITE_STORE_H_
