#ifndef FSDPCTL_WORKER_TRAIN_LOCAL_LAUNCH_H_
#define FSDPCTL_WORKER_TRAIN_LOCAL_LAUNCH_H_

// `fsdp-trainer run JOB.yaml`: a job on this machine without coordinator and daemon. The same
// RunRank as in a cluster, on a link that admits everything.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "fsdp/v1/trainer.pb.h"
#include "worker/train/local_ranks.h"
#include "worker/train/trainer_backend.h"

namespace fsdp {

struct LocalRunOptions {
  v1::TrainingJob job;  // checked, defaults filled in
  int local_ranks = 1;
  CommunicatorKind communicator = CommunicatorKind::kGloo;
  // Records steps once this many have been trained; each rank writes RankProfilePath. Absent:
  // nothing is recorded.
  std::optional<v1::ProfileOptions> profile;
  std::int64_t profile_after_steps = 0;
  std::string profile_folder;  // exists
};

// Where a rank of a local run writes its recording.
std::string RankProfilePath(const std::string& folder, int rank);

// Trains to the end; rank 0's table and summary go to stdout. With processes, a rank's failure
// carries its cause only when it is rank 0's; the others print theirs to stderr.
//   as RunRank
absl::StatusOr<v1::TrainerDone> RunLocalJob(const LocalRunOptions& options,
                                            const TrainerBackend& backend);

// The result in words, for the end of a run.
std::string DescribeResult(const v1::JobResult& result);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_LOCAL_LAUNCH_H_
