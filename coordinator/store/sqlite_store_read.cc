// SqliteStore: what is read back, at the start and for streams.

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite_store.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

template <typename Record>
absl::StatusOr<Record> Parse(std::string_view bytes, std::string_view what) {
  Record record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError(absl::StrCat("a stored record does not parse: ", ToAbsl(what)));
  }
  return record;
}

}  // namespace

absl::StatusOr<StoreContents> SqliteStore::Load() {
  const std::lock_guard lock(reader_mutex_);
  StoreContents contents;
  std::map<std::string, size_t> index;
  ASSIGN_OR_RETURN(auto jobs, reader_.Prepare("SELECT id, record FROM jobs ORDER BY position"));
  ASSIGN_OR_RETURN(auto last_log, reader_.Prepare("SELECT max(position) FROM logs WHERE job=?"));
  ASSIGN_OR_RETURN(auto last_metric,
                   reader_.Prepare("SELECT max(position) FROM metrics WHERE job=?"));
  while (true) {
    ASSIGN_OR_RETURN(const bool found, jobs.Step());
    if (!found) break;
    const std::string id = jobs.Text(0);
    StoredJob& job = contents.jobs.emplace_back();
    ASSIGN_OR_RETURN(job.record, Parse<records::JobRecord>(jobs.Blob(1), "job " + id));
    index[id] = contents.jobs.size() - 1;
    for (auto [statement, value] :
         {std::pair{&last_log, &job.last_log}, std::pair{&last_metric, &job.last_metric}}) {
      ASSIGN_OR_RETURN(const bool any, statement->Bind(1, id).Step());
      if (any) *value = statement->Int(0);
      statement->Reset();
    }
  }
  ASSIGN_OR_RETURN(auto attempts,
                   reader_.Prepare("SELECT job, record FROM attempts ORDER BY job, attempt"));
  while (true) {
    ASSIGN_OR_RETURN(const bool found, attempts.Step());
    if (!found) break;
    const auto job = index.find(attempts.Text(0));
    if (job == index.end()) continue;
    ASSIGN_OR_RETURN(contents.jobs[job->second].attempts.emplace_back(),
                     Parse<v1::Attempt>(attempts.Blob(1), "attempt of " + job->first));
  }
  ASSIGN_OR_RETURN(auto workers, reader_.Prepare("SELECT id, record FROM workers ORDER BY id"));
  while (true) {
    ASSIGN_OR_RETURN(const bool found, workers.Step());
    if (!found) break;
    ASSIGN_OR_RETURN(contents.workers.emplace_back(),
                     Parse<records::WorkerRecord>(workers.Blob(1), "worker " + workers.Text(0)));
  }
  ASSIGN_OR_RETURN(auto cluster, reader_.Prepare("SELECT record FROM cluster"));
  ASSIGN_OR_RETURN(const bool has_cluster, cluster.Step());
  if (has_cluster) {
    ASSIGN_OR_RETURN(contents.cluster,
                     Parse<records::ClusterRecord>(cluster.Blob(0), "record of the cluster"));
  }
  ASSIGN_OR_RETURN(auto values, reader_.Prepare("SELECT job, epoch, name, value FROM rendezvous"));
  while (true) {
    ASSIGN_OR_RETURN(const bool found, values.Step());
    if (!found) break;
    contents.rendezvous.push_back(
        {JobId(values.Text(0)), Epoch(values.Int(1)), values.Text(2), std::string(values.Blob(3))});
  }
  return contents;
}

template <typename Record>
absl::StatusOr<std::vector<Record>> SqliteStore::ReadAfter(const std::string& table,
                                                           const JobId& job, std::int64_t after,
                                                           std::int64_t limit) {
  const std::lock_guard lock(reader_mutex_);
  ASSIGN_OR_RETURN(auto rows, reader_.Prepare(absl::StrCat(
                                  "SELECT record FROM ", table,
                                  " WHERE job=? AND position>? ORDER BY position LIMIT ?")));
  rows.Bind(1, job.value()).Bind(2, after).Bind(3, limit);
  std::vector<Record> result;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, rows.Step());
    if (!found) return result;
    ASSIGN_OR_RETURN(result.emplace_back(), Parse<Record>(rows.Blob(0), table));
  }
}

absl::StatusOr<std::vector<v1::JobEvent>> SqliteStore::ReadEvents(const JobId& job,
                                                                  std::int64_t after,
                                                                  std::int64_t limit) {
  return ReadAfter<v1::JobEvent>("events", job, after, limit);
}

absl::StatusOr<std::vector<v1::StepMetrics>> SqliteStore::ReadMetrics(const JobId& job,
                                                                      std::int64_t after,
                                                                      std::int64_t limit) {
  return ReadAfter<v1::StepMetrics>("metrics", job, after, limit);
}

absl::StatusOr<LogPage> SqliteStore::ReadLogs(const LogQuery& query) {
  const std::lock_guard lock(reader_mutex_);
  ASSIGN_OR_RETURN(
      auto rows, reader_.Prepare("SELECT position, rank, attempt, record FROM logs WHERE job=? AND "
                                 "position>? ORDER BY position LIMIT ?"));
  rows.Bind(1, query.job.value()).Bind(2, query.after).Bind(3, query.limit);
  LogPage page{.next_after = query.after};
  while (true) {
    ASSIGN_OR_RETURN(const bool found, rows.Step());
    if (!found) return page;
    page.next_after = rows.Int(0);
    const bool matches = (!query.rank || rows.Int(1) == *query.rank) &&
                         (query.attempt == 0 || rows.Int(2) == query.attempt);
    if (!matches) continue;
    ASSIGN_OR_RETURN(page.entries.emplace_back(), Parse<v1::LogEntry>(rows.Blob(3), "log line"));
  }
}

absl::StatusOr<std::int64_t> SqliteStore::FindLogTail(const LogQuery& query,
                                                      std::int64_t num_lines) {
  const std::lock_guard lock(reader_mutex_);
  ASSIGN_OR_RETURN(
      auto rows,
      reader_.Prepare("SELECT position FROM logs WHERE job=?1 AND (?2=-1 OR rank=?2) AND "
                      "(?3=0 OR attempt=?3) ORDER BY position DESC LIMIT 1 OFFSET ?4"));
  rows.Bind(1, query.job.value())
      .Bind(2, query.rank ? *query.rank : -1)
      .Bind(3, query.attempt)
      .Bind(4, num_lines);
  ASSIGN_OR_RETURN(const bool found, rows.Step());
  return found ? rows.Int(0) : 0;
}

absl::StatusOr<std::vector<v1::CheckpointInfo>> SqliteStore::ReadCheckpoints(const JobId& job) {
  const std::lock_guard lock(reader_mutex_);
  ASSIGN_OR_RETURN(auto rows, reader_.Prepare("SELECT record FROM checkpoints WHERE job=? "
                                              "ORDER BY step DESC"));
  rows.Bind(1, job.value());
  std::vector<v1::CheckpointInfo> result;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, rows.Step());
    if (!found) return result;
    ASSIGN_OR_RETURN(result.emplace_back(), Parse<v1::CheckpointInfo>(rows.Blob(0), "checkpoint"));
  }
}

absl::StatusOr<std::vector<records::JoinTokenRecord>> SqliteStore::ReadJoinTokens() {
  const std::lock_guard lock(reader_mutex_);
  ASSIGN_OR_RETURN(auto rows, reader_.Prepare("SELECT id, record FROM join_tokens ORDER BY id"));
  std::vector<records::JoinTokenRecord> result;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, rows.Step());
    if (!found) return result;
    ASSIGN_OR_RETURN(result.emplace_back(),
                     Parse<records::JoinTokenRecord>(rows.Blob(1), "join token " + rows.Text(0)));
  }
}

}  // namespace fsdp::coordinator
