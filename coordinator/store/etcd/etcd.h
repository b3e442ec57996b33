#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_H_

// The calls of etcd v3 that the coordinator makes. A seam: EtcdClient speaks gRPC, tests break
// calls where they want.
//
// Thread-safe. Errors: UNAVAILABLE, DEADLINE_EXCEEDED no member answers, or they have no leader (a
// transaction may have happened nevertheless); RESOURCE_EXHAUSTED etcd's space quota is used up;
// UNAUTHENTICATED, PERMISSION_DENIED etcd does not let this client in; others as etcd gives them.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "etcdserverpb/rpc.pb.h"

namespace fsdp::coordinator {

namespace etcd = ::etcdserverpb;

class Etcd {
 public:
  virtual ~Etcd() = default;

  // Repeated while no member answers, for some seconds.
  virtual absl::StatusOr<etcd::RangeResponse> Range(const etcd::RangeRequest& request) = 0;
  // Once: whether to repeat it is the caller's to know.
  virtual absl::StatusOr<etcd::TxnResponse> Txn(const etcd::TxnRequest& request) = 0;
  virtual absl::Status Compact(std::int64_t revision) = 0;

  struct Lease {
    std::int64_t id = 0;
    absl::Duration ttl;
  };
  virtual absl::StatusOr<Lease> GrantLease(absl::Duration ttl) = 0;
  // What is left of it, once. Zero: it is over.
  virtual absl::StatusOr<absl::Duration> KeepLeaseAlive(std::int64_t id,
                                                        absl::Duration timeout) = 0;
  virtual absl::Status RevokeLease(std::int64_t id) = 0;
};

// Worth another try: nobody answered, or etcd asks for patience.
bool IsPassing(const absl::Status& status);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_ETCD_H_
