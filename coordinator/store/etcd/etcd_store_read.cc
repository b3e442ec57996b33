// EtcdStore: what is read back, at the start and for streams.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/store/etcd/etcd_store.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Keys of one call: bounds an answer to some megabytes, with chunks as large as they get.
constexpr std::int64_t kKeysPerCall = 64;
// FindLogTail looks back by so many positions at first.
constexpr std::int64_t kTailWindow = 1000;

template <typename Record>
absl::StatusOr<Record> Parse(const std::string& key, const std::string& bytes) {
  Record record;
  if (!record.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("a stored record does not parse: etcd's key ", key));
  }
  return record;
}

bool Matches(const LogQuery& query, const v1::LogEntry& entry) {
  return (!query.rank || entry.rank() == *query.rank) &&
         (query.attempt == 0 || entry.attempt() == query.attempt);
}

}  // namespace

absl::Status EtcdStore::Scan(const std::string& begin, const std::string& end,
                             const OnItem& on_item) {
  etcd::RangeRequest request;
  request.set_key(begin);
  request.set_range_end(end);
  request.set_limit(kKeysPerCall);
  EtcdValueReader reader;
  while (true) {
    ASSIGN_OR_RETURN(const etcd::RangeResponse response, etcd_.Range(request));
    for (const etcd::KeyValue& kv : response.kvs()) {
      ASSIGN_OR_RETURN(const EtcdValueReader::Item* item, reader.Next(kv));
      if (item == nullptr) continue;
      ASSIGN_OR_RETURN(const bool more, on_item(item->key, item->value));
      if (!more) return absl::OkStatus();
    }
    if (!response.more() || response.kvs_size() == 0) return reader.End();
    request.set_key(response.kvs(response.kvs_size() - 1).key() + '\0');
    // All pages are of one moment.
    if (request.revision() == 0) request.set_revision(response.header().revision());
  }
}

template <typename Record>
absl::StatusOr<std::vector<Record>> EtcdStore::ReadAll(const std::string& prefix) {
  std::vector<Record> records;
  RETURN_IF_ERROR(
      Scan(prefix, EtcdKeys::EndOf(prefix),
           [&](const std::string& key, const std::string& value) -> absl::StatusOr<bool> {
             ASSIGN_OR_RETURN(records.emplace_back(), Parse<Record>(key, value));
             return true;
           }));
  return records;
}

absl::StatusOr<StoreContents> EtcdStore::Load() {
  const std::shared_lock lock(staging_mutex_);
  StoreContents contents;
  RETURN_IF_ERROR(LoadJobs(&contents));
  RETURN_IF_ERROR(LoadRendezvous(&contents));
  ASSIGN_OR_RETURN(contents.workers, ReadAll<records::WorkerRecord>(keys_.Workers()));
  RETURN_IF_ERROR(
      Scan(keys_.Cluster(), keys_.Cluster() + '\1',
           [&](const std::string& key, const std::string& value) -> absl::StatusOr<bool> {
             ASSIGN_OR_RETURN(contents.cluster, Parse<records::ClusterRecord>(key, value));
             return false;
           }));
  return contents;
}

absl::Status EtcdStore::LoadJobs(StoreContents* contents) {
  ASSIGN_OR_RETURN(std::vector<records::JobRecord> jobs, ReadAll<records::JobRecord>(keys_.Jobs()));
  std::sort(jobs.begin(), jobs.end(),
            [](const auto& a, const auto& b) { return a.position() < b.position(); });
  std::map<JobId, std::size_t> index;
  for (records::JobRecord& record : jobs) {
    const JobId id = JobIdOf(record.job());
    index[id] = contents->jobs.size();
    StoredJob& job = contents->jobs.emplace_back();
    job.record = std::move(record);
    const std::lock_guard tails_lock(tails_mutex_);
    if (const auto tails = tails_.find(id); tails != tails_.end()) {
      job.last_log = tails->second.last_log();
      job.last_metric = tails->second.last_metric();
    }
  }
  const std::string attempts = keys_.All("attempts");
  return Scan(attempts, EtcdKeys::EndOf(attempts),
              [&](const std::string& key, const std::string& value) -> absl::StatusOr<bool> {
                const std::string rest = key.substr(attempts.size());
                const auto job =
                    index.find(JobId(EtcdKeys::Unescaped(rest.substr(0, rest.find('/')))));
                if (job == index.end()) return true;
                ASSIGN_OR_RETURN(contents->jobs[job->second].attempts.emplace_back(),
                                 Parse<v1::Attempt>(key, value));
                return true;
              });
}

absl::Status EtcdStore::LoadRendezvous(StoreContents* contents) {
  const std::string all = keys_.All("rendezvous");
  return Scan(
      all, EtcdKeys::EndOf(all),
      [&](const std::string& key, const std::string& value) -> absl::StatusOr<bool> {
        const std::size_t epoch = key.find('/', all.size());
        const std::size_t name = key.find('/', epoch + 1);
        if (epoch == std::string::npos || name == std::string::npos) {
          return absl::DataLossError("etcd's key " + key + " is not one of a coordinator's");
        }
        contents->rendezvous.push_back(
            {JobId(EtcdKeys::Unescaped(key.substr(all.size(), epoch - all.size()))),
             Epoch(EtcdKeys::NumberOf(key.substr(0, name))),
             EtcdKeys::Unescaped(key.substr(name + 1)), value});
        return true;
      });
}

template <typename Chunk, typename OnEntry>
absl::Status EtcdStore::ReadStream(const std::string& kind, const JobId& job, std::int64_t after,
                                   OnEntry on_entry) {
  const std::shared_lock lock(staging_mutex_);
  return Scan(keys_.Of(kind, job, after + 1), EtcdKeys::EndOf(keys_.Of(kind, job)),
              [&](const std::string& key, const std::string& value) -> absl::StatusOr<bool> {
                ASSIGN_OR_RETURN(Chunk chunk, Parse<Chunk>(key, value));
                for (auto& entry : *chunk.mutable_entries()) {
                  if (!on_entry(entry)) return false;
                }
                return true;
              });
}

absl::StatusOr<std::vector<v1::JobEvent>> EtcdStore::ReadEvents(const JobId& job,
                                                                std::int64_t after,
                                                                std::int64_t limit) {
  std::vector<v1::JobEvent> events;
  RETURN_IF_ERROR(ReadStream<etcd_v1::EventChunk>("events", job, after, [&](v1::JobEvent& event) {
    if (event.sequence() > after) events.push_back(std::move(event));
    return static_cast<std::int64_t>(events.size()) < limit;
  }));
  return events;
}

absl::StatusOr<std::vector<v1::StepMetrics>> EtcdStore::ReadMetrics(const JobId& job,
                                                                    std::int64_t after,
                                                                    std::int64_t limit) {
  std::vector<v1::StepMetrics> metrics;
  RETURN_IF_ERROR(
      ReadStream<etcd_v1::MetricChunk>("metrics", job, after, [&](v1::StepMetrics& entry) {
        if (entry.offset() > after) metrics.push_back(std::move(entry));
        return static_cast<std::int64_t>(metrics.size()) < limit;
      }));
  return metrics;
}

absl::StatusOr<LogPage> EtcdStore::ReadLogs(const LogQuery& query) {
  LogPage page{.next_after = query.after};
  std::int64_t looked_at = 0;
  RETURN_IF_ERROR(
      ReadStream<etcd_v1::LogChunk>("logs", query.job, query.after, [&](v1::LogEntry& entry) {
        if (entry.offset() <= query.after) return true;
        page.next_after = entry.offset();
        if (Matches(query, entry)) page.entries.push_back(std::move(entry));
        return ++looked_at < query.limit;
      }));
  return page;
}

absl::StatusOr<std::int64_t> EtcdStore::FindLogTail(const LogQuery& query, std::int64_t num_lines) {
  std::int64_t end = 0;
  {
    const std::lock_guard lock(tails_mutex_);
    if (const auto tails = tails_.find(query.job); tails != tails_.end()) {
      end = tails->second.last_log();
    }
  }
  // Backwards, window by window; each is twice as wide as the last.
  for (std::int64_t width = kTailWindow; end > 0; width *= 2) {
    const std::int64_t begin = std::max<std::int64_t>(end - width, 0);
    std::vector<std::int64_t> matching;
    RETURN_IF_ERROR(
        ReadStream<etcd_v1::LogChunk>("logs", query.job, begin, [&](const v1::LogEntry& entry) {
          if (entry.offset() > end) return false;
          if (entry.offset() > begin && Matches(query, entry)) matching.push_back(entry.offset());
          return true;
        }));
    const auto found = static_cast<std::int64_t>(matching.size());
    if (found > num_lines) return matching[static_cast<std::size_t>(found - num_lines - 1)];
    num_lines -= found;
    end = begin;
  }
  return 0;
}

absl::StatusOr<std::vector<v1::CheckpointInfo>> EtcdStore::ReadCheckpoints(const JobId& job) {
  const std::shared_lock lock(staging_mutex_);
  ASSIGN_OR_RETURN(std::vector<v1::CheckpointInfo> checkpoints,
                   ReadAll<v1::CheckpointInfo>(keys_.Of("checkpoints", job)));
  std::reverse(checkpoints.begin(), checkpoints.end());
  return checkpoints;
}

absl::StatusOr<std::vector<records::JoinTokenRecord>> EtcdStore::ReadJoinTokens() {
  const std::shared_lock lock(staging_mutex_);
  return ReadAll<records::JoinTokenRecord>(keys_.JoinTokens());
}

}  // namespace fsdp::coordinator
