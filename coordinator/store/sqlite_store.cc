#include "coordinator/store/sqlite_store.h"

#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

constexpr std::int64_t kApplicationId = 0x46534450;  // "FSDP"
constexpr std::int64_t kSchemaVersion = 1;

// Rows hold protobuf blobs; columns beside them are what is searched by. Version 1; a change adds a
// version and a migration, never edits this text.
constexpr char kSchema[] = R"sql(
CREATE TABLE jobs (
  id TEXT PRIMARY KEY NOT NULL, position INTEGER NOT NULL UNIQUE, queue TEXT NOT NULL,
  priority INTEGER NOT NULL, state INTEGER NOT NULL, create_micros INTEGER NOT NULL,
  record BLOB NOT NULL) STRICT;
CREATE INDEX jobs_by_state ON jobs(state, position);
CREATE TABLE request_ids (
  request_id TEXT PRIMARY KEY NOT NULL, job TEXT NOT NULL UNIQUE) STRICT, WITHOUT ROWID;
CREATE TABLE attempts (
  job TEXT NOT NULL, attempt INTEGER NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (job, attempt)) STRICT, WITHOUT ROWID;
CREATE TABLE events (
  job TEXT NOT NULL, position INTEGER NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (job, position)) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoints (
  job TEXT NOT NULL, step INTEGER NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (job, step)) STRICT, WITHOUT ROWID;
CREATE TABLE workers (id TEXT PRIMARY KEY NOT NULL, record BLOB NOT NULL) STRICT;
CREATE TABLE logs (
  job TEXT NOT NULL, position INTEGER NOT NULL, rank INTEGER NOT NULL, attempt INTEGER NOT NULL,
  record BLOB NOT NULL, PRIMARY KEY (job, position)) STRICT, WITHOUT ROWID;
CREATE TABLE metrics (
  job TEXT NOT NULL, position INTEGER NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (job, position)) STRICT, WITHOUT ROWID;
CREATE TABLE rendezvous (
  job TEXT NOT NULL, epoch INTEGER NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (job, epoch, name)) STRICT, WITHOUT ROWID;
)sql";

// Tables that came later and that earlier programs can do without: made where they are missing, and
// no new version, so that an earlier coordinator can still be put back.
constexpr char kLaterTables[] = R"sql(
CREATE TABLE IF NOT EXISTS cluster (id INTEGER PRIMARY KEY CHECK (id = 1), record BLOB NOT NULL)
  STRICT;
CREATE TABLE IF NOT EXISTS join_tokens (id TEXT PRIMARY KEY NOT NULL, record BLOB NOT NULL) STRICT;
)sql";

}  // namespace

struct SqliteStore::Statements {
  SqliteStatement put_job, put_request, put_attempt, put_event, put_checkpoint, drop_checkpoint,
      put_worker, drop_worker, put_cluster, put_join_token, drop_join_token, put_log, put_metric,
      clear_rendezvous, put_rendezvous;
  std::vector<SqliteStatement> delete_job;

  absl::Status Prepare(SqliteConnection& db) {
    const std::pair<SqliteStatement*, const char*> list[] = {
        {&put_job,
         "INSERT INTO jobs(id, position, queue, priority, state, create_micros, record) VALUES "
         "(?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET state=excluded.state, "
         "record=excluded.record, priority=excluded.priority, queue=excluded.queue"},
        {&put_request, "INSERT OR IGNORE INTO request_ids(request_id, job) VALUES (?,?)"},
        {&put_attempt, "INSERT OR REPLACE INTO attempts(job, attempt, record) VALUES (?,?,?)"},
        {&put_event, "INSERT OR REPLACE INTO events(job, position, record) VALUES (?,?,?)"},
        {&put_checkpoint, "INSERT OR REPLACE INTO checkpoints(job, step, record) VALUES (?,?,?)"},
        {&drop_checkpoint, "DELETE FROM checkpoints WHERE job=? AND step=?"},
        {&put_worker, "INSERT OR REPLACE INTO workers(id, record) VALUES (?,?)"},
        {&drop_worker, "DELETE FROM workers WHERE id=?"},
        {&put_cluster, "INSERT OR REPLACE INTO cluster(id, record) VALUES (1,?)"},
        {&put_join_token, "INSERT OR REPLACE INTO join_tokens(id, record) VALUES (?,?)"},
        {&drop_join_token, "DELETE FROM join_tokens WHERE id=?"},
        {&put_log,
         "INSERT OR REPLACE INTO logs(job, position, rank, attempt, record) VALUES (?,?,?,?,?)"},
        {&put_metric, "INSERT OR REPLACE INTO metrics(job, position, record) VALUES (?,?,?)"},
        {&clear_rendezvous, "DELETE FROM rendezvous WHERE job=?"},
        {&put_rendezvous,
         "INSERT OR REPLACE INTO rendezvous(job, epoch, name, value) VALUES (?,?,?,?)"},
    };
    for (const auto& [statement, sql] : list) {
      ASSIGN_OR_RETURN(*statement, db.Prepare(sql));
    }
    for (const char* sql :
         {"DELETE FROM jobs WHERE id=?", "DELETE FROM request_ids WHERE job=?",
          "DELETE FROM attempts WHERE job=?", "DELETE FROM events WHERE job=?",
          "DELETE FROM checkpoints WHERE job=?", "DELETE FROM logs WHERE job=?",
          "DELETE FROM metrics WHERE job=?", "DELETE FROM rendezvous WHERE job=?"}) {
      ASSIGN_OR_RETURN(delete_job.emplace_back(), db.Prepare(sql));
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(SqliteStoreOptions options,
                                                               StoreObserver observer) {
  auto store =
      std::unique_ptr<SqliteStore>(new SqliteStore(std::move(options), std::move(observer)));
  RETURN_IF_ERROR(store->Start());
  return store;
}

SqliteStore::SqliteStore(SqliteStoreOptions options, StoreObserver observer)
    : options_(std::move(options)), writes_(std::move(observer), options_.max_batches_per_flush) {}

SqliteStore::~SqliteStore() { writes_.Stop(); }

// What SQLite says names neither the file nor what to do.
absl::Status SqliteStore::Explain(const absl::Status& status) const {
  std::string remedy;
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      remedy = absl::StrCat("free space in ", options_.directory,
                            " and start the coordinator again: it goes on from what is stored");
      break;
    case absl::StatusCode::kDataLoss:
      remedy = absl::StrCat(
          "the file is damaged or not a coordinator's: put back a copy of it, or move it and its "
          "-wal and -shm away to start without the jobs in it");
      break;
    case absl::StatusCode::kPermissionDenied:
      remedy = "give the coordinator's user the right to write there";
      break;
    case absl::StatusCode::kInternal:
      remedy = absl::StrCat("see to the disk under ", options_.directory,
                            " and start the coordinator again: it goes on from what is stored");
      break;
    default:
      return Annotate(status, DatabasePath());
  }
  return Annotate(absl::Status(status.code(), absl::StrCat(status.message(), "; ", remedy)),
                  DatabasePath());
}

absl::Status SqliteStore::Start() {
  std::error_code error;
  std::filesystem::create_directories(options_.directory, error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", options_.directory, ")"));
  }
  ASSIGN_OR_RETURN(lock_file_, StateLock::Acquire(options_.directory));
  if (absl::Status opened = OpenDatabase(); !opened.ok()) return Explain(opened);
  writes_.Start(
      [this](const std::deque<WriteQueue::Pending>& group) -> absl::StatusOr<std::size_t> {
        if (absl::Status status = Commit(group); !status.ok()) return Explain(status);
        return group.size();
      });
  return absl::OkStatus();
}

absl::Status SqliteStore::OpenDatabase() {
  const std::string path = DatabasePath();
  ASSIGN_OR_RETURN(writer_, SqliteConnection::Open(path, /*read_only=*/false));
  // The database holds job specs and logs: its owner's business alone.
  chmod(path.c_str(), 0600);
  RETURN_IF_ERROR(PrepareSchema());
  RETURN_IF_ERROR(writer_.Execute(kLaterTables));
  statements_ = std::make_unique<Statements>();
  RETURN_IF_ERROR(statements_->Prepare(writer_));
  ASSIGN_OR_RETURN(reader_, SqliteConnection::Open(path, /*read_only=*/true));
  return absl::OkStatus();
}

absl::Status SqliteStore::CheckSchema(SqliteConnection& database) {
  ASSIGN_OR_RETURN(const std::int64_t application, database.QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const std::int64_t version, database.QueryInt("PRAGMA user_version"));
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(
        "another program's database; move it away, or give --state-dir another value");
  }
  if (version != kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat("it has schema version ", version,
                                                      "; this program knows ", kSchemaVersion,
                                                      ": use a newer fsdp-coordinator"));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::PrepareSchema() {
  RETURN_IF_ERROR(writer_.Execute(
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000;"
      "PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-32768;"));
  ASSIGN_OR_RETURN(const std::int64_t tables,
                   writer_.QueryInt("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) {
    return writer_.Execute(absl::StrCat("BEGIN IMMEDIATE; PRAGMA application_id=", kApplicationId,
                                        "; PRAGMA user_version=", kSchemaVersion, ";", kSchema,
                                        "COMMIT;"));
  }
  RETURN_IF_ERROR(CheckSchema(writer_));
  ASSIGN_OR_RETURN(
      const std::int64_t bytes,
      writer_.QueryInt("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"));
  if (bytes > options_.integrity_check_max_bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string verdict, writer_.QueryText("PRAGMA quick_check(1)"));
  if (verdict != "ok") {
    return absl::DataLossError(absl::StrCat("corrupt: ", verdict));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Commit(const std::deque<WriteQueue::Pending>& group) {
  RETURN_IF_ERROR(writer_.Execute("BEGIN IMMEDIATE"));
  for (const WriteQueue::Pending& pending : group) {
    if (absl::Status status = Apply(pending.batch); !status.ok()) {
      writer_.Execute("ROLLBACK").IgnoreError();
      return status;
    }
  }
  absl::Status status = writer_.Execute("COMMIT");
  if (!status.ok()) writer_.Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SqliteStore::Apply(const StoreBatch& batch) {
  RETURN_IF_ERROR(ApplyJobs(batch));
  return ApplyStreams(batch);
}

absl::Status SqliteStore::ApplyJobs(const StoreBatch& batch) {
  Statements& s = *statements_;
  for (const JobId& id : batch.deleted_jobs) {
    for (SqliteStatement& statement : s.delete_job) {
      RETURN_IF_ERROR(statement.Bind(1, id.value()).Run());
    }
  }
  for (const records::JobRecord& record : batch.jobs) {
    const v1::Job& job = record.job();
    const std::string id = JobIdOf(job).value();
    const std::int64_t create_micros =
        job.create_time().seconds() * 1'000'000 + job.create_time().nanos() / 1000;
    RETURN_IF_ERROR(s.put_job.Bind(1, id)
                        .Bind(2, record.position())
                        .Bind(3, job.spec().spec().queue())
                        .Bind(4, job.spec().spec().priority())
                        .Bind(5, static_cast<std::int64_t>(job.state()))
                        .Bind(6, create_micros)
                        .BindBlob(7, record.SerializeAsString())
                        .Run());
    if (!job.request_id().empty()) {
      RETURN_IF_ERROR(s.put_request.Bind(1, job.request_id()).Bind(2, id).Run());
    }
  }
  for (const auto& item : batch.attempts) {
    RETURN_IF_ERROR(s.put_attempt.Bind(1, item.job.value())
                        .Bind(2, item.record.attempt())
                        .BindBlob(3, item.record.SerializeAsString())
                        .Run());
  }
  for (const auto& item : batch.dropped_checkpoints) {
    RETURN_IF_ERROR(s.drop_checkpoint.Bind(1, item.job.value()).Bind(2, item.record).Run());
  }
  for (const auto& item : batch.checkpoints) {
    RETURN_IF_ERROR(s.put_checkpoint.Bind(1, item.job.value())
                        .Bind(2, item.record.step())
                        .BindBlob(3, item.record.SerializeAsString())
                        .Run());
  }
  for (const WorkerId& id : batch.deleted_workers) {
    RETURN_IF_ERROR(s.drop_worker.Bind(1, id.value()).Run());
  }
  for (const records::WorkerRecord& worker : batch.workers) {
    RETURN_IF_ERROR(
        s.put_worker.Bind(1, worker.id()).BindBlob(2, worker.SerializeAsString()).Run());
  }
  if (batch.cluster) {
    RETURN_IF_ERROR(s.put_cluster.BindBlob(1, batch.cluster->SerializeAsString()).Run());
  }
  for (const std::string& id : batch.deleted_join_tokens) {
    RETURN_IF_ERROR(s.drop_join_token.Bind(1, id).Run());
  }
  for (const records::JoinTokenRecord& token : batch.join_tokens) {
    RETURN_IF_ERROR(
        s.put_join_token.Bind(1, token.id()).BindBlob(2, token.SerializeAsString()).Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::ApplyStreams(const StoreBatch& batch) {
  Statements& s = *statements_;
  for (const auto& item : batch.events) {
    RETURN_IF_ERROR(s.put_event.Bind(1, item.job.value())
                        .Bind(2, item.record.sequence())
                        .BindBlob(3, item.record.SerializeAsString())
                        .Run());
  }
  for (const auto& item : batch.logs) {
    RETURN_IF_ERROR(s.put_log.Bind(1, item.job.value())
                        .Bind(2, item.record.offset())
                        .Bind(3, item.record.rank())
                        .Bind(4, item.record.attempt())
                        .BindBlob(5, item.record.SerializeAsString())
                        .Run());
  }
  for (const auto& item : batch.metrics) {
    RETURN_IF_ERROR(s.put_metric.Bind(1, item.job.value())
                        .Bind(2, item.record.offset())
                        .BindBlob(3, item.record.SerializeAsString())
                        .Run());
  }
  for (const JobId& id : batch.cleared_rendezvous) {
    RETURN_IF_ERROR(s.clear_rendezvous.Bind(1, id.value()).Run());
  }
  for (const RendezvousItem& item : batch.rendezvous) {
    RETURN_IF_ERROR(s.put_rendezvous.Bind(1, item.job.value())
                        .Bind(2, item.epoch.value())
                        .Bind(3, item.name)
                        .BindBlob(4, item.value)
                        .Run());
  }
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator
