#include "coordinator/store/etcd/etcd_client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "etcdserverpb/rpc.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "proto/support/clock.h"
#include "proto/support/status.h"
#include "proto/support/tls/grpc_credentials.h"

namespace fsdp::coordinator {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(100);
// Then the next member is asked.
constexpr absl::Duration kConnectTimeout = absl::Milliseconds(500);

absl::Status ToStatus(const grpc::Status& status, const std::string& member) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()),
          absl::StrCat("etcd at ", member, ": ", status.error_message())};
}

}  // namespace

bool IsPassing(const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return true;
  // The other exhausted resource is space, and that does not come back by itself.
  return absl::IsResourceExhausted(status) &&
         absl::StrContains(status.message(), "too many requests");
}

struct EtcdClient::Member {
  Member(std::string address_arg, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : address(std::move(address_arg)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetMaxReceiveMessageSize(-1);
    channel = grpc::CreateCustomChannel(address, credentials, arguments);
    kv = etcd::KV::NewStub(channel);
    lease = etcd::Lease::NewStub(channel);
  }
  const std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<etcd::KV::Stub> kv;
  std::unique_ptr<etcd::Lease::Stub> lease;
};

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(EtcdClientOptions options) {
  ASSIGN_OR_RETURN(const auto credentials,
                   ChannelCredentialsFrom(options.tls, options.tls_names, absl::Now()));
  auto client = std::unique_ptr<EtcdClient>(new EtcdClient(std::move(options)));
  for (const std::string& address : client->options_.members) {
    client->members_.push_back(std::make_unique<Member>(address, credentials));
  }
  return client;
}

EtcdClient::EtcdClient(EtcdClientOptions options) : options_(std::move(options)) {}
EtcdClient::~EtcdClient() = default;

absl::Status EtcdClient::Once(absl::Duration timeout, const Call& call) {
  std::size_t asked = next_.load();
  Member& member = *members_[asked % members_.size()];
  const absl::Time deadline = absl::Now() + timeout;
  absl::Status status;
  // A channel connects only while somebody waits for it, which a call that fails at once does not.
  if (member.channel->WaitForConnected(
          absl::ToChronoTime(std::min(deadline, absl::Now() + kConnectTimeout)))) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    // A member that is cut off from the others says so at once.
    context.AddMetadata("hasleader", "true");
    status = ToStatus(call(member, &context), member.address);
  } else {
    status = absl::UnavailableError(absl::StrCat("etcd at ", member.address, ": no connection"));
  }
  // Only the first to notice moves on.
  if (IsPassing(status)) next_.compare_exchange_strong(asked, asked + 1);
  return status;
}

absl::Status EtcdClient::Patiently(const Call& call) {
  const MonotonicTime until = Clock::Real().Now() + options_.patience;
  while (true) {
    absl::Status status = Once(options_.call_timeout, call);
    if (!IsPassing(status) || Clock::Real().Now() >= until) return status;
    absl::SleepFor(kPause);
  }
}

absl::StatusOr<etcd::RangeResponse> EtcdClient::Range(const etcd::RangeRequest& request) {
  etcd::RangeResponse response;
  RETURN_IF_ERROR(Patiently([&](Member& member, grpc::ClientContext* context) {
    return member.kv->Range(context, request, &response);
  }));
  return response;
}

absl::StatusOr<etcd::TxnResponse> EtcdClient::Txn(const etcd::TxnRequest& request) {
  etcd::TxnResponse response;
  RETURN_IF_ERROR(Once(options_.call_timeout, [&](Member& member, grpc::ClientContext* context) {
    return member.kv->Txn(context, request, &response);
  }));
  return response;
}

absl::Status EtcdClient::Compact(std::int64_t revision) {
  etcd::CompactionRequest request;
  request.set_revision(revision);
  return Once(options_.call_timeout, [&](Member& member, grpc::ClientContext* context) {
    etcd::CompactionResponse response;
    return member.kv->Compact(context, request, &response);
  });
}

absl::StatusOr<Etcd::Lease> EtcdClient::GrantLease(absl::Duration ttl) {
  etcd::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
  etcd::LeaseGrantResponse response;
  RETURN_IF_ERROR(Once(options_.call_timeout, [&](Member& member, grpc::ClientContext* context) {
    return member.lease->LeaseGrant(context, request, &response);
  }));
  if (!response.error().empty()) return absl::InternalError("etcd: " + response.error());
  return Lease{.id = response.id(), .ttl = absl::Seconds(response.ttl())};
}

absl::StatusOr<absl::Duration> EtcdClient::KeepLeaseAlive(std::int64_t id, absl::Duration timeout) {
  etcd::LeaseKeepAliveRequest request;
  request.set_id(id);
  etcd::LeaseKeepAliveResponse response;
  RETURN_IF_ERROR(Once(timeout, [&](Member& member, grpc::ClientContext* context) {
    const auto stream = member.lease->LeaseKeepAlive(context);
    const bool answered = stream->Write(request) && stream->Read(&response);
    if (answered) context->TryCancel();
    const grpc::Status end = stream->Finish();
    if (answered) return grpc::Status::OK;
    return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it closed the stream") : end;
  }));
  return absl::Seconds(std::max<std::int64_t>(response.ttl(), 0));
}

absl::Status EtcdClient::RevokeLease(std::int64_t id) {
  etcd::LeaseRevokeRequest request;
  request.set_id(id);
  return Once(options_.call_timeout, [&](Member& member, grpc::ClientContext* context) {
    etcd::LeaseRevokeResponse response;
    return member.lease->LeaseRevoke(context, request, &response);
  });
}

}  // namespace fsdp::coordinator
