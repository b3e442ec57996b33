// Submits at a fixed rate while watchers follow jobs. The rate is an open loop: a submit's latency
// counts from the moment at which it was due, so that a coordinator that stalls cannot slow the
// clients down and look better for it.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/v1/job_service.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "tests/bench/load/load_bench.h"

namespace fsdp::bench {
namespace {

constexpr int kSubmitters = 32;
constexpr int kRetirers = 4;
constexpr double kMaxGrowthRatio = 1.10;

// Jobs that were submitted and are not deleted yet, with the time of their next change.
class JobList {
 public:
  struct Entry {
    std::string name;
    double due = 0;
    bool cancelled = false;
  };
  void Add(Entry entry) {
    const std::lock_guard lock(mutex_);
    if (!entry.cancelled) newest_ = entry.name;
    entries_.push_back(std::move(entry));
  }
  // The first that is due; false: none is.
  bool Take(double now, Entry* entry) {
    const std::lock_guard lock(mutex_);
    if (entries_.empty() || entries_.front().due > now) return false;
    *entry = std::move(entries_.front());
    entries_.pop_front();
    return true;
  }
  std::string newest() {
    const std::lock_guard lock(mutex_);
    return newest_;
  }

 private:
  std::mutex mutex_;
  std::deque<Entry> entries_;
  std::string newest_;
};

class SubmitRun {
 public:
  SubmitRun(const CoordinatorProcess& coordinator, const SubmitLoad& load)
      : coordinator_(coordinator), load_(load), start_(Seconds()) {}

  bool Execute() {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(kSubmitters + kRetirers + load_.watchers));
    for (int i = 0; i < kSubmitters; ++i) threads.emplace_back([this, i] { Submit(i); });
    for (int i = 0; i < kRetirers; ++i) threads.emplace_back([this, i] { Retire(i); });
    for (int i = 0; i < load_.watchers; ++i) threads.emplace_back([this, i] { Watch(i); });
    ResourceLog log(coordinator_);
    while (Seconds() - start_ < load_.seconds) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      log.Sample();
    }
    stop_ = true;
    {
      const std::lock_guard lock(mutex_);
      for (grpc::ClientContext* context : watching_) context->TryCancel();
    }
    for (std::thread& thread : threads) thread.join();
    return Report(log);
  }

 private:
  // Channels are shared as a few client programs would.
  std::unique_ptr<v1::JobService::Stub> Stub(int i) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt("load.channel", i);
    return v1::JobService::NewStub(grpc::CreateCustomChannel(
        coordinator_.address(), grpc::InsecureChannelCredentials(), arguments));
  }

  void Submit(int submitter) {
    const auto stub = Stub(submitter % 8);
    while (!stop_) {
      const double due = start_ + static_cast<double>(next_++) / load_.submits_per_second;
      if (due > start_ + load_.seconds) return;
      std::this_thread::sleep_for(std::chrono::duration<double>(std::max(0.0, due - Seconds())));
      grpc::ClientContext context;
      v1::CreateJobRequest request;
      v1::CreateJobResponse response;
      *request.mutable_job() = SmallJob(1, 1);
      if (!Check("CreateJob", stub->CreateJob(&context, request, &response))) continue;
      const double now = Seconds();
      {
        const std::lock_guard lock(mutex_);
        latencies_.push_back(now - due);
      }
      jobs_.Add({response.job().name(), now + load_.job_seconds});
    }
  }

  void Retire(int retirer) {
    const auto stub = Stub(8 + retirer % 2);
    JobList::Entry entry;
    while (!stop_) {
      if (!jobs_.Take(Seconds(), &entry)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      grpc::ClientContext context;
      if (entry.cancelled) {
        v1::DeleteJobRequest request;
        v1::DeleteJobResponse response;
        request.set_name(entry.name);
        Check("DeleteJob", stub->DeleteJob(&context, request, &response));
        continue;
      }
      v1::CancelJobRequest request;
      v1::CancelJobResponse response;
      request.set_name(entry.name);
      if (Check("CancelJob", stub->CancelJob(&context, request, &response))) {
        jobs_.Add({entry.name, Seconds() + load_.job_seconds, true});
      }
    }
  }

  // Follows the newest job to its end, then the next.
  void Watch(int watcher) {
    const auto stub = Stub(10 + watcher % 20);
    while (!stop_) {
      const std::string job = jobs_.newest();
      if (job.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      grpc::ClientContext context;
      if (!Register(&context)) return;
      v1::WatchJobRequest request;
      request.set_name(job);
      const auto stream = stub->WatchJob(&context, request);
      v1::WatchJobResponse response;
      bool ended = false;
      while (stream->Read(&response)) {
        ++messages_;
        ended = response.job().state() == v1::JOB_STATE_CANCELLED;
      }
      const grpc::Status status = stream->Finish();
      Unregister(&context);
      if (stop_) return;
      if (Check("WatchJob", status) && !ended) Fail("WatchJob: ended before its job");
    }
  }

  bool Register(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    watching_.push_back(context);
    most_watching_ = std::max(most_watching_, watching_.size());
    return true;
  }
  void Unregister(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    std::erase(watching_, context);
  }

  bool Check(const char* call, const grpc::Status& status) {
    if (status.ok() || stop_) return status.ok();
    Fail(absl::StrCat(call, ": ", status.error_message()));
    return false;
  }
  void Fail(const std::string& message) {
    if (errors_++ < 5) std::fprintf(stderr, "%s\n", message.c_str());
  }

  bool Report(const ResourceLog& log) {
    std::ranges::sort(latencies_);
    const auto quantile_ms = [&](double q) {
      if (latencies_.empty()) return 0.0;
      const auto last = static_cast<double>(latencies_.size() - 1);
      return latencies_[static_cast<std::size_t>(q * last)] * 1e3;
    };
    const double growth = log.last_resident_mib() / log.first_resident_mib();
    const auto wanted = static_cast<std::size_t>(load_.submits_per_second * load_.seconds * 0.99);
    const bool ok = errors_ == 0 && latencies_.size() >= wanted &&
                    most_watching_ == static_cast<std::size_t>(load_.watchers) &&
                    growth <= kMaxGrowthRatio;
    std::printf(
        "{\"load\":\"submits\",\"ok\":%s,\"seconds\":%.0f,\"submits\":%zu,\"watchers\":%zu,"
        "\"watch_messages\":%lld,\"errors\":%d,\"submit_p50_ms\":%.2f,\"submit_p99_ms\":%.2f,"
        "\"submit_max_ms\":%.2f,\"coordinator_cores\":%.3f,\"rss_first_mib\":%.1f,"
        "\"rss_last_mib\":%.1f,\"rss_max_mib\":%.1f}\n",
        ok ? "true" : "false", load_.seconds, latencies_.size(), most_watching_,
        static_cast<long long>(messages_), errors_.load(), quantile_ms(0.5), quantile_ms(0.99),
        quantile_ms(1), log.cores(), log.first_resident_mib(), log.last_resident_mib(),
        log.max_resident_mib());
    return ok;
  }

  const CoordinatorProcess& coordinator_;
  const SubmitLoad load_;
  const double start_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::int64_t> messages_{0};
  std::atomic<int> errors_{0};
  JobList jobs_;
  std::mutex mutex_;
  std::vector<double> latencies_;
  std::vector<grpc::ClientContext*> watching_;
  std::size_t most_watching_ = 0;
};

}  // namespace

bool RunSubmitLoad(const CoordinatorProcess& coordinator, const SubmitLoad& load) {
  return SubmitRun(coordinator, load).Execute();
}

}  // namespace fsdp::bench
