#include "coordinator/rpc/server.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "coordinator/config/queue_file.h"
#include "coordinator/errors/not_leader.h"
#include "coordinator/metrics/exposition.h"
#include "coordinator/rpc/cluster_service.h"
#include "coordinator/rpc/enrollment_service.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/job_service.h"
#include "coordinator/rpc/parse_guard.h"
#include "coordinator/rpc/services.h"
#include "coordinator/rpc/standby.h"
#include "coordinator/rpc/stream_pump.h"
#include "coordinator/rpc/transport.h"
#include "coordinator/rpc/worker_service.h"
#include "coordinator/security/access_control.h"
#include "coordinator/security/audit_log.h"
#include "coordinator/security/call_limiter.h"
#include "coordinator/security/enrollment.h"
#include "coordinator/store/etcd/election.h"
#include "coordinator/store/etcd/etcd_address.h"
#include "coordinator/store/etcd/etcd_client.h"
#include "coordinator/store/etcd/etcd_store.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/web/gated_page_access.h"
#include "coordinator/web/web_endpoint.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/support/log.h"
#include "proto/support/metrics_exposer.h"
#include "proto/support/status.h"
#include "proto/support/tls/authority_folder.h"

namespace fsdp::coordinator {
namespace {

constexpr int kPumpThreads = 2;
// How long calls are still answered with STORE_FAILED before the process ends for it.
constexpr absl::Duration kFailedStoreAnswers = absl::Seconds(1);
constexpr int kMaxReceiveBytes = 16 << 20;
// How often files that may have changed, and streams that may be idle, are looked at.
constexpr absl::Duration kHousekeepingPeriod = absl::Seconds(1);
// Of one connection; more wait in the client. What a caller may have in all is the gate's business.
constexpr int kMaxStreamsPerConnection = 1024;
// Of requests that are being received: beyond it gRPC slows down its peers.
constexpr std::size_t kMaxReceiveMemory = std::size_t{512} << 20;

// gRPC's reflection library adds itself to every builder once it is linked.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins,
                  [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string NewIncarnation() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// Where others reach what listens at `address`, as far as that is known here.
std::string ReachableAddress(const std::string& address, const std::string& host) {
  const std::size_t colon = address.rfind(':');
  const std::string listens_at = address.substr(0, colon);
  const bool wildcard = listens_at == "0.0.0.0" || listens_at == "[::]";
  return wildcard ? host + address.substr(colon) : address;
}

class ServerImpl : public Server {
 public:
  ServerImpl(const Options& options, std::function<void(absl::Status)> on_fatal,
             const Admission* admission, Clock* clock, const StoreOptions& store)
      : options_(options),
        store_options_(store),
        on_fatal_(std::move(on_fatal)),
        clock_(clock == nullptr ? Clock::Real() : *clock),
        admission_(admission) {}
  ~ServerImpl() override { Drain(); }

  absl::Status Start() {
    RETURN_IF_ERROR(ValidateOptions(options_));
    RETURN_IF_ERROR(ValidateStoreOptions(store_options_, options_));
    // First: a certificate that cannot be used is told before the store is touched.
    ASSIGN_OR_RETURN(transport_, Transport::Create(options_, clock_));
    DeclareCounters(counters_);
    ASSIGN_OR_RETURN(access_, AccessControl::Open(options_.access_file, clock_, counters_));
    if (transport_->checks_clients()) access_->RequireCertificates();
    limiter_ = std::make_unique<CallLimiter>(options_.limits, clock_);
    page_access_ = std::make_unique<GatedPageAccess>(*access_, *limiter_, counters_);
    if (!options_.audit_log.empty()) {
      ASSIGN_OR_RETURN(audit_, AuditLog::Open(options_.audit_log, counters_));
    }
    if (admission_ == nullptr) {
      ASSIGN_OR_RETURN(PathRoots roots, PathRoots::Create(options_.allowed_paths));
      own_admission_ = std::make_unique<SpecAdmission>(std::move(roots));
      admission_ = own_admission_.get();
    }
    if (IsEtcdAddress(store_options_.store)) return StandBy();
    ASSIGN_OR_RETURN(store_, SqliteStore::Open({.directory = options_.state_dir}, Observer()));
    return Serve();
  }

  void Drain() override {
    if (draining_.exchange(true)) return;
    if (election_ != nullptr) election_->Withdraw();
    if (elector_.joinable()) elector_.join();
    standby_.reset();
    if (ticker_.joinable()) {
      coordinator_->Stop();
      ticker_.join();
    }
    if (grpc_ != nullptr) {
      SetHealth(false);
      // Calls that meet a closing server are cancelled by gRPC, without a reason: whoever writes
      // now hears of the store first.
      if (store_failed_) absl::SleepFor(std::min(options_.drain_timeout, kFailedStoreAnswers));
      coordinator_->Drain();
      coordinator_->directory().NotifyAll();
      grpc_->Shutdown(std::chrono::system_clock::now() +
                      absl::ToChronoMilliseconds(options_.drain_timeout));
      grpc_->Wait();
    }
    web_.reset();
    metrics_.reset();
    if (store_ != nullptr) store_->Flush().IgnoreError();
    // Only now: what was written is written, and another coordinator may lead.
    if (election_ != nullptr) election_->Resign();
    grpc_.reset();
    pump_.reset();
  }

  void Reload() override {
    access_->Refresh(/*always=*/true);
    if (audit_ != nullptr) audit_->Reopen();
    reload_queues_ = true;
  }

  [[nodiscard]] int port() const override { return port_; }
  [[nodiscard]] int metrics_port() const override {
    return metrics_ == nullptr ? 0 : metrics_->port();
  }
  [[nodiscard]] int web_port() const override { return web_port_; }
  Coordinator& coordinator() override { return *coordinator_; }
  Counters& counters() override { return counters_; }

 private:
  StoreObserver Observer() {
    return {.on_flush = [this](absl::Duration duration, std::int64_t /*batches*/) {
      counters_.Observe("fsdp_store_fsync_seconds", duration);
    }};
  }

  // Answers NOT_LEADER until this coordinator is elected, on a thread of its own; then serves.
  absl::Status StandBy() {
    ASSIGN_OR_RETURN(const EtcdAddress address, ParseEtcdAddress(store_options_.store));
    ASSIGN_OR_RETURN(etcd_, EtcdClient::Create({.members = address.members,
                                                .tls = store_options_.tls,
                                                .tls_names = EtcdTlsNames()}));
    ASSIGN_OR_RETURN(standby_, Standby::Start(options_, *transport_, [this] {
                       // Asked as soon as it listens, which is before there is an election: that
                       // tells the others at which port.
                       const Election* const election = known_election_;
                       const auto leader = election == nullptr ? std::nullopt : election->leader();
                       return leader ? leader->address() : std::string();
                     }));
    port_ = standby_->port();
    // The port that was free is this coordinator's from now on.
    options_.listen = WithPort(options_.listen, port_);
    if (!options_.metrics_listen.empty()) {
      standby_collectable_ = NewStandbyCollectable(counters_, *transport_);
      RETURN_IF_ERROR(StartMetrics());
      metrics_->Register(standby_collectable_);
    }
    election_ = std::make_unique<Election>(
        ElectionOptions{.prefix = address.prefix, .ttl = store_options_.lease, .self = Self()},
        etcd_.get());
    known_election_ = election_.get();
    elector_ = std::thread([this, prefix = address.prefix] { Elect(prefix); });
    return absl::OkStatus();
  }

  // On its own thread.
  void Elect(const std::string& prefix) {
    const auto leadership =
        election_->Campaign([this](absl::Status status) { Fatal(std::move(status)); });
    if (!leadership.ok()) return;
    LOG_INFO("elected, with the fencing revision %d", leadership->create_revision);
    if (absl::Status led = Lead(prefix, *leadership); !led.ok()) return Fatal(std::move(led));
    LOG_INFO("leads, and serves at port %d", port_.load());
  }

  absl::Status Lead(const std::string& prefix, const Leadership& leadership) {
    ASSIGN_OR_RETURN(store_,
                     EtcdStore::Open({.prefix = prefix,
                                      .history_bytes = store_options_.history_bytes,
                                      .compaction_period = store_options_.compaction_period},
                                     etcd_.get(), leadership, Observer()));
    return Serve();
  }

  [[nodiscard]] etcd_v1::Leader Self() const {
    etcd_v1::Leader self;
    self.set_host(HostName());
    self.set_pid(getpid());
    self.set_incarnation(NewIncarnation());
    self.set_address(store_options_.advertise);
    if (self.address().empty()) self.set_address(ReachableAddress(options_.listen, self.host()));
    return self;
  }

  absl::Status StartMetrics() {
    ASSIGN_OR_RETURN(metrics_, MetricsExposer::Start(options_.metrics_listen, /*num_threads=*/1,
                                                     transport_->metrics_tls()));
    return absl::OkStatus();
  }

  // With a store that is this process's alone.
  absl::Status Serve() {
    Coordinator::Dependencies dependencies;
    dependencies.clock = &clock_;
    dependencies.store = store_.get();
    dependencies.admission = admission_;
    dependencies.counters = &counters_;
    dependencies.on_fatal = [this](absl::Status status) { Fatal(std::move(status)); };
    ASSIGN_OR_RETURN(coordinator_, Coordinator::Create(options_, std::move(dependencies)));
    if (!options_.queue.file.empty()) {
      queue_file_.emplace(options_.queue.file);
      ASSIGN_OR_RETURN(const v1::QueueConfig config, queue_file_->Read());
      coordinator_->SetQueues(config);
    }
    pump_ = std::make_unique<StreamPump>(kPumpThreads);
    if (!options_.metrics_listen.empty()) {
      if (metrics_ == nullptr) RETURN_IF_ERROR(StartMetrics());
      collectable_ =
          std::make_shared<CoordinatorCollectable>(*coordinator_, counters_, *transport_);
      standby_collectable_.reset();
      metrics_->Register(collectable_);
    }
    standby_.reset();
    RETURN_IF_ERROR(Listen());
    if (!options_.web_listen.empty()) {
      ASSIGN_OR_RETURN(web_, WebEndpoint::Start({.listen = options_.web_listen,
                                                 .clock = &clock_,
                                                 .coordinator = coordinator_.get(),
                                                 .access = page_access_.get(),
                                                 .tls = transport_->web_tls()}));
      web_port_ = web_->port();
    }
    ticker_ = std::thread([this] {
      do {
        ReadQueues();
        coordinator_->Tick();
        KeepHouse();
      } while (coordinator_->WaitForWork(options_.timing.tick_period));
    });
    SetHealth(true);
    return absl::OkStatus();
  }

  // On the ticker's thread.
  void KeepHouse() {
    const MonotonicTime now = clock_.Now();
    if (now - last_housekeeping_ < kHousekeepingPeriod) return;
    last_housekeeping_ = now;
    access_->Refresh(/*always=*/false);
    if (audit_ != nullptr) audit_->ReopenIfMoved();
    worker_service_->CloseSilent(options_.limits.hello_timeout);
  }

  // A peer that is slow, silent or opens much holds little: docs/security.md has the figures.
  void LimitPeers(grpc::ServerBuilder& builder) const {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                               Milliseconds(options_.max_connection_idle));
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               Milliseconds(options_.handshake_timeout));
    builder.SetResourceQuota(grpc::ResourceQuota("coordinator").Resize(kMaxReceiveMemory));
  }
  static int Milliseconds(absl::Duration duration) {
    return static_cast<int>(std::min<std::int64_t>(absl::ToInt64Milliseconds(duration),
                                                   std::numeric_limits<int>::max()));
  }

  void ReadQueues() {
    if (!queue_file_) return;
    const MonotonicTime now = clock_.Now();
    const bool asked = reload_queues_.exchange(false);
    if (!asked && now - queues_looked_at_ < options_.queue.poll_period) return;
    queues_looked_at_ = now;
    std::optional<absl::StatusOr<v1::QueueConfig>> config;
    if (asked) {
      config = queue_file_->Read();
    } else {
      config = queue_file_->ReadIfChanged();
    }
    if (!config) return;
    if (config->ok()) {
      coordinator_->SetQueues(**config);
    } else {
      coordinator_->RejectQueues(config->status());
    }
  }

  absl::Status OpenEnrollment() {
    if (options_.enroll_ca.empty()) return absl::OkStatus();
    auto authority = tls::OpenAuthority(options_.enroll_ca);
    if (!authority.ok()) return Annotate(authority.status(), "--enroll-ca");
    if (!transport_->Trusts((*authority)->certificate())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--tls-client-ca=", options_.tls.ca, " does not hold the authority of --enroll-ca=",
          options_.enroll_ca, ", so that no worker could use its certificate: add ",
          options_.enroll_ca, "/", tls::kAuthorityCertificate, " to it, or leave it out"));
    }
    ASSIGN_OR_RETURN(enrollment_, Enrollment::Create({.validity = options_.enroll_validity},
                                                     *std::move(authority), *store_, clock_));
    return absl::OkStatus();
  }

  absl::Status Listen() {
    gate_ = std::make_unique<Gate>(GateParts{.clock = &clock_,
                                             .counters = &counters_,
                                             .access = access_.get(),
                                             .audit = audit_.get(),
                                             .limiter = limiter_.get(),
                                             .directory = &coordinator_->directory()});
    job_service_ = std::make_unique<JobServiceImpl>(*coordinator_, *pump_, *gate_, draining_);
    cluster_service_ = std::make_unique<ClusterServiceImpl>(*coordinator_, *gate_);
    worker_service_ = std::make_unique<WorkerServiceImpl>(*coordinator_, *gate_, clock_);
    RETURN_IF_ERROR(OpenEnrollment());
    enrollment_service_ = std::make_unique<EnrollmentServiceImpl>(enrollment_.get(), *gate_);
    if (metrics_ != nullptr) {
      const std::string host =
          options_.metrics_listen.substr(0, options_.metrics_listen.rfind(':'));
      cluster_service_->SetMetricsAddress(absl::StrCat(host, ":", metrics_->port()));
    }
    // Nothing else of that library is used: without this the linker might leave it out.
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // Reflection describes what is linked: this keeps the health service's descriptor in.
    grpc::health::v1::HealthCheckRequest::descriptor();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    // It answers whoever asks, so it is there only where everybody may ask everything.
    const bool reflection = options_.reflection && access_->unrestricted() && !options_.hardened;
    if (!reflection) builder.SetOption(std::make_unique<WithoutReflection>());
    int port = 0;
    builder.AddListeningPort(options_.listen, transport_->credentials(), &port);
    builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
    // Two coordinators on one port would each get half of the workers.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Workers and watchers ping often; the library's default answers that with GOAWAY.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    LimitPeers(builder);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> guards;
    guards.push_back(NewParseGuard(counters_));
    builder.experimental().SetInterceptorCreators(std::move(guards));
    builder.RegisterService(job_service_.get());
    builder.RegisterService(cluster_service_.get());
    builder.RegisterService(worker_service_.get());
    builder.RegisterService(enrollment_service_.get());
    grpc_ = builder.BuildAndStart();
    port_ = port;
    if (grpc_ == nullptr || port == 0) return CannotListen(options_.listen);
    SetHealth(false);
    return absl::OkStatus();
  }

  void SetHealth(bool serving) {
    auto* health = grpc_->GetHealthCheckService();
    if (health == nullptr) return;
    for (const auto* service : OurServices()) {
      health->SetServingStatus(service->full_name(), serving);
    }
    health->SetServingStatus("", serving);
  }

  void Fatal(absl::Status status) {
    if (fatal_.exchange(true)) return;
    // One that no longer leads has nothing to tell: whoever asks is to ask the next one.
    store_failed_ = !absl::IsAborted(status) && !IsNotLeader(status);
    if (store_failed_) counters_.Add("fsdp_store_errors_total");
    if (on_fatal_) on_fatal_(std::move(status));
  }

  // `listen` gets the port that was free.
  Options options_;
  const StoreOptions store_options_;
  const std::function<void(absl::Status)> on_fatal_;
  Clock& clock_;
  std::unique_ptr<SpecAdmission> own_admission_;
  const Admission* admission_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> fatal_{false};
  std::atomic<bool> store_failed_{false};
  std::atomic<bool> reload_queues_{false};
  std::optional<QueueFile> queue_file_;
  MonotonicTime queues_looked_at_;
  // Destroyed in the opposite order: the store's last callbacks still find everything.
  Counters counters_;
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<CallLimiter> limiter_;
  std::unique_ptr<GatedPageAccess> page_access_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<EtcdClient> etcd_;
  std::unique_ptr<Election> election_;
  std::atomic<const Election*> known_election_{nullptr};
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<StreamPump> pump_;
  std::shared_ptr<CoordinatorCollectable> collectable_;
  std::shared_ptr<prometheus::Collectable> standby_collectable_;
  std::unique_ptr<MetricsExposer> metrics_;
  std::unique_ptr<WebEndpoint> web_;
  std::unique_ptr<JobServiceImpl> job_service_;
  std::unique_ptr<ClusterServiceImpl> cluster_service_;
  std::unique_ptr<WorkerServiceImpl> worker_service_;
  std::unique_ptr<Enrollment> enrollment_;
  std::unique_ptr<EnrollmentServiceImpl> enrollment_service_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<Standby> standby_;
  std::thread elector_;
  std::thread ticker_;
  // Of the ticker's thread.
  MonotonicTime last_housekeeping_;
  std::atomic<int> port_{0};
  std::atomic<int> web_port_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options,
                                                      std::function<void(absl::Status)> on_fatal,
                                                      const Admission* admission, Clock* clock,
                                                      const StoreOptions& store) {
  auto server = std::make_unique<ServerImpl>(options, std::move(on_fatal), admission, clock, store);
  RETURN_IF_ERROR(server->Start());
  return server;
}

absl::Status WritePortFile(const std::string& path, const ServedPorts& ports) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << "{\"grpc\":" << ports.grpc << ",\"metrics\":" << ports.metrics
         << ",\"web\":" << ports.web << ",\"pid\":" << getpid() << "}\n";
    file.flush();
    if (!file) return ErrnoToStatus(errno, absl::StrCat("write(", temporary, ")"));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename(", path, ")"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp::coordinator
