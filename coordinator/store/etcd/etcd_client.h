#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_CLIENT_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_CLIENT_H_

// Etcd over gRPC: one member at a time, the next one when it does not answer.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/etcd/etcd.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "proto/support/tls/tls_files.h"

namespace fsdp::coordinator {

struct EtcdClientOptions {
  // "host:port".
  std::vector<std::string> members;
  // Empty: in the clear. Read once.
  TlsFiles tls;
  TlsFileNames tls_names;
  // Of one try.
  absl::Duration call_timeout = absl::Seconds(2);
  // How long calls that may be repeated are.
  absl::Duration patience = absl::Seconds(10);
};

class EtcdClient : public Etcd {
 public:
  // Does not connect yet.
  //   errors as LoadTlsMaterial
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(EtcdClientOptions options);
  ~EtcdClient() override;

  absl::StatusOr<etcd::RangeResponse> Range(const etcd::RangeRequest& request) override;
  absl::StatusOr<etcd::TxnResponse> Txn(const etcd::TxnRequest& request) override;
  absl::Status Compact(std::int64_t revision) override;
  absl::StatusOr<Lease> GrantLease(absl::Duration ttl) override;
  absl::StatusOr<absl::Duration> KeepLeaseAlive(std::int64_t id, absl::Duration timeout) override;
  absl::Status RevokeLease(std::int64_t id) override;

 private:
  struct Member;
  using Call = std::function<grpc::Status(Member&, grpc::ClientContext*)>;

  explicit EtcdClient(EtcdClientOptions options);
  absl::Status Once(absl::Duration timeout, const Call& call);
  absl::Status Patiently(const Call& call);

  const EtcdClientOptions options_;
  std::vector<std::unique_ptr<Member>> members_;
  // Whom to ask next, modulo their number.
  std::atomic<std::size_t> next_{0};
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_CLIENT_H_
