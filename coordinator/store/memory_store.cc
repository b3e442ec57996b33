#include "coordinator/store/memory_store.h"

#include <algorithm>

#include "coordinator/store/resource_names.h"

namespace fsdp::coordinator {
namespace {

bool Matches(const LogQuery& query, const v1::LogEntry& entry) {
  return (!query.rank || entry.rank() == *query.rank) &&
         (query.attempt == 0 || entry.attempt() == query.attempt);
}

template <typename Record>
std::vector<Record> After(const std::map<std::int64_t, Record>& rows, std::int64_t after,
                          std::int64_t limit) {
  std::vector<Record> result;
  for (auto row = rows.upper_bound(after); row != rows.end() && limit > 0; ++row, --limit) {
    result.push_back(row->second);
  }
  return result;
}

}  // namespace

absl::StatusOr<StoreContents> MemoryStore::Load() {
  const std::lock_guard lock(mutex_);
  StoreContents contents;
  for (const auto& [id, data] : jobs_) {
    StoredJob job{.record = data.record};
    for (const auto& [number, attempt] : data.attempts) job.attempts.push_back(attempt);
    if (!data.logs.empty()) job.last_log = data.logs.rbegin()->first;
    if (!data.metrics.empty()) job.last_metric = data.metrics.rbegin()->first;
    contents.jobs.push_back(std::move(job));
    for (const auto& [key, value] : data.rendezvous) {
      contents.rendezvous.push_back({id, Epoch(key.first), key.second, value});
    }
  }
  std::sort(contents.jobs.begin(), contents.jobs.end(),
            [](const auto& a, const auto& b) { return a.record.position() < b.record.position(); });
  for (const auto& [id, worker] : workers_) contents.workers.push_back(worker);
  contents.cluster = cluster_;
  return contents;
}

void MemoryStore::Write(StoreBatch batch, Done done) {
  {
    const std::lock_guard lock(mutex_);
    Apply(batch);
  }
  if (done) done(absl::OkStatus());
}

void MemoryStore::Apply(StoreBatch& batch) {
  for (const JobId& id : batch.deleted_jobs) jobs_.erase(id);
  for (auto& record : batch.jobs) jobs_[JobIdOf(record.job())].record = std::move(record);
  for (auto& item : batch.attempts) {
    jobs_[item.job].attempts[item.record.attempt()] = std::move(item.record);
  }
  for (auto& item : batch.events) {
    jobs_[item.job].events[item.record.sequence()] = std::move(item.record);
  }
  for (auto& item : batch.dropped_checkpoints) jobs_[item.job].checkpoints.erase(item.record);
  for (auto& item : batch.checkpoints) {
    jobs_[item.job].checkpoints[item.record.step()] = std::move(item.record);
  }
  for (const WorkerId& id : batch.deleted_workers) workers_.erase(id.value());
  for (auto& worker : batch.workers) workers_[worker.id()] = std::move(worker);
  if (batch.cluster) cluster_ = std::move(*batch.cluster);
  for (const std::string& id : batch.deleted_join_tokens) join_tokens_.erase(id);
  for (auto& token : batch.join_tokens) join_tokens_[token.id()] = std::move(token);
  for (auto& item : batch.logs) {
    jobs_[item.job].logs[item.record.offset()] = std::move(item.record);
  }
  for (auto& item : batch.metrics) {
    jobs_[item.job].metrics[item.record.offset()] = std::move(item.record);
  }
  for (const JobId& id : batch.cleared_rendezvous) jobs_[id].rendezvous.clear();
  for (auto& item : batch.rendezvous) {
    jobs_[item.job].rendezvous[{item.epoch.value(), item.name}] = std::move(item.value);
  }
}

absl::StatusOr<std::vector<v1::JobEvent>> MemoryStore::ReadEvents(const JobId& job,
                                                                  std::int64_t after,
                                                                  std::int64_t limit) {
  const std::lock_guard lock(mutex_);
  return After(jobs_[job].events, after, limit);
}

absl::StatusOr<std::vector<v1::StepMetrics>> MemoryStore::ReadMetrics(const JobId& job,
                                                                      std::int64_t after,
                                                                      std::int64_t limit) {
  const std::lock_guard lock(mutex_);
  return After(jobs_[job].metrics, after, limit);
}

absl::StatusOr<LogPage> MemoryStore::ReadLogs(const LogQuery& query) {
  const std::lock_guard lock(mutex_);
  LogPage page{.next_after = query.after};
  for (auto& entry : After(jobs_[query.job].logs, query.after, query.limit)) {
    page.next_after = entry.offset();
    if (Matches(query, entry)) page.entries.push_back(std::move(entry));
  }
  return page;
}

absl::StatusOr<std::int64_t> MemoryStore::FindLogTail(const LogQuery& query,
                                                      std::int64_t num_lines) {
  const std::lock_guard lock(mutex_);
  const auto& logs = jobs_[query.job].logs;
  for (auto row = logs.rbegin(); row != logs.rend(); ++row) {
    if (num_lines == 0) return row->first;
    if (Matches(query, row->second)) --num_lines;
  }
  return 0;
}

absl::StatusOr<std::vector<v1::CheckpointInfo>> MemoryStore::ReadCheckpoints(const JobId& job) {
  const std::lock_guard lock(mutex_);
  std::vector<v1::CheckpointInfo> result;
  const auto& rows = jobs_[job].checkpoints;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) result.push_back(row->second);
  return result;
}

absl::StatusOr<std::vector<records::JoinTokenRecord>> MemoryStore::ReadJoinTokens() {
  const std::lock_guard lock(mutex_);
  std::vector<records::JoinTokenRecord> tokens;
  for (const auto& [id, token] : join_tokens_) tokens.push_back(token);
  return tokens;
}

}  // namespace fsdp::coordinator
