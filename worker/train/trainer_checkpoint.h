#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_CHECKPOINT_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_CHECKPOINT_H_

// Checkpoints of a running job: every rank writes its shard, all agree that all did, rank 0
// proposes the manifest, and publishes it once the coordinator has admitted it.
//
// A coordinator that is away does not stop training: the manifest then stays proposed, and is
// published when the verdict comes (Poll), or at the latest before the rank is done (Finish).

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"
#include "worker/train/engine.h"
#include "worker/train/trainer_exchange.h"
#include "worker/train/trainer_link.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {

// Where training stands, as a checkpoint keeps it.
struct TrainingPosition {
  std::int64_t step = 0;      // updates done
  std::int64_t position = 0;  // the next sequence
  std::int64_t tokens = 0;
  std::optional<double> train_loss;       // of `step`
  std::optional<double> validation_loss;  // the newest
};

struct CheckpointOptions {
  // How long a save waits for the verdict before training goes on without it.
  absl::Duration verdict_wait = absl::Seconds(2);
};

// All calls from the step thread. Errors carry the cause CHECKPOINT or COMMUNICATION.
class CheckpointManager {
 public:
  // All outlive it.
  CheckpointManager(const RankSetup& setup, Engine& engine, Device& device, RankExchange& exchange,
                    TrainerLink& link, const CheckpointOptions& options = {});

  // False: the spec has no directory; Save must not be called.
  [[nodiscard]] bool enabled() const { return !setup_.checkpoint_root.empty(); }

  // Fills the engine from setup.resume_directory, or weights alone from model.init_from, or at
  // random. Returns where to go on.
  absl::StatusOr<TrainingPosition> Restore();

  // On every rank. Returns when the shards are durable and, on rank 0, the manifest is published or
  // verdict_wait is over.
  absl::Status Save(const TrainingPosition& at);
  // Rank 0: publishes what has been admitted meanwhile. Cheap.
  absl::Status Poll();
  // Waits for outstanding verdicts.
  absl::Status Finish();

  // Of the newest Save; 0: none.
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }

 private:
  struct Proposal {
    std::string directory;
    Manifest manifest;
  };
  absl::StatusOr<std::vector<ManifestFile>> ExchangeFiles(const absl::StatusOr<ManifestFile>& mine);
  // On every rank, once all know that `failed_rank` could not write: the error to end with.
  absl::Status ShareFailure(const absl::Status& mine, int failed_rank);
  absl::Status Propose(const std::string& directory, Manifest manifest);
  absl::Status Settle(absl::Duration wait);
  absl::Status Publish(const Proposal& proposal);
  void WarnOnOtherData(const Manifest& manifest);

  const RankSetup& setup_;
  Engine& engine_;
  Device& device_;
  RankExchange& exchange_;
  TrainerLink& link_;
  const CheckpointOptions options_;
  BlobStore& store_;
  std::map<std::int64_t, Proposal> proposals_;  // by step
  std::int64_t last_step_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_CHECKPOINT_H_
