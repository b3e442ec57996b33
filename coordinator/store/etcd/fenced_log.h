#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_FENCED_LOG_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_FENCED_LOG_H_

// The leader's writes to etcd: each happens once, in order, and only while it leads.
//
// Every transaction compares two keys: the election's, whose create revision is this leader's
// alone, and a sequence number, which it also raises. So a write of a deposed leader changes
// nothing, and one that is repeated after a lost answer, or comes late through a slow member,
// changes nothing twice.
//
// What does not fit into one transaction is staged: its changes are written in parts under keys of
// their own, then one commit key says that they are complete, then they are carried out and the
// staged keys removed. Open finds the commit key and carries them out (again), or no commit key and
// removes the parts: whole or not at all, whichever transaction was the last.
//
// Not thread-safe.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/store/etcd/etcd.h"
#include "coordinator/store/etcd/etcd_keys.h"
#include "coordinator/store/etcd/etcd_txn.h"

namespace fsdp::coordinator {

// The right to write: of Election.
struct Leadership {
  std::int64_t lease = 0;
  // Of the election's key.
  std::int64_t create_revision = 0;
};

class FencedLog {
 public:
  // `etcd` outlives it. `patience`: how long a transaction is tried again while nobody answers.
  FencedLog(Etcd* etcd, EtcdKeys keys, Leadership leadership, EtcdLimits limits,
            absl::Duration patience)
      : etcd_(*etcd),
        keys_(std::move(keys)),
        leadership_(leadership),
        limits_(limits),
        patience_(patience) {}

  // Once, first: what an earlier leader left half done is finished or removed.
  //   FAILED_PRECONDITION  a newer program's layout of keys
  //   DATA_LOSS            staged changes that do not parse
  //   and those of Commit
  absl::Status Open();

  // Makes `txn` durable.
  //   ABORTED  NOT_LEADER: another coordinator leads (it is named), or may
  //   and those of Etcd
  absl::Status Commit(const EtcdTxn& txn);
  // However many these are.
  absl::Status CommitStaged(const EtcdOps& ops);

  // Of the last transaction.
  [[nodiscard]] std::int64_t revision() const { return revision_; }

 private:
  absl::Status CheckFormat();
  absl::Status ReadSequence();
  absl::Status RollForward(const etcd_v1::StagedCommit& commit);
  absl::Status Execute(const std::vector<etcd_v1::Op>& ops);
  absl::Status RemoveStaged();
  // Why a transaction was refused. OK: it is the repeat of one that happened.
  absl::Status Judge(const etcd::TxnResponse& response) const;
  [[nodiscard]] etcd::TxnRequest Fenced(const EtcdTxn& txn) const;

  Etcd& etcd_;
  const EtcdKeys keys_;
  const Leadership leadership_;
  const EtcdLimits limits_;
  const absl::Duration patience_;
  // Of the last transaction that happened; 0: none ever did.
  std::int64_t sequence_ = 0;
  std::int64_t revision_ = 0;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_FENCED_LOG_H_
