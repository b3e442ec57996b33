#include "coordinator/store/etcd/etcd_store.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Of a chunk of a stream; one record may be larger.
constexpr std::size_t kChunkBytes = std::size_t{128} << 10;

// A job's records of one batch, cut into chunks: serialized, by the position of the last record.
struct Chunks {
  std::map<std::int64_t, std::string> values;
  std::int64_t bytes = 0;
};

template <typename Chunk, typename Record, typename Position>
std::map<JobId, Chunks> ChunksOf(const std::vector<JobItem<Record>>& items, Position position) {
  std::map<JobId, std::vector<const Record*>> by_job;
  for (const JobItem<Record>& item : items) by_job[item.job].push_back(&item.record);
  std::map<JobId, Chunks> result;
  for (const auto& [job, list] : by_job) {
    Chunks& chunks = result[job];
    Chunk chunk;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      *chunk.add_entries() = *list[i];
      bytes += list[i]->ByteSizeLong();
      if (i + 1 < list.size() && bytes < kChunkBytes) continue;
      std::string& value = chunks.values[position(*list[i])];
      value = chunk.SerializeAsString();
      chunks.bytes += static_cast<std::int64_t>(value.size());
      chunk.Clear();
      bytes = 0;
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdStore>> EtcdStore::Open(EtcdStoreOptions options, Etcd* etcd,
                                                           Leadership leadership,
                                                           StoreObserver observer) {
  auto store = std::unique_ptr<EtcdStore>(
      new EtcdStore(std::move(options), etcd, leadership, std::move(observer)));
  if (absl::Status started = store->Start(); !started.ok()) return store->Explain(started);
  return store;
}

EtcdStore::EtcdStore(EtcdStoreOptions options, Etcd* etcd, Leadership leadership,
                     StoreObserver observer)
    : options_(std::move(options)),
      etcd_(*etcd),
      keys_(options_.prefix),
      log_(etcd, keys_, leadership, options_.limits, options_.patience),
      compacted_at_(Clock::Real().Now()),
      writes_(std::move(observer)) {}

absl::Status EtcdStore::Start() {
  RETURN_IF_ERROR(log_.Open());
  compact_to_ = log_.revision();
  const auto job_of = [](const std::string& key, const std::string& all) {
    const std::string rest = key.substr(all.size());
    return JobId(EtcdKeys::Unescaped(std::string_view(rest).substr(0, rest.find('/'))));
  };
  const std::string tails = keys_.Tails();
  RETURN_IF_ERROR(
      Scan(tails, EtcdKeys::EndOf(tails),
           [&](const std::string& key, const std::string& value) -> absl::StatusOr<bool> {
             if (!tails_[job_of(key, tails)].ParseFromString(value)) {
               return absl::DataLossError("etcd's key " + key + " does not parse");
             }
             return true;
           }));
  const std::string rendezvous = keys_.All("rendezvous");
  RETURN_IF_ERROR(Scan(rendezvous, EtcdKeys::EndOf(rendezvous),
                       [&](const std::string& key, const std::string&) -> absl::StatusOr<bool> {
                         rendezvous_keys_[job_of(key, rendezvous)].insert(key);
                         return true;
                       }));
  writes_.Start([this](const std::deque<WriteQueue::Pending>& group) { return Commit(group); });
  return absl::OkStatus();
}

absl::Status EtcdStore::Clear() {
  EtcdOps ops(options_.limits);
  for (const std::string& all :
       {keys_.Jobs(), keys_.Tails(), keys_.Workers(), keys_.JoinTokens()}) {
    ops.DeleteRange(all, EtcdKeys::EndOf(all));
  }
  for (const char* kind : EtcdKeys::kKinds) {
    ops.DeleteRange(keys_.All(kind), EtcdKeys::EndOf(keys_.All(kind)));
  }
  ops.Delete(keys_.Cluster());
  RETURN_IF_ERROR(log_.CommitStaged(ops));
  const std::lock_guard lock(tails_mutex_);
  tails_.clear();
  rendezvous_keys_.clear();
  return absl::OkStatus();
}

absl::Status EtcdStore::Explain(const absl::Status& status) const {
  std::string remedy;
  if (absl::IsResourceExhausted(status)) {
    remedy =
        "; etcd's space is used up: compact and defragment it, or raise its "
        "--quota-backend-bytes, then disarm its alarm (etcdctl alarm disarm) and start the "
        "coordinator again: it goes on from what is stored";
  } else if (IsPassing(status)) {
    remedy = "; see to etcd: more than half of its members must run and reach each other";
  } else if (absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "txn")) {
    remedy = "; etcd's --max-txn-ops must be at least 128";
  }
  if (remedy.empty()) return status;
  return {status.code(), absl::StrCat(status.message(), remedy)};
}

absl::StatusOr<std::size_t> EtcdStore::Commit(const std::deque<WriteQueue::Pending>& group) {
  EtcdTxn txn(options_.limits);
  std::size_t taken = 0;
  absl::Status status;
  for (const WriteQueue::Pending& pending : group) {
    // What it changes in memory holds whether this transaction takes it or the next.
    ASSIGN_OR_RETURN(const EtcdOps ops, OpsOf(pending.batch));
    if (!txn.AddAll(ops)) {
      if (!txn.empty()) RETURN_IF_ERROR(Explain(log_.Commit(txn)));
      txn = EtcdTxn(options_.limits);
      if (!txn.AddAll(ops)) {
        const std::unique_lock lock(staging_mutex_);
        txn = EtcdTxn(options_.limits);
        RETURN_IF_ERROR(Explain(log_.CommitStaged(ops)));
      }
    }
    ++taken;
  }
  // Nothing to write: those before it are durable.
  if (!txn.empty()) RETURN_IF_ERROR(Explain(log_.Commit(txn)));
  Compact();
  return taken;
}

void EtcdStore::Compact() {
  if (options_.compaction_period <= absl::ZeroDuration()) return;
  const MonotonicTime now = Clock::Real().Now();
  if (now - compacted_at_ < options_.compaction_period) return;
  compacted_at_ = now;
  const std::int64_t revision = std::exchange(compact_to_, log_.revision());
  const absl::Status status = etcd_.Compact(revision);
  // Somebody else of this etcd has gone further.
  if (!status.ok() && !absl::IsOutOfRange(status)) {
    LOG_WARNING("etcd is not compacted: %s; again in %s", std::string(status.message()),
                absl::FormatDuration(options_.compaction_period));
  }
}

absl::StatusOr<EtcdOps> EtcdStore::OpsOf(const StoreBatch& batch) {
  EtcdOps ops(options_.limits);
  AddJobs(batch, &ops);
  RETURN_IF_ERROR(AddStreams(batch, &ops));
  AddRendezvous(batch, &ops);
  return ops;
}

void EtcdStore::EraseJob(const JobId& job, EtcdOps* ops) {
  ops->Delete(keys_.Job(job));
  ops->Delete(keys_.Tails(job));
  for (const char* kind : EtcdKeys::kKinds) {
    const std::string prefix = keys_.Of(kind, job);
    ops->DeleteRange(prefix, EtcdKeys::EndOf(prefix));
    trimmed_to_.erase(prefix);
  }
  rendezvous_keys_.erase(job);
  const std::lock_guard lock(tails_mutex_);
  tails_.erase(job);
}

void EtcdStore::AddJobs(const StoreBatch& batch, EtcdOps* ops) {
  for (const JobId& job : batch.deleted_jobs) EraseJob(job, ops);
  for (const records::JobRecord& record : batch.jobs) {
    ops->Put(keys_.Job(JobIdOf(record.job())), record.SerializeAsString());
  }
  for (const auto& item : batch.attempts) {
    ops->Put(keys_.Of("attempts", item.job, item.record.attempt()),
             item.record.SerializeAsString());
  }
  for (const auto& item : batch.dropped_checkpoints) {
    ops->Delete(keys_.Of("checkpoints", item.job, item.record));
  }
  for (const auto& item : batch.checkpoints) {
    ops->Put(keys_.Of("checkpoints", item.job, item.record.step()),
             item.record.SerializeAsString());
  }
  for (const WorkerId& id : batch.deleted_workers) ops->Delete(keys_.Worker(id.value()));
  for (const records::WorkerRecord& worker : batch.workers) {
    ops->Put(keys_.Worker(worker.id()), worker.SerializeAsString());
  }
  if (batch.cluster) ops->Put(keys_.Cluster(), batch.cluster->SerializeAsString());
  for (const std::string& id : batch.deleted_join_tokens) ops->Delete(keys_.JoinToken(id));
  for (const records::JoinTokenRecord& token : batch.join_tokens) {
    ops->Put(keys_.JoinToken(token.id()), token.SerializeAsString());
  }
}

absl::Status EtcdStore::AddStreams(const StoreBatch& batch, EtcdOps* ops) {
  const auto put = [&](const char* kind, const JobId& job, const Chunks& chunks) {
    for (const auto& [last, value] : chunks.values) ops->Put(keys_.Of(kind, job, last), value);
    return chunks.values.rbegin()->first;
  };
  const auto offset = [](const auto& entry) { return entry.offset(); };
  for (const auto& [job, chunks] : ChunksOf<etcd_v1::EventChunk>(
           batch.events, [](const v1::JobEvent& event) { return event.sequence(); })) {
    put("events", job, chunks);
  }
  std::map<JobId, etcd_v1::Tails> changed;
  const auto tails = [&](const JobId& job) -> etcd_v1::Tails& {
    const auto [entry, added] = changed.try_emplace(job);
    const std::lock_guard lock(tails_mutex_);
    if (added) entry->second = tails_[job];
    return entry->second;
  };
  for (const auto& [job, chunks] : ChunksOf<etcd_v1::LogChunk>(batch.logs, offset)) {
    etcd_v1::Tails& tail = tails(job);
    tail.set_last_log(put("logs", job, chunks));
    ASSIGN_OR_RETURN(const std::int64_t kept,
                     Trim("logs", job, tail.log_bytes() + chunks.bytes, ops));
    tail.set_log_bytes(kept);
  }
  for (const auto& [job, chunks] : ChunksOf<etcd_v1::MetricChunk>(batch.metrics, offset)) {
    etcd_v1::Tails& tail = tails(job);
    tail.set_last_metric(put("metrics", job, chunks));
    ASSIGN_OR_RETURN(const std::int64_t kept,
                     Trim("metrics", job, tail.metric_bytes() + chunks.bytes, ops));
    tail.set_metric_bytes(kept);
  }
  for (auto& [job, tail] : changed) {
    ops->Put(keys_.Tails(job), tail.SerializeAsString());
    const std::lock_guard lock(tails_mutex_);
    tails_[job] = std::move(tail);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::int64_t> EtcdStore::Trim(const std::string& kind, const JobId& job,
                                             std::int64_t bytes, EtcdOps* ops) {
  if (bytes <= options_.history_bytes) return bytes;
  // An eighth more than needed, so that it is not done with every batch.
  const std::int64_t wanted = bytes - options_.history_bytes + options_.history_bytes / 8;
  const std::string prefix = keys_.Of(kind, job);
  const std::string begin = trimmed_to_.try_emplace(prefix, prefix).first->second;
  std::string end = begin;
  std::int64_t freed = 0;
  RETURN_IF_ERROR(
      Scan(begin, EtcdKeys::EndOf(prefix),
           [&](const std::string& key, const std::string& value) -> absl::StatusOr<bool> {
             freed += static_cast<std::int64_t>(value.size());
             // Behind the key and its parts.
             end = key + '\1';
             return freed < wanted;
           }));
  if (end != begin) ops->DeleteRange(begin, end);
  trimmed_to_[prefix] = end;
  return bytes - freed;
}

void EtcdStore::AddRendezvous(const StoreBatch& batch, EtcdOps* ops) {
  for (const JobId& job : batch.cleared_rendezvous) {
    const auto known = rendezvous_keys_.find(job);
    if (known == rendezvous_keys_.end()) continue;
    for (const std::string& key : known->second) ops->Delete(key);
    rendezvous_keys_.erase(known);
  }
  for (const RendezvousItem& item : batch.rendezvous) {
    const std::string key = keys_.Rendezvous(item.job, item.epoch, item.name);
    ops->Put(key, item.value);
    rendezvous_keys_[item.job].insert(key);
  }
}

}  // namespace fsdp::coordinator
