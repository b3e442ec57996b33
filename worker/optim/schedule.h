#ifndef FSDPCTL_WORKER_OPTIM_SCHEDULE_H_
#define FSDPCTL_WORKER_OPTIM_SCHEDULE_H_

// The optimizer's settings and its learning rate by step. Pure functions.

#include <cstdint>

#include "fsdp/v1/job.pb.h"

namespace fsdp {

struct OptimizerConfig {
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  // Global-norm clip; 0: none.
  double max_grad_norm = 0;
  // False: norm weights and biases are not decayed.
  bool decay_vectors = true;
  v1::ScheduleType schedule = v1::SCHEDULE_TYPE_CONSTANT;
  std::int64_t warmup_steps = 0;
  // Steps of the decay; 0: to the end of the job (wsd: its last fifth).
  std::int64_t decay_steps = 0;
  double min_lr_ratio = 0;
};

OptimizerConfig OptimizerFromSpec(const v1::OptimizerSpec& spec);

// Learning rate of `step` (from 1) of a job of `total_steps` (0: unknown; then nothing decays
// unless decay_steps is given). Warm-up is linear from lr / warmup_steps. linear and cosine decay
// from the end of the warm-up; wsd stays at lr and decays linearly over its last decay_steps.
double LearningRate(const OptimizerConfig& config, std::int64_t step, std::int64_t total_steps);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_OPTIM_SCHEDULE_H_
