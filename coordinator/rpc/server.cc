#include "coordinator/rpc/server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/metrics/exposition.h"
#include "coordinator/rpc/cluster_service.h"
#include "coordinator/rpc/job_service.h"
#include "coordinator/rpc/parse_guard.h"
#include "coordinator/rpc/stream_pump.h"
#include "coordinator/rpc/worker_service.h"
#include "coordinator/store/sqlite_store.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

constexpr int kPumpThreads = 2;
// How long calls are still answered with STORE_FAILED before the process ends for it.
constexpr absl::Duration kFailedStoreAnswers = absl::Seconds(1);
constexpr int kMaxReceiveBytes = 16 << 20;
constexpr const char* kServices[] = {"fsdp.v1.JobService", "fsdp.v1.WorkerService",
                                     "fsdp.v1.ClusterService", ""};

class ServerImpl : public Server {
 public:
  ServerImpl(const Options& options, std::function<void(absl::Status)> on_fatal,
             const Admission* admission, Clock* clock)
      : options_(options),
        on_fatal_(std::move(on_fatal)),
        clock_(clock == nullptr ? Clock::Real() : *clock),
        admission_(admission == nullptr ? &own_admission_ : admission) {}
  ~ServerImpl() override { Drain(); }

  absl::Status Start() {
    RETURN_IF_ERROR(ValidateOptions(options_));
    DeclareCounters(counters_);
    StoreObserver observer;
    observer.on_flush = [this](absl::Duration duration, std::int64_t /*batches*/) {
      counters_.Observe("fsdp_store_fsync_seconds", duration);
    };
    ASSIGN_OR_RETURN(store_, SqliteStore::Open({.directory = options_.state_dir}, observer));
    Coordinator::Dependencies dependencies;
    dependencies.clock = &clock_;
    dependencies.store = store_.get();
    dependencies.admission = admission_;
    dependencies.counters = &counters_;
    dependencies.on_fatal = [this](absl::Status status) { Fatal(std::move(status)); };
    ASSIGN_OR_RETURN(coordinator_, Coordinator::Create(options_, std::move(dependencies)));
    pump_ = std::make_unique<StreamPump>(kPumpThreads);
    if (!options_.metrics_listen.empty()) {
      ASSIGN_OR_RETURN(metrics_, MetricsEndpoint::Start(options_.metrics_listen,
                                                        std::make_shared<CoordinatorCollectable>(
                                                            *coordinator_, counters_)));
    }
    RETURN_IF_ERROR(Listen());
    ticker_ = std::thread([this] {
      do {
        coordinator_->Tick();
      } while (coordinator_->WaitForWork(options_.timing.tick_period));
    });
    SetHealth(true);
    return absl::OkStatus();
  }

  void Drain() override {
    if (draining_.exchange(true)) return;
    if (ticker_.joinable()) {
      coordinator_->Stop();
      ticker_.join();
    }
    if (grpc_ != nullptr) {
      SetHealth(false);
      // Calls that meet a closing server are cancelled by gRPC, without a reason: whoever writes
      // now hears of the store first.
      if (fatal_) absl::SleepFor(std::min(options_.drain_timeout, kFailedStoreAnswers));
      coordinator_->Drain();
      coordinator_->directory().NotifyAll();
      grpc_->Shutdown(std::chrono::system_clock::now() +
                      absl::ToChronoMilliseconds(options_.drain_timeout));
      grpc_->Wait();
    }
    metrics_.reset();
    if (store_ != nullptr) store_->Flush().IgnoreError();
    grpc_.reset();
    pump_.reset();
  }

  [[nodiscard]] int port() const override { return port_; }
  [[nodiscard]] int metrics_port() const override {
    return metrics_ == nullptr ? 0 : metrics_->port();
  }
  Coordinator& coordinator() override { return *coordinator_; }
  Counters& counters() override { return counters_; }

 private:
  absl::Status Listen() {
    job_service_ = std::make_unique<JobServiceImpl>(*coordinator_, *pump_, counters_, draining_);
    cluster_service_ = std::make_unique<ClusterServiceImpl>(*coordinator_, counters_);
    worker_service_ = std::make_unique<WorkerServiceImpl>(*coordinator_, counters_);
    if (metrics_ != nullptr) {
      const std::string host =
          options_.metrics_listen.substr(0, options_.metrics_listen.rfind(':'));
      cluster_service_->SetMetricsAddress(absl::StrCat(host, ":", metrics_->port()));
    }
    // Reflection describes what is linked: this keeps the health service's descriptor in.
    grpc::health::v1::HealthCheckRequest::descriptor();
    grpc::EnableDefaultHealthCheckService(true);
    if (options_.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
    // Two coordinators on one port would each get half of the workers.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Workers and watchers ping often; the library's default answers that with GOAWAY.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> guards;
    guards.push_back(NewParseGuard(counters_));
    builder.experimental().SetInterceptorCreators(std::move(guards));
    builder.RegisterService(job_service_.get());
    builder.RegisterService(cluster_service_.get());
    builder.RegisterService(worker_service_.get());
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen at ", options_.listen,
                                                 ": the port is taken or the address is not this "
                                                 "machine's; is another coordinator running there? "
                                                 "Give --listen a free address"));
    }
    SetHealth(false);
    return absl::OkStatus();
  }

  void SetHealth(bool serving) {
    auto* health = grpc_->GetHealthCheckService();
    if (health == nullptr) return;
    for (const char* service : kServices) health->SetServingStatus(service, serving);
  }

  void Fatal(absl::Status status) {
    if (fatal_.exchange(true)) return;
    counters_.Add("fsdp_store_errors_total");
    if (on_fatal_) on_fatal_(std::move(status));
  }

  const Options options_;
  const std::function<void(absl::Status)> on_fatal_;
  Clock& clock_;
  const SpecAdmission own_admission_;
  const Admission* const admission_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> fatal_{false};
  // Destroyed in the opposite order: the store's last callbacks still find everything.
  Counters counters_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<StreamPump> pump_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  std::unique_ptr<JobServiceImpl> job_service_;
  std::unique_ptr<ClusterServiceImpl> cluster_service_;
  std::unique_ptr<WorkerServiceImpl> worker_service_;
  std::unique_ptr<grpc::Server> grpc_;
  std::thread ticker_;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options,
                                                      std::function<void(absl::Status)> on_fatal,
                                                      const Admission* admission, Clock* clock) {
  auto server = std::make_unique<ServerImpl>(options, std::move(on_fatal), admission, clock);
  RETURN_IF_ERROR(server->Start());
  return server;
}

absl::Status WritePortFile(const std::string& path, int grpc_port, int metrics_port) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << "{\"grpc\":" << grpc_port << ",\"metrics\":" << metrics_port << ",\"pid\":" << getpid()
         << "}\n";
    file.flush();
    if (!file) return ErrnoToStatus(errno, absl::StrCat("write(", temporary, ")"));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename(", path, ")"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator
