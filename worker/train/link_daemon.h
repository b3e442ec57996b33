#ifndef FSDPCTL_WORKER_TRAIN_LINK_DAEMON_H_
#define FSDPCTL_WORKER_TRAIN_LINK_DAEMON_H_

// The link to the worker daemon: trainer.proto over the inherited socket. A reader thread takes
// what comes; nothing that arrives waits for training.

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "fsdp/v1/trainer.pb.h"
#include "worker/train/trainer_link.h"

namespace fsdp {

class DaemonLink : public TrainerLink {
 public:
  // Takes `fd`, says hello as `backend` ("cpu", "cuda") and reads the assignment into `start`.
  // `on_lost` runs on the reader thread when the daemon is gone; it is expected to end the process.
  //   UNAVAILABLE  the daemon closed before it gave an assignment
  //   DATA_LOSS    it does not speak trainer.proto
  static absl::StatusOr<std::unique_ptr<DaemonLink>> Connect(
      int fd, const std::string& backend, std::function<void(const absl::Status&)> on_lost,
      v1::TrainerStart* start);
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_LINK_DAEMON_H_
