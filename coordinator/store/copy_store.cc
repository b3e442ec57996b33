#include "coordinator/store/copy_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/store/resource_names.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Records of a stream that are in memory at a time.
constexpr std::int64_t kPage = 2000;

absl::Status WriteNow(JobStore& to, StoreBatch batch) {
  absl::Status written;
  to.Write(std::move(batch), [&written](absl::Status status) { written = std::move(status); });
  // `done` has run when it returns.
  RETURN_IF_ERROR(to.Flush());
  return written;
}

// `read(after)` gives the records after a position, `position` that of one, `list` where they go.
template <typename Record, typename Read, typename Position>
absl::Status CopyStream(JobStore& to, const JobId& job,
                        std::vector<JobItem<Record>> StoreBatch::* list, Read read,
                        Position position, std::int64_t* count) {
  std::int64_t after = 0;
  while (true) {
    ASSIGN_OR_RETURN(std::vector<Record> records, read(after));
    if (records.empty()) return absl::OkStatus();
    after = position(records.back());
    *count += static_cast<std::int64_t>(records.size());
    StoreBatch batch;
    for (Record& record : records) (batch.*list).push_back({job, std::move(record)});
    RETURN_IF_ERROR(WriteNow(to, std::move(batch)));
  }
}

absl::Status CopyJob(JobStore& from, JobStore& to, const StoredJob& stored, CopyCounts* counts) {
  const JobId job = JobIdOf(stored.record.job());
  const auto offset = [](const auto& record) { return record.offset(); };
  RETURN_IF_ERROR(CopyStream<v1::JobEvent>(
      to, job, &StoreBatch::events,
      [&](std::int64_t after) { return from.ReadEvents(job, after, kPage); },
      [](const v1::JobEvent& event) { return event.sequence(); }, &counts->events));
  RETURN_IF_ERROR(CopyStream<v1::StepMetrics>(
      to, job, &StoreBatch::metrics,
      [&](std::int64_t after) { return from.ReadMetrics(job, after, kPage); }, offset,
      &counts->steps));
  RETURN_IF_ERROR(CopyStream<v1::LogEntry>(
      to, job, &StoreBatch::logs,
      [&](std::int64_t after) -> absl::StatusOr<std::vector<v1::LogEntry>> {
        ASSIGN_OR_RETURN(LogPage page, from.ReadLogs({.job = job, .after = after, .limit = kPage}));
        return std::move(page.entries);
      },
      offset, &counts->log_lines));
  StoreBatch rest;
  for (const v1::Attempt& attempt : stored.attempts) rest.attempts.push_back({job, attempt});
  ASSIGN_OR_RETURN(const auto checkpoints, from.ReadCheckpoints(job));
  for (const v1::CheckpointInfo& info : checkpoints) rest.checkpoints.push_back({job, info});
  return WriteNow(to, std::move(rest));
}

}  // namespace

absl::StatusOr<CopyCounts> CopyStore(JobStore& from, JobStore& to) {
  ASSIGN_OR_RETURN(const StoreContents there, to.Load());
  if (!there.jobs.empty() || !there.workers.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store that is copied to has ", there.jobs.size(), " jobs and ",
                     there.workers.size(), " workers: nothing was changed; give an empty one"));
  }
  ASSIGN_OR_RETURN(StoreContents contents, from.Load());
  CopyCounts counts;
  counts.jobs = static_cast<std::int64_t>(contents.jobs.size());
  counts.workers = static_cast<std::int64_t>(contents.workers.size());
  StoreBatch last;
  for (StoredJob& stored : contents.jobs) {
    RETURN_IF_ERROR(CopyJob(from, to, stored, &counts));
    last.jobs.push_back(std::move(stored.record));
  }
  last.workers = std::move(contents.workers);
  last.rendezvous = std::move(contents.rendezvous);
  last.cluster = std::move(contents.cluster);
  ASSIGN_OR_RETURN(last.join_tokens, from.ReadJoinTokens());
  RETURN_IF_ERROR(WriteNow(to, std::move(last)));
  return counts;
}

}  // namespace fsdp::coordinator
