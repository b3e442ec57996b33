#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_BACKEND_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_BACKEND_H_

// What differs between fsdp-trainer and fsdp-trainer-cuda: each links one TrainerBackend().

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fsdp/v1/trainer.pb.h"
#include "worker/comm/recording_communicator.h"
#include "worker/train/local_ranks.h"
#include "worker/train/rank_counters.h"
#include "worker/train/trainer_link.h"

namespace fsdp {

// The communicators of a rank. At world size 1 there are none.
struct RankCommunicators {
  std::unique_ptr<Communicator> gather;
  std::unique_ptr<Communicator> scatter;  // null: gather serves both
};

struct TrainerBackend {
  // "cpu" or "cuda".
  std::string name;
  LocalBackend local;
  // Of one rank under a daemon.
  std::function<absl::StatusOr<std::unique_ptr<Device>>(const v1::TrainerStart&)> create_device;
  std::function<absl::StatusOr<v1::DeviceCeilings>(Device&)> measure_ceilings;
  // Rank 0's part of RankJoined; null where there is none.
  std::function<absl::Status(v1::RankJoined*)> add_unique_ids;
  std::function<absl::StatusOr<RankCommunicators>(const v1::TrainerStart&, const v1::CommitEpoch&,
                                                  TrainerLink&, Device&)>
      connect;
  // What the rank takes of the device's memory now, context and libraries included; null: what the
  // trainer allocated.
  std::function<std::int64_t(Device&)> memory_in_use_bytes;
  // Of the device of a rank; null: this backend's devices have no hardware counters.
  std::function<CounterSource(Device&)> counters;
  // Puts marks into this backend's streams.
  StreamMarker marker;
};

// Defined once per executable.
TrainerBackend MakeTrainerBackend();

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_BACKEND_H_
