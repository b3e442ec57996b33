#ifndef FSDPCTL_TESTS_FAKES_BREAKABLE_ETCD_H_
#define FSDPCTL_TESTS_FAKES_BREAKABLE_ETCD_H_

// A real etcd whose calls fail where a test says. Thread-safe once set up.

#include <atomic>
#include <functional>
#include <limits>

#include "coordinator/store/etcd/etcd.h"

namespace fsdp::coordinator {

class BreakableEtcd : public Etcd {
 public:
  explicit BreakableEtcd(Etcd* real) : real_(*real) {}

  // After so many more transactions the process is as if killed: none gets through any more.
  void DieAfter(int num_txns) { left_ = num_txns; }
  [[nodiscard]] int num_txns() const { return num_txns_; }
  [[nodiscard]] int num_compactions() const { return num_compactions_; }
  // Takes the place of Txn; call real() in it for the true one.
  using OnTxn = std::function<absl::StatusOr<etcd::TxnResponse>(const etcd::TxnRequest&)>;
  void SetOnTxn(OnTxn on_txn) { on_txn_ = std::move(on_txn); }
  // From now on no call about leases gets through.
  void CutLeases() { leases_cut_ = true; }
  Etcd& real() { return real_; }

  absl::StatusOr<etcd::RangeResponse> Range(const etcd::RangeRequest& request) override {
    return real_.Range(request);
  }
  absl::StatusOr<etcd::TxnResponse> Txn(const etcd::TxnRequest& request) override {
    if (left_-- <= 0) return absl::InternalError("killed");
    ++num_txns_;
    return on_txn_ ? on_txn_(request) : real_.Txn(request);
  }
  absl::Status Compact(std::int64_t revision) override {
    ++num_compactions_;
    return real_.Compact(revision);
  }
  absl::StatusOr<Lease> GrantLease(absl::Duration ttl) override {
    if (leases_cut_) return absl::UnavailableError("cut off");
    return real_.GrantLease(ttl);
  }
  absl::StatusOr<absl::Duration> KeepLeaseAlive(std::int64_t id, absl::Duration timeout) override {
    if (leases_cut_) return absl::UnavailableError("cut off");
    return real_.KeepLeaseAlive(id, timeout);
  }
  absl::Status RevokeLease(std::int64_t id) override {
    if (leases_cut_) return absl::UnavailableError("cut off");
    return real_.RevokeLease(id);
  }

 private:
  Etcd& real_;
  std::atomic<int> left_{std::numeric_limits<int>::max()};
  std::atomic<int> num_txns_{0};
  std::atomic<int> num_compactions_{0};
  std::atomic<bool> leases_cut_{false};
  OnTxn on_txn_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_TESTS_FAKES_BREAKABLE_ETCD_H_
