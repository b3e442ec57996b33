#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_H_

// One rank from its assignment to its end: joins, trains, validates, saves, reports. Flow steps 6
// to 14 of docs/life_of_a_job.md. Knows the control plane as a TrainerLink only.
//
// Thread rule: one call of RunRank per rank, on the thread that drives the device; a pulse thread
// of its own tells liveness meanwhile.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fsdp/v1/trainer.pb.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/device/device.h"
#include "worker/profile/flight_recorder.h"
#include "worker/train/rank_counters.h"
#include "worker/train/trainer_backend.h"
#include "worker/train/trainer_data.h"
#include "worker/train/trainer_link.h"

namespace fsdp {

struct TrainerRun {
  v1::TrainerStart start;
  // Where rank 0's table goes, a line at a time, without the newline.
  std::function<void(const std::string&)> print;
  // Called after the commit. Null members at world size 1.
  std::function<absl::StatusOr<RankCommunicators>(const v1::CommitEpoch&)> connect;
  std::function<absl::StatusOr<v1::DeviceCeilings>(Device&)> measure_ceilings;
  std::function<absl::Status(v1::RankJoined*)> add_unique_ids;  // may be null
  std::function<std::int64_t(Device&)> memory_in_use_bytes;     // may be null, see TrainerBackend
  StreamMarker marker = CpuStreamMarker();
  std::function<CounterSource(Device&)> counters;  // may be null, see TrainerBackend
  // Gets the recorder of the rank's collectives when there is one; may be null.
  std::function<void(std::shared_ptr<const FlightRecorder>)> on_recorder;
  // See CheckpointOptions.
  BlobStore* store = &BlobStore::Posix();
  absl::Duration verdict_wait = absl::Seconds(2);
  // program and directory of its cache; RunRank adds the rest of that.
  DataAccess data;
};

// Runs the rank to the end of the job, or to a stop that was asked for; in both cases TrainerDone
// has been sent and is returned. On an error RankFailure has been sent, the communicators are
// aborted so that no peer waits, and the status carries its cause (trainer_errors.h).
absl::StatusOr<v1::TrainerDone> RunRank(const TrainerRun& run, TrainerLink& link, Device& device);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_H_
