#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_CHECKPOINT_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_CHECKPOINT_H_

// Checkpoints of a running job: every rank writes its shard, all agree that all did, rank 0
// proposes the manifest, and publishes it once the coordinator has admitted it.
//
// A coordinator that is away does not stop training: the manifest then stays proposed, and is
// published when the verdict comes (Poll), or at the latest before the rank is done (Finish).
//
// With checkpoint.async training goes on behind the snapshot: a thread writes the shard, the ranks
// learn of each other's after each step (progress, OnProgress), and rank 0's manifest is built and
// written by that thread too.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/task_thread.h"
#include "worker/train/engine.h"
#include "worker/train/shard_saver.h"
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
  // The newest of each set, by name; absent: not finite.
  std::map<std::string, std::optional<double>> evaluation_losses;
  NumericState numerics;
};

struct CheckpointOptions {
  BlobStore* store = &BlobStore::Posix();
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
  // On every rank. Back to the newest Save with a finite loss, once it is published, or else to
  // where Restore began; returns where that is.
  absl::StatusOr<TrainingPosition> RollBack();

  // On every rank. Returns when the shards are durable and, on rank 0, the manifest is published or
  // verdict_wait is over; asynchronous, when the snapshot is on its way and the shards of an
  // earlier save are durable.
  absl::Status Save(const TrainingPosition& at);
  // What this rank tells the others after each step, and what all said: theirs from `first` on.
  ShardSaver::Progress progress();
  absl::Status OnProgress(std::span<const std::vector<double>> all, std::size_t first);
  // Rank 0: publishes what has been admitted meanwhile. Cheap.
  absl::Status Poll();
  // On every rank. Waits for shards, outstanding verdicts and manifests.
  absl::Status Finish();

  // Of the newest Save; 0: none.
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }

 private:
  struct Proposal {
    std::string directory;
    Manifest manifest;
  };
  absl::StatusOr<TrainingPosition> Load(const std::string& directory);
  // On every rank, once all know that `failed_rank` could not write: the error to end with.
  absl::Status ShareFailure(const absl::Status& mine, int failed_rank);
  // Waits for the shards of all ranks, if a save is under way.
  absl::Status FinishShards();
  // Rank 0: all shards are durable.
  absl::Status Complete(const std::vector<ManifestFile>& files);
  absl::Status Propose(const Proposal& built);
  // Proposes the manifests that the thread has built; `wait`: all of them.
  absl::Status ProposeBuilt(bool wait);
  absl::Status Settle(absl::Duration wait);
  absl::Status Publish(const Proposal& proposal);
  // The first error of the publications that are done; `wait`: all of them.
  absl::Status CheckPublished(bool wait);
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
  // Of the newest Save with a finite loss. Retention leaves it: nothing newer is published.
  std::string finite_directory_;
  // Whose shards are being written.
  struct Saving {
    TrainingPosition at;
    bool told = false;  // that this rank's is durable
  };
  std::optional<Saving> saving_;
  std::unique_ptr<TaskThread> thread_;  // null: saves are synchronous
  ShardSaver saver_;
  // Of rank 0's thread, in the order of steps.
  std::deque<std::future<absl::StatusOr<Proposal>>> built_;
  std::deque<std::future<absl::Status>> published_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_CHECKPOINT_H_
