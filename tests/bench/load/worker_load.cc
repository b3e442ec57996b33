// Workers that speak the true protocol, each over a connection of its own, beating once a second;
// first idle, then as the ranks of one job that makes a step a second.

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/v1/cluster_service.grpc.pb.h"
#include "fsdp/v1/job_service.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "tests/bench/load/load_bench.h"
#include "tests/fakes/fake_worker.h"

namespace fsdp::bench {
namespace {

using testing::FakeWorker;
using testing::FakeWorkerOptions;
using testing::StepGate;

constexpr double kMaxCores = 1.0;
constexpr double kMaxResidentMib = 500;
constexpr double kJoinTimeout = 120;
constexpr int kWorkersPerHost = 8;

class WorkerRun {
 public:
  WorkerRun(const CoordinatorProcess& coordinator, const WorkerLoad& load)
      : coordinator_(coordinator),
        load_(load),
        channel_(grpc::CreateChannel(coordinator.address(), grpc::InsecureChannelCredentials())) {}

  bool Execute() {
    gate_.AllowUpTo(0);
    Connect();
    if (!WaitFor([&] { return CountWorkers(v1::WORKER_STATE_READY) == load_.workers; })) {
      std::fprintf(stderr, "%d of %d workers became READY\n", CountWorkers(v1::WORKER_STATE_READY),
                   load_.workers);
      return false;
    }
    const bool idle = Phase("idle", 0);
    const double begin = Seconds();
    if (!Submit()) return false;
    if (!WaitFor([&] { return JobState() == v1::JOB_STATE_RUNNING; })) {
      std::fprintf(stderr, "the job is %s\n", v1::JobState_Name(JobState()).c_str());
      return false;
    }
    std::printf("{\"load\":\"workers\",\"phase\":\"start\",\"ranks\":%d,\"seconds\":%.2f}\n",
                load_.workers, Seconds() - begin);
    return Phase("training", 1) && idle;
  }

 private:
  void Connect() {
    for (int i = 0; i < load_.workers; ++i) {
      FakeWorkerOptions options;
      options.name = absl::StrCat("w", i);
      options.host = absl::StrCat("host-", i / kWorkersPerHost);
      options.index = i % kWorkersPerHost;
      options.device_memory_bytes = std::int64_t{16} << 30;
      options.stream_limit = std::chrono::hours(1);
      workers_.push_back(std::make_unique<FakeWorker>(coordinator_.address(), options, &gate_));
      workers_.back()->Connect();
    }
  }

  // Every worker once a second, evenly over it, as real ones are; a step more each second.
  bool Phase(const char* name, int steps_per_second) {
    ResourceLog log(coordinator_);
    const double start = Seconds();
    std::int64_t beats = 0;
    int unready = 0;
    for (int second = 0; second < static_cast<int>(load_.seconds); ++second) {
      if (steps_per_second > 0) gate_.AllowUpTo(step_ += steps_per_second);
      for (int i = 0; i < load_.workers; ++i) {
        const double due = start + second + static_cast<double>(i) / load_.workers;
        const double wait = due - Seconds();
        if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
        workers_[static_cast<std::size_t>(i)]->Beat();
        ++beats;
      }
      log.Sample();
      const auto wanted = steps_per_second > 0 ? v1::WORKER_STATE_BUSY : v1::WORKER_STATE_READY;
      if (second % 10 == 9) unready = std::max(unready, load_.workers - CountWorkers(wanted));
    }
    const double rate = static_cast<double>(beats) / (Seconds() - start);
    if (steps_per_second > 0 && JobState() != v1::JOB_STATE_RUNNING) {
      std::fprintf(stderr, "the job is %s\n", v1::JobState_Name(JobState()).c_str());
    }
    const bool ok = unready == 0 && log.cores() < kMaxCores &&
                    log.max_resident_mib() < kMaxResidentMib && rate > 0.95 * load_.workers &&
                    (steps_per_second == 0 || JobState() == v1::JOB_STATE_RUNNING);
    std::printf(
        "{\"load\":\"workers\",\"phase\":\"%s\",\"ok\":%s,\"workers\":%d,\"beats_per_second\":%.0f,"
        "\"not_in_place\":%d,\"coordinator_cores\":%.3f,\"rss_first_mib\":%.1f,"
        "\"rss_last_mib\":%.1f,\"rss_max_mib\":%.1f}\n",
        name, ok ? "true" : "false", load_.workers, rate, unready, log.cores(),
        log.first_resident_mib(), log.last_resident_mib(), log.max_resident_mib());
    return ok;
  }

  bool Submit() {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    v1::CreateJobResponse response;
    *request.mutable_job() = SmallJob(load_.workers, 1'000'000);
    const grpc::Status status =
        v1::JobService::NewStub(channel_)->CreateJob(&context, request, &response);
    if (!status.ok()) std::fprintf(stderr, "CreateJob: %s\n", status.error_message().c_str());
    job_ = response.job().name();
    return status.ok();
  }

  v1::JobState JobState() {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    v1::GetJobResponse response;
    request.set_name(job_);
    const auto status = v1::JobService::NewStub(channel_)->GetJob(&context, request, &response);
    return status.ok() ? response.job().state() : v1::JOB_STATE_UNSPECIFIED;
  }

  int CountWorkers(v1::WorkerState state) {
    int count = 0;
    std::string token;
    do {
      grpc::ClientContext context;
      v1::ListWorkersRequest request;
      v1::ListWorkersResponse response;
      request.set_page_token(token);
      if (!v1::ClusterService::NewStub(channel_)->ListWorkers(&context, request, &response).ok()) {
        return -1;
      }
      for (const v1::Worker& worker : response.workers()) count += worker.state() == state ? 1 : 0;
      token = response.next_page_token();
    } while (!token.empty());
    return count;
  }

  template <typename Condition>
  bool WaitFor(Condition condition) {
    for (const double start = Seconds(); Seconds() - start < kJoinTimeout;) {
      if (condition()) return true;
      for (const auto& worker : workers_) worker->Beat();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    return condition();
  }

  const CoordinatorProcess& coordinator_;
  const WorkerLoad load_;
  const std::shared_ptr<grpc::Channel> channel_;
  StepGate gate_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::string job_;
  std::int64_t step_ = 0;
};

}  // namespace

bool RunWorkerLoad(const CoordinatorProcess& coordinator, const WorkerLoad& load) {
  return WorkerRun(coordinator, load).Execute();
}

}  // namespace fsdp::bench
