#include "worker/plan/plan_advice.h"

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/plan/plan_internal.h"

namespace fsdp {
namespace {

// From the fastest to the one that takes least. `keep` fits wherever `none` does.
constexpr v1::RecomputePolicy kPolicies[] = {
    v1::RECOMPUTE_POLICY_NONE, v1::RECOMPUTE_POLICY_SELECTIVE, v1::RECOMPUTE_POLICY_FULL};

constexpr int kDevicesPerNode = 8;

const std::vector<int>& AdvisedWorlds() {
  static const auto& worlds = *[] {
    auto* sizes = new std::vector<int>();
    for (int world = 1; world <= kDevicesPerNode; ++world) sizes->push_back(world);
    for (int nodes = 2; nodes <= 8; ++nodes) sizes->push_back(nodes * kDevicesPerNode);
    while (sizes->back() < kLargestAdvisedWorld) sizes->push_back(2 * sizes->back());
    return sizes;
  }();
  return worlds;
}

// The input on `world_size` ranks. What was asked of a device for the input's own shapes does not
// hold for others.
PlanInput On(const PlanInput& input, int world_size, std::int64_t micro_batch) {
  PlanInput other = input;
  other.world_size = world_size;
  other.micro_batch = micro_batch;
  other.scratch.reset();
  other.nccl_bytes.reset();
  return other;
}

// Absent: it does not fit (or is no plan at all, which BuildPlan of the input itself tells).
std::optional<v1::FittingShape> ShapeIfFits(const PlanInput& input) {
  const absl::StatusOr<Plan> plan = internal::TryPlan(input);
  if (!plan.ok()) return std::nullopt;
  v1::FittingShape shape;
  shape.set_world_size(input.world_size);
  shape.set_micro_batch(plan->split.max_micro_batch());
  shape.set_total_bytes(plan->total_bytes);
  return shape;
}

std::optional<v1::FittingShape> FewestRanks(const PlanInput& input, std::int64_t micro_batch) {
  // Where neither end fits, nothing between does: more ranks take less, but for one alone, which
  // needs no communication.
  const auto fits = [&](int world) { return ShapeIfFits(On(input, world, micro_batch)); };
  if (!fits(AdvisedWorlds().front()) && !fits(AdvisedWorlds().back())) return std::nullopt;
  for (const int world : AdvisedWorlds()) {
    if (auto shape = fits(world)) return shape;
  }
  return std::nullopt;
}

// As many micro-batches as `micro_batch` makes of the share, of nearly equal size.
std::int64_t Even(std::int64_t share, std::int64_t micro_batch) {
  const std::int64_t parts = (share + micro_batch - 1) / micro_batch;
  return (share + parts - 1) / parts;
}

// The fewest micro-batches that fit on these ranks, where the input's own may not.
std::optional<v1::FittingShape> LargestMicroBatch(const PlanInput& input, int world_size) {
  if (auto shape = ShapeIfFits(On(input, world_size, input.micro_batch))) return shape;
  auto best = ShapeIfFits(On(input, world_size, 1));
  if (!best) return std::nullopt;
  std::int64_t fits = 1;
  std::int64_t above =
      BatchSplit(input.global_batch, world_size, input.micro_batch).max_micro_batch();
  while (above - fits > 1) {
    const std::int64_t middle = fits + (above - fits) / 2;
    (ShapeIfFits(On(input, world_size, middle)) ? fits : above) = middle;
  }
  const std::int64_t share = BatchSplit(input.global_batch, world_size, 0).max_micro_batch();
  if (auto even = ShapeIfFits(On(input, world_size, Even(share, fits)))) best = even;
  return best;
}

v1::PolicyAdvice AdviseOnPolicy(PlanInput input, v1::RecomputePolicy policy) {
  input.recompute = policy;
  v1::PolicyAdvice advice;
  advice.set_recompute(policy);
  const auto as_is = FewestRanks(input, input.micro_batch);
  if (as_is) *advice.mutable_as_is() = *as_is;
  const auto least = FewestRanks(input, 1);
  if (least && (!as_is || least->world_size() < as_is->world_size())) {
    *advice.mutable_smaller_micro_batch() = *LargestMicroBatch(input, least->world_size());
  }
  if (const auto here = LargestMicroBatch(input, input.world_size)) {
    *advice.mutable_same_ranks() = *here;
  }
  return advice;
}

std::string PolicyText(v1::RecomputePolicy policy) {
  constexpr std::size_t kPrefix = sizeof("RECOMPUTE_POLICY_") - 1;
  return absl::AsciiStrToLower(v1::RecomputePolicy_Name(policy).substr(kPrefix));
}

// Where one rank holds all sequences of the step at once or fewer: what the job's own micro-batch
// would not give.
std::string MicroBatchRemedy(const PlanInput& input, const v1::MemoryAdvice& advice) {
  for (const v1::PolicyAdvice& policy : advice.policies()) {
    if (!policy.has_same_ranks()) continue;
    const v1::FittingShape& shape = policy.same_ranks();
    const auto planned = BatchSplit(input.global_batch, input.world_size, input.micro_batch);
    if (shape.micro_batch() >= planned.max_micro_batch()) return "";
    return absl::StrCat("on ", input.world_size, input.world_size == 1 ? " rank" : " ranks",
                        " spec.train.microBatch: ", shape.micro_batch(),
                        " with spec.train.recompute: ", PolicyText(policy.recompute()));
  }
  return "";
}

}  // namespace

v1::MemoryAdvice AdviseOnMemory(const PlanInput& input) {
  v1::MemoryAdvice advice;
  PlanInput asked = input;
  if (input.device_memory_bytes <= 0) {
    if (input.device != DeviceKind::kCuda) return advice;
    asked.device_memory_bytes = kH200MemoryBytes;
    advice.set_assumed_device("NVIDIA H200");
  }
  advice.set_device_memory_bytes(asked.device_memory_bytes);
  advice.set_largest_world_size(kLargestAdvisedWorld);
  for (const v1::RecomputePolicy policy : kPolicies) {
    *advice.add_policies() = AdviseOnPolicy(asked, policy);
  }
  return advice;
}

std::string FittingRanksText(const v1::MemoryAdvice& advice) {
  std::vector<std::string> choices;
  int fewest = std::numeric_limits<int>::max();
  const auto add = [&](const v1::FittingShape& shape, v1::RecomputePolicy policy, bool smaller) {
    if (shape.world_size() >= fewest) return;
    fewest = shape.world_size();
    choices.push_back(
        absl::StrCat(fewest, fewest == 1 ? " rank (" : " ranks (",
                     choices.empty() ? "recompute " : "", PolicyText(policy),
                     smaller ? absl::StrCat(", microBatch ", shape.micro_batch()) : "", ")"));
  };
  for (const v1::PolicyAdvice& policy : advice.policies()) {
    if (policy.has_as_is()) add(policy.as_is(), policy.recompute(), false);
  }
  for (const v1::PolicyAdvice& policy : advice.policies()) {
    if (policy.has_smaller_micro_batch()) {
      add(policy.smaller_micro_batch(), policy.recompute(), true);
    }
  }
  return absl::StrJoin(choices, ", ");
}

std::string MemoryRemedies(const PlanInput& input) {
  const v1::MemoryAdvice advice = AdviseOnMemory(input);
  std::vector<std::string> remedies;
  const std::string ranks = FittingRanksText(advice);
  if (!ranks.empty()) remedies.push_back(ranks);
  const std::string micro_batch = MicroBatchRemedy(input, advice);
  if (!micro_batch.empty()) remedies.push_back(micro_batch);
  remedies.push_back(absl::StrCat("spec.data.sequenceLength below ", input.sequence_length));
  if (input.parameter_dtype == DType::kF32) {
    remedies.emplace_back("spec.precision.parameters: bf16");
  }
  if (!input.reshard_after_forward) {
    remedies.emplace_back("spec.sharding.reshardAfterForward: true");
  }
  const std::string text = absl::StrJoin(remedies, "; ");
  if (!ranks.empty()) return text;
  return absl::StrCat("no number of ranks up to ", kLargestAdvisedWorld, " is enough; ", text);
}

}  // namespace fsdp
