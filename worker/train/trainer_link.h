#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_LINK_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_LINK_H_

// What a rank is told and tells. The daemon's socketpair implements it (daemon_link.h), so does a
// launcher without a control plane (local_launch.h), and so do the fakes in tests.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fsdp/v1/trainer.pb.h"
#include "worker/comm/rendezvous_store.h"

namespace fsdp {

// Thread-safe.
class TrainerLink {
 public:
  virtual ~TrainerLink() = default;

  //   UNAVAILABLE  nobody listens any more
  virtual absl::Status Send(const v1::TrainerToDaemon& message) = 0;
  // Blocks until every rank of the epoch has joined.
  //   UNAVAILABLE  as Send
  virtual absl::StatusOr<v1::CommitEpoch> WaitCommit() = 0;
  // The verdict on the manifest of `step`, waiting at most `wait` for it; nothing: not yet.
  virtual std::optional<v1::ManifestVerdict> TakeVerdict(std::int64_t step,
                                                         absl::Duration wait) = 0;
  // The harshest stop asked for so far.
  virtual std::optional<v1::TrainerStop> stop() = 0;
  // The newest profile that was asked for and not taken yet.
  virtual std::optional<v1::TrainerProfile> TakeProfile() = 0;
  // The epoch's.
  virtual RendezvousStore& rendezvous() = 0;
  // `handler` runs, on a thread of the link's own, whenever diagnostics are asked for.
  virtual void OnDump(std::function<void()> handler) = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_LINK_H_
