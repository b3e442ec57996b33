#include "worker/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdp {
namespace {

// 1 at the start of the decay, 0 at its end.
double Remaining(std::int64_t step, std::int64_t begin, std::int64_t length) {
  if (length <= 0 || step <= begin) return 1;
  return std::max(0.0, 1 - static_cast<double>(step - begin) / static_cast<double>(length));
}

}  // namespace

OptimizerConfig OptimizerFromSpec(const v1::OptimizerSpec& spec) {
  OptimizerConfig config;
  if (spec.has_lr()) config.lr = spec.lr();
  if (spec.has_beta1()) config.beta1 = spec.beta1();
  if (spec.has_beta2()) config.beta2 = spec.beta2();
  if (spec.has_eps()) config.eps = spec.eps();
  if (spec.has_weight_decay()) config.weight_decay = spec.weight_decay();
  config.max_grad_norm = spec.grad_clip();
  if (spec.has_decay_vectors()) config.decay_vectors = spec.decay_vectors();
  if (spec.schedule().type() != v1::SCHEDULE_TYPE_UNSPECIFIED) {
    config.schedule = spec.schedule().type();
  }
  config.warmup_steps = spec.schedule().warmup_steps();
  config.decay_steps = spec.schedule().decay_steps();
  config.min_lr_ratio = spec.schedule().min_lr_ratio();
  return config;
}

double LearningRate(const OptimizerConfig& config, std::int64_t step, std::int64_t total_steps) {
  const std::int64_t warmup = config.warmup_steps;
  if (step < warmup) {
    return config.lr * static_cast<double>(step) / static_cast<double>(warmup);
  }
  const double low = config.min_lr_ratio;
  const std::int64_t to_the_end = total_steps > warmup ? total_steps - warmup : 0;
  switch (config.schedule) {
    case v1::SCHEDULE_TYPE_LINEAR: {
      const std::int64_t length = config.decay_steps > 0 ? config.decay_steps : to_the_end;
      return config.lr * (low + (1 - low) * Remaining(step, warmup, length));
    }
    case v1::SCHEDULE_TYPE_COSINE: {
      const std::int64_t length = config.decay_steps > 0 ? config.decay_steps : to_the_end;
      const double done = 1 - Remaining(step, warmup, length);
      return config.lr * (low + (1 - low) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
    }
    case v1::SCHEDULE_TYPE_WSD: {
      const std::int64_t length = config.decay_steps > 0 ? config.decay_steps : to_the_end / 5;
      if (total_steps <= 0) return config.lr;
      const std::int64_t begin = std::max(warmup, total_steps - length);
      return config.lr * (low + (1 - low) * Remaining(step, begin, total_steps - begin));
    }
    default:
      return config.lr;
  }
}

}  // namespace fsdp
