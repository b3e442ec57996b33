// The time of a step by the plan: what of the collectives it says is hidden.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "worker/plan/plan_cost.h"

namespace fsdp {
namespace {

Plan Minillm(int world, int prefetch = 1) {
  v1::ModelSpec spec;
  spec.set_preset("minillm");
  PlanInput input;
  input.model = *ResolveModel(spec);
  input.world_size = world;
  input.sequence_length = 1024;
  input.global_batch = 8 * world;
  input.device = DeviceKind::kCuda;
  input.prefetch = prefetch;
  return *BuildPlan(input);
}

// What a rank receives of all units in `dtype`, bytes, and of one.
double Bytes(const Plan& plan, std::size_t unit, DType dtype) {
  const double world = plan.input.world_size;
  return static_cast<double>(plan.units[unit].layout.unit_elements()) *
         static_cast<double>(SizeOf(dtype)) * (world - 1) / world;
}

StepRates Rates(double links) {
  StepRates rates = H200StepRates(128);
  rates.collective_bytes_per_second = links;
  return rates;
}

double Compute(const PlanCost& cost, const StepRates& rates) {
  return cost.matmul_flops / rates.matmul_flops_per_second +
         cost.attention_flops / rates.attention_flops_per_second +
         cost.elementwise_bytes / rates.elementwise_bytes_per_second +
         cost.optimizer_bytes / rates.optimizer_bytes_per_second +
         static_cast<double>(cost.launches) * rates.launch_seconds;
}

TEST(StepSeconds, WithoutLinksOrWithEndlessOnesItIsTheWork) {
  const StepRates rates = Rates(std::numeric_limits<double>::infinity());
  for (const int world : {1, 2, 3, 8}) {
    const Plan plan = Minillm(world);
    EXPECT_NEAR(StepSeconds(plan, rates), Compute(CostOf(plan), rates), 1e-9) << world;
  }
  EXPECT_EQ(StepSeconds(Minillm(1), StepRates{}), 0);
}

// Behind the blocks everything is hidden: what is left are the gathers of the first two units,
// which only the embedding's look-up covers, and the scatters of the last two.
TEST(StepSeconds, OnlyTheEdgesAreExposed) {
  const double links = 350e9;
  const StepRates rates = Rates(links);
  for (const int world : {2, 4}) {
    const Plan plan = Minillm(world);
    const double embed = Compute(StageCostsOf(plan, 8).front().forward, rates);
    const auto gather = [&](std::size_t unit) { return Bytes(plan, unit, DType::kBf16) / links; };
    const auto scatter = [&](std::size_t unit) { return Bytes(plan, unit, DType::kF32) / links; };
    const double edges = gather(0) + std::max(gather(1) - embed, 0.0) +
                         std::max(scatter(1) - embed, 0.0) + scatter(0);
    EXPECT_NEAR(StepSeconds(plan, rates), Compute(CostOf(plan), rates) + edges, 1e-9) << world;
  }
}

// Each gather, those of backward too, then waits for the stage before it: the last block and the
// head are gathered once, as is the embedding.
TEST(StepSeconds, WithoutPrefetchEveryGatherIsExposed) {
  const double links = 350e9;
  const Plan ahead = Minillm(2, 1);
  const Plan behind = Minillm(2, 0);
  const std::size_t head = behind.units.size() - 1;
  double exposed = 0;
  for (std::size_t unit = 2; unit <= head; ++unit) {
    const bool again = unit < head - 1;
    exposed += (again ? 2 : 1) * Bytes(behind, unit, DType::kBf16) / links;
  }
  const double difference = StepSeconds(behind, Rates(links)) - StepSeconds(ahead, Rates(links));
  // The first block's two gathers: hidden in part, and behind a scatter.
  const double first = 2 * Bytes(behind, 1, DType::kBf16) / links;
  EXPECT_GE(difference, exposed);
  // A gather that is late also waits for the scatter before it on the links.
  double scatters = 0;
  for (std::size_t unit = 0; unit <= head; ++unit) {
    scatters += Bytes(behind, unit, DType::kF32) / links;
  }
  EXPECT_LE(difference, exposed + first + scatters);
}

TEST(StepSeconds, SlowLinksAreTheStep) {
  const double links = 1e9;
  const Plan plan = Minillm(2);
  double bytes = 0;
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit) {
    const bool again = unit > 0 && unit + 2 < plan.units.size();
    bytes += (again ? 2 : 1) * Bytes(plan, unit, DType::kBf16) + Bytes(plan, unit, DType::kF32);
  }
  const double seconds = StepSeconds(plan, Rates(links));
  EXPECT_GE(seconds, bytes / links);
  EXPECT_LE(seconds, bytes / links + Compute(CostOf(plan), Rates(links)));
}

// minillm 8x1024 on each of two H200s (docs/benchmarks.md, 2026-11-30).
TEST(StepSeconds, TwoGpusAreWithinTenPercent) {
  EXPECT_NEAR(StepSeconds(Minillm(2), H200StepRates(128)), 68.45e-3, 6.8e-3);
}

}  // namespace
}  // namespace fsdp
