#include "coordinator/rpc/standby.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/errors/not_leader.h"
#include "coordinator/metrics/counters.h"
#include "coordinator/rpc/services.h"
#include "coordinator/rpc/status_codec.h"
#include "coordinator/rpc/transport.h"
#include "coordinator/version.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server.h"
#include "proto/support/metric_family.h"

namespace fsdp::coordinator {
namespace {

class Refusal : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

class StandbyImpl : public Standby, private grpc::CallbackGenericService {
 public:
  explicit StandbyImpl(LeaderFn leader) : leader_(std::move(leader)) {}
  ~StandbyImpl() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    server_->Wait();
  }

  absl::Status Listen(const Options& options, const Transport& transport) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options.listen, transport.credentials(), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) return CannotListen(options.listen);
    auto* health = server_->GetHealthCheckService();
    health->SetServingStatus(false);
    for (const auto* service : OurServices()) health->SetServingStatus(service->full_name(), false);
    return absl::OkStatus();
  }

  [[nodiscard]] int port() const override { return port_; }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Refusal(StandsBy(leader_()));
  }

  const LeaderFn leader_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class StandbyCollectable : public prometheus::Collectable {
 public:
  StandbyCollectable(const Counters& counters, const Transport& transport)
      : counters_(counters), transport_(transport), start_(absl::Now()) {}
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    MetricFamilies families;
    counters_.AddTo(&families);
    transport_.AddTo(&families);
    families.Add("fsdp_coordinator_leader", {}, 0);
    families.Add("fsdp_build_info", {kVersion}, 1);
    families.Add("fsdp_start_timestamp_seconds", {},
                 absl::ToDoubleSeconds(start_ - absl::UnixEpoch()));
    return families.Take();
  }

 private:
  const Counters& counters_;
  const Transport& transport_;
  const absl::Time start_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Standby>> Standby::Start(const Options& options,
                                                        const Transport& transport,
                                                        LeaderFn leader) {
  auto standby = std::make_unique<StandbyImpl>(std::move(leader));
  if (absl::Status listening = standby->Listen(options, transport); !listening.ok()) {
    return listening;
  }
  return standby;
}

absl::Status CannotListen(const std::string& address) {
  return absl::UnavailableError(absl::StrCat("cannot listen at ", address,
                                             ": the port is taken or the address is not this "
                                             "machine's; is another coordinator running there? "
                                             "Give --listen a free address"));
}

std::shared_ptr<prometheus::Collectable> NewStandbyCollectable(const Counters& counters,
                                                               const Transport& transport) {
  return std::make_shared<StandbyCollectable>(counters, transport);
}

}  // namespace fsdp::coordinator
