#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_SETUP_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_SETUP_H_

// What a rank works out before it joins: the plan, the data, where the job ends, where it goes on.
// Every failure here is found before any peer waits for this rank.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "fsdp/v1/trainer.pb.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/manifest.h"
#include "worker/data/data_set.h"
#include "worker/device/device.h"
#include "worker/optim/schedule.h"
#include "worker/plan/plan.h"
#include "worker/train/trainer_data.h"

namespace fsdp {

struct RankSetup {
  v1::StartRank assignment;
  Plan plan;
  DataSet data;
  OptimizerConfig optimizer;
  std::int64_t total_steps = 0;
  // Folder of this job's checkpoints; empty: none are written.
  std::string checkpoint_root;
  RetentionPolicy retention;
  // The checkpoint to go on from; empty: from the beginning.
  std::string resume_directory;
  std::optional<Manifest> resume;  // of resume_directory
  // Rank 0 of text and token jobs.
  std::optional<double> unigram_entropy;
  std::optional<double> bigram_conditional_entropy;
  std::optional<double> bytes_per_token;  // of text

  [[nodiscard]] const v1::JobSpec& spec() const { return assignment.job().spec(); }
  [[nodiscard]] int rank() const { return assignment.key().rank(); }
  [[nodiscard]] int world_size() const { return assignment.world_size(); }
};

// Errors carry their cause (trainer_errors.h):
//   RANK_FAILED  the spec or its plan: INVALID_ARGUMENT
//   DATA         as OpenJobData
//   CHECKPOINT   checkpoint.dir cannot be created; the checkpoint to resume from is damaged
//   OUT_OF_MEMORY  the plan needs more than the device has
absl::StatusOr<RankSetup> SetUpRank(const v1::StartRank& assignment, Device& device,
                                    const DataAccess& access = {});

// What this rank proves to its peers. nccl ids are the backend's.
//   cause CHECKPOINT  checkpoint.dir cannot be written
absl::StatusOr<v1::RankJoined> MakeJoined(const RankSetup& setup);

// What to tell the user of a job whose checkpoint, at `step`, is at its limit or past it.
std::string NothingToTrain(const RankSetup& setup, std::int64_t step);

// The same for every rank that sees the same folder, different for others: the contents of a file
// in it that the first one creates.
absl::StatusOr<std::string> DirectoryToken(const std::string& directory);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_SETUP_H_
