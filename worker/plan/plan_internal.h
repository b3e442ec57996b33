#ifndef FSDPCTL_WORKER_PLAN_PLAN_INTERNAL_H_
#define FSDPCTL_WORKER_PLAN_PLAN_INTERNAL_H_

// The steps of BuildPlan. But for TryPlan each fills its part of a Plan whose `input`, `split` and
// `units` are set.

#include "worker/plan/plan.h"

namespace fsdp::internal {

// BuildPlan without a word on what would fit: RESOURCE_EXHAUSTED costs no further plans.
absl::StatusOr<Plan> TryPlan(const PlanInput& input);

// Scratch sizes when no device was asked; also of `head.chunk_tokens`.
ScratchSizes EstimateScratch(const Plan& plan);

// All buffers with kinds, sizes and ticks, for blocks that keep what `keep` says (by layer).
void AddBuffers(Plan& plan, const std::vector<KeepPolicy>& keep);
// Offsets and arena_bytes.
void PlaceBuffers(Plan& plan);
// memory, total_bytes, peak_bytes_by_kind.
void AddMemoryRows(Plan& plan);
// schedule and schedule_hash.
void AddSchedule(Plan& plan);

}  // namespace fsdp::internal

#endif  // FSDPCTL_WORKER_PLAN_PLAN_INTERNAL_H_
