#include "coordinator/rpc/job_streams.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/resource_names.h"
#include "worker/plan/elastic_sizes.h"

namespace fsdp::coordinator {
namespace {

constexpr std::int64_t kRowsPerMessage = 500;
// Well below the 4 MiB that gRPC clients accept by default.
constexpr size_t kBytesPerMessage = 1 << 20;
// Rows that a filter leaves out are skipped in bulk, up to this many reads a message.
constexpr int kMaxEmptyReads = 40;

// What the streams share: the job, and whether the stream can end once it has read everything.
template <typename Response>
class JobStream : public PullStream<Response> {
 public:
  JobStream(const StreamContext& context, JobId job)
      : PullStream<Response>(*context.pump, *context.draining, context.recheck, context.on_end),
        directory_(*context.directory),
        store_(*context.store),
        job_(std::move(job)) {}

 protected:
  JobDirectory& directory_;
  JobStore& store_;
  const JobId job_;
};

class WatchStream : public JobStream<v1::WatchJobResponse> {
 public:
  WatchStream(const StreamContext& context, const v1::WatchJobRequest& request)
      : JobStream(context, JobIdFromName(request.name())), sent_(request.after_revision()) {}

 private:
  PullStep Next(v1::WatchJobResponse* response, absl::Status* status) override {
    const JobSnapshot job = directory_.Find(job_);
    if (job == nullptr) {
      *status = NoSuchJob(job_.value());
      return PullStep::kDone;
    }
    // A watcher that resumes after the last change still gets the final state once.
    const bool last = IsTerminal(job->state());
    if (job->revision() > sent_ || (last && !ended_)) {
      sent_ = job->revision();
      ended_ = last;
      *response->mutable_job() = *job;
      return PullStep::kMessage;
    }
    return last ? PullStep::kDone : PullStep::kWait;
  }

  std::int64_t sent_;
  bool ended_ = false;
};

class EventStream : public JobStream<v1::StreamEventsResponse> {
 public:
  EventStream(const StreamContext& context, const v1::StreamEventsRequest& request)
      : JobStream(context, JobIdFromName(request.name())),
        after_(request.after_sequence()),
        follow_(request.follow()) {}

 private:
  PullStep Next(v1::StreamEventsResponse* response, absl::Status* status) override {
    const JobSnapshot job = directory_.Find(job_);
    if (job == nullptr) *status = NoSuchJob(job_.value());
    if (job == nullptr) return PullStep::kDone;
    auto events = store_.ReadEvents(job_, after_, kRowsPerMessage);
    if (!events.ok()) {
      *status = WithInfo(events.status(), "STORE_FAILED");
      return PullStep::kDone;
    }
    for (v1::JobEvent& event : *events) {
      after_ = event.sequence();
      *response->add_events() = std::move(event);
    }
    if (response->events_size() > 0) return PullStep::kMessage;
    // Looked up before the read: what the final state came with has been read.
    return follow_ && !IsTerminal(job->state()) ? PullStep::kWait : PullStep::kDone;
  }

  std::int64_t after_;
  const bool follow_;
};

class MetricStream : public JobStream<v1::StreamMetricsResponse> {
 public:
  MetricStream(const StreamContext& context, const v1::StreamMetricsRequest& request)
      : JobStream(context, JobIdFromName(request.name())),
        after_(request.after_offset()),
        follow_(request.follow()) {}

 private:
  PullStep Next(v1::StreamMetricsResponse* response, absl::Status* status) override {
    const JobSnapshot job = directory_.Find(job_);
    if (job == nullptr) *status = NoSuchJob(job_.value());
    if (job == nullptr) return PullStep::kDone;
    auto metrics = store_.ReadMetrics(job_, after_, kRowsPerMessage);
    if (!metrics.ok()) {
      *status = WithInfo(metrics.status(), "STORE_FAILED");
      return PullStep::kDone;
    }
    for (v1::StepMetrics& entry : *metrics) {
      after_ = entry.offset();
      *response->add_metrics() = std::move(entry);
    }
    if (response->metrics_size() > 0) return PullStep::kMessage;
    return follow_ && !IsTerminal(job->state()) ? PullStep::kWait : PullStep::kDone;
  }

  std::int64_t after_;
  const bool follow_;
};

// A filter that no line of the job can match is a slip, not an empty log.
absl::Status CheckLogFilter(const v1::StreamLogsRequest& request, const v1::Job& job) {
  const std::int64_t world = std::max(job.ranks_size(), ElasticSizes(job.spec()).back());
  if (request.has_rank() && (request.rank() < 0 || request.rank() >= world)) {
    return BadField(
        "rank", absl::StrCat(request.rank()),
        absl::StrCat(request.rank(), ": ", job.name(), " has ",
                     world == 1 ? "rank 0 alone" : absl::StrCat("ranks 0..", world - 1)));
  }
  const bool may_come = request.follow() && !IsTerminal(job.state());
  if (request.attempt() < 0 || (request.attempt() > job.attempt() && !may_come)) {
    return BadField("attempt", absl::StrCat(request.attempt()),
                    absl::StrCat(request.attempt(), ": ", job.name(), " has ",
                                 job.attempt() == 0   ? "none yet"
                                 : job.attempt() == 1 ? "attempt 1 alone"
                                                      : absl::StrCat("attempts 1..", job.attempt()),
                                 "; 0 is all"));
  }
  return absl::OkStatus();
}

class LogLineStream : public JobStream<v1::StreamLogsResponse> {
 public:
  LogLineStream(const StreamContext& context, const v1::StreamLogsRequest& request)
      : JobStream(context, JobIdFromName(request.name())),
        request_(request),
        tail_(request.tail()) {
    query_.job = job_;
    query_.after = request.after_offset();
    if (request.has_rank()) query_.rank = request.rank();
    query_.attempt = request.attempt();
    query_.limit = kRowsPerMessage;
  }

 private:
  PullStep Next(v1::StreamLogsResponse* response, absl::Status* status) override {
    const JobSnapshot job = directory_.Find(job_);
    *status = job == nullptr ? NoSuchJob(job_.value()) : CheckLogFilter(request_, *job);
    if (!status->ok()) return PullStep::kDone;
    if (tail_ > 0) {
      auto after = store_.FindLogTail(query_, std::exchange(tail_, 0));
      if (!after.ok()) *status = WithInfo(after.status(), "STORE_FAILED");
      if (!after.ok()) return PullStep::kDone;
      query_.after = *after;
    }
    for (int i = 0; i < kMaxEmptyReads; ++i) {
      auto page = store_.ReadLogs(query_);
      if (!page.ok()) *status = WithInfo(page.status(), "STORE_FAILED");
      if (!page.ok()) return PullStep::kDone;
      const bool end = page->next_after == query_.after;
      Fill(std::move(*page), response);
      if (response->entries_size() > 0) return PullStep::kMessage;
      if (end)
        return request_.follow() && !IsTerminal(job->state()) ? PullStep::kWait : PullStep::kDone;
    }
    // Nothing matched for long: tell the reader how far it is.
    return PullStep::kMessage;
  }

  void Fill(LogPage page, v1::StreamLogsResponse* response) {
    size_t bytes = 0;
    query_.after = page.next_after;
    for (v1::LogEntry& entry : page.entries) {
      bytes += entry.ByteSizeLong();
      if (bytes > kBytesPerMessage && response->entries_size() > 0) {
        query_.after = response->entries(response->entries_size() - 1).offset();
        break;
      }
      *response->add_entries() = std::move(entry);
    }
    response->set_next_offset(query_.after);
  }

  LogQuery query_;
  const v1::StreamLogsRequest request_;
  std::int64_t tail_;
};

template <typename Stream, typename Request>
auto* Start(const StreamContext& context, const Request& request) {
  auto stream = std::make_shared<Stream>(context, request);
  auto* reactor = stream.get();
  reactor->Begin(*context.directory, JobIdFromName(request.name()));
  return reactor;
}

}  // namespace

grpc::ServerWriteReactor<v1::WatchJobResponse>* StartWatch(const StreamContext& context,
                                                           const v1::WatchJobRequest& request) {
  return Start<WatchStream>(context, request);
}

grpc::ServerWriteReactor<v1::StreamEventsResponse>* StartEvents(
    const StreamContext& context, const v1::StreamEventsRequest& request) {
  return Start<EventStream>(context, request);
}

grpc::ServerWriteReactor<v1::StreamLogsResponse>* StartLogs(const StreamContext& context,
                                                            const v1::StreamLogsRequest& request) {
  return Start<LogLineStream>(context, request);
}

grpc::ServerWriteReactor<v1::StreamMetricsResponse>* StartMetrics(
    const StreamContext& context, const v1::StreamMetricsRequest& request) {
  return Start<MetricStream>(context, request);
}

}  // namespace fsdp::coordinator
