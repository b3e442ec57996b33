#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_EVALUATE_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_EVALUATE_H_

// Losses of what a rank does not train on: its validation data and data.evaluationSets.

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job_record.pb.h"
#include "worker/train/engine.h"
#include "worker/train/trainer_setup.h"

namespace fsdp {

struct Evaluations {
  std::optional<double> validation_loss;  // absent without validation data
  std::vector<v1::EvaluationLoss> sets;   // in the order of the spec
};

// Is there anything to evaluate on?
bool CanEvaluate(const RankSetup& setup);

// On every rank, between two steps. Each rank reads its share of every set.
//   cause DATA  a file cannot be read any more
absl::StatusOr<Evaluations> EvaluateAll(RankSetup& setup, Engine& engine);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_EVALUATE_H_
