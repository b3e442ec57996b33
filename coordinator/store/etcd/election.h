#ifndef FSDPCTL_COORDINATOR_STORE_ETCD_ELECTION_H_
#define FSDPCTL_COORDINATOR_STORE_ETCD_ELECTION_H_

// Who of several coordinators leads: whoever has made the key `leader`, for as long as the lease
// that it hangs on. The others look at it several times a second, and one of them makes it anew as
// soon as it is gone. The key's create revision is the leader's alone and fences what it writes
// (fenced_log.h).
//
// A leader that cannot reach etcd gives up as soon as its lease may be over, by its own clock and
// counted from before the last call that prolonged it. So there are never two that think they lead,
// unless a clock runs slow; even then only one can write.
//
// Thread-safe.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/store/etcd/etcd.h"
#include "coordinator/store/etcd/etcd_keys.h"
#include "coordinator/store/etcd/etcd_value.pb.h"
#include "coordinator/store/etcd/fenced_log.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

struct ElectionOptions {
  // As EtcdAddress::prefix.
  std::string prefix;
  // Whole seconds, at least 2 (etcd's own least). A dead leader is noticed after this and up to a
  // second more.
  absl::Duration ttl = absl::Seconds(3);
  // How often a standby looks.
  absl::Duration poll_period = absl::Milliseconds(200);
  // What others learn of this coordinator.
  etcd_v1::Leader self;
};

class Election {
 public:
  // `etcd` outlives it.
  Election(ElectionOptions options, Etcd* etcd);
  // As Resign.
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  // Blocks until this coordinator leads. From then on a thread keeps the lease alive; `on_lost` is
  // called by it, once, when it cannot. Errors of etcd are logged and waited out. Once.
  //   CANCELLED  Withdraw or Resign was called
  absl::StatusOr<Leadership> Campaign(std::function<void(absl::Status)> on_lost);
  // Ends Campaign, unless it has succeeded.
  void Withdraw();
  // Ends Campaign, and the lease: another one may lead at once.
  void Resign();

  // As last seen; absent: none, or etcd has not answered yet.
  [[nodiscard]] std::optional<etcd_v1::Leader> leader() const;

 private:
  // The leadership if this coordinator has it now.
  absl::StatusOr<std::optional<Leadership>> Try();
  absl::StatusOr<std::optional<Leadership>> MakeKey();
  void KeepAlive(std::int64_t lease, const std::function<void(absl::Status)>& on_lost);
  // False: `ended` (guarded by mutex_) became true.
  bool Pause(absl::Duration duration, const bool& ended);
  void SetLeader(std::optional<etcd_v1::Leader> leader);

  const ElectionOptions options_;
  Etcd& etcd_;
  const EtcdKeys keys_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  bool withdrawn_ = false;
  bool resigned_ = false;
  std::int64_t lease_ = 0;
  std::optional<etcd_v1::Leader> leader_;

  // Of Campaign's thread, then of the keeper: before the call that last prolonged the lease.
  MonotonicTime prolonged_;
  absl::Duration ttl_;
  std::thread keeper_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_ETCD_ELECTION_H_
