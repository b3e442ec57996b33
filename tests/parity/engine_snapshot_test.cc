// Snapshots: of one step, taken beside the next one's forward and backward.

#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fakes/faulty_communicator.h"
#include "tests/parity/engine_harness.h"
#include "worker/comm/in_process.h"
#include "worker/device/cpu/cpu_stream.h"

namespace fsdp {
namespace {

using testing_support::MakeBatch;
using testing_support::Preset;
using testing_support::RunOptions;
using testing_support::ShareOf;
using testing_support::SmallPlan;

// All numbers of a snapshot or of the engine's own weights, as f32 bits.
std::vector<std::uint32_t> BitsOf(const std::vector<ShardTensor>& tensors) {
  std::vector<std::uint32_t> all;
  for (const ShardTensor& tensor : tensors) {
    for (const Vector* part : {&tensor.master, &tensor.m, &tensor.v}) {
      for (std::int64_t i = 0; i < part->size; ++i) {
        if (part->dtype == DType::kF32) {
          all.push_back(static_cast<const std::uint32_t*>(part->data)[i]);
        } else {
          const auto low = static_cast<const std::int16_t*>(tensor.remainder.data)[i];
          all.push_back(
              (static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(part->data)[i]) << 16) +
              static_cast<std::uint32_t>(static_cast<std::int32_t>(low)));
        }
      }
    }
  }
  return all;
}

struct Rank {
  std::unique_ptr<Device> device = CreateCpuDevice({.num_threads = 1}).value();
  std::unique_ptr<Communicator> gather, scatter;
  std::unique_ptr<Engine> engine;
};

absl::Status StepOf(const RunOptions& options, Rank& rank, std::int64_t step) {
  const auto batch = MakeBatch(options, step);
  const Plan& plan = rank.engine->plan();
  return rank.engine
      ->Step({step, 1e-2, ShareOf(batch.tokens, plan, rank.engine->rank()),
              ShareOf(batch.targets, plan, rank.engine->rank())})
      .status();
}

std::vector<Rank> MakeRanks(const RunOptions& options, const FaultScript& scatters) {
  const int world = options.plan.world_size;
  std::vector<Rank> ranks(static_cast<std::size_t>(world));
  auto gathers = CreateInProcessGroup(world).value();
  auto scattering = CreateInProcessGroup(world).value();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks[i];
    if (world > 1) {
      rank.gather = std::move(gathers[i]);
      rank.scatter = std::make_unique<FaultyCommunicator>(std::move(scattering[i]),
                                                          i == 0 ? scatters : FaultScript());
    }
    const Plan plan = Engine::PlanFor(options.plan, *rank.device).value();
    rank.engine =
        Engine::Create(plan, {}, *rank.device, rank.gather.get(), rank.scatter.get()).value();
    EXPECT_TRUE(rank.engine->InitializeWeights(7).ok());
  }
  return ranks;
}

RunOptions Options(int world, DType dtype) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.world_size = world;
  options.plan.parameter_dtype = dtype;
  options.plan.async_checkpoint = true;
  return options;
}

TEST(Snapshot, HoldsWeightsAndMomentsBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const RunOptions options = Options(1, dtype);
    std::vector<Rank> ranks = MakeRanks(options, {});
    ASSERT_TRUE(StepOf(options, ranks[0], 1).ok());
    const Snapshot snapshot = ranks[0].engine->TakeSnapshot().value();
    ASSERT_TRUE(ranks[0].device->Synchronize(*snapshot.copied).ok());
    EXPECT_EQ(BitsOf(snapshot.tensors), BitsOf(ranks[0].engine->OpenWeights().value()));
  }
}

// The copy does not move until the next step's first scatter, which is in its backward: whoever
// waits for the copy before that waits for ever. And it ends late: an update that does not wait
// writes over what is still to be copied.
TEST(Snapshot, TheNextStepsUpdateWaitsAndNothingBefore) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const RunOptions options = Options(2, dtype);
    std::promise<void> backward;
    std::shared_future<void> in_backward = backward.get_future();
    const int scatters_of_a_step = [&] {
      int count = 0;
      FaultScript counting;
      for (int i = 1; i <= 64; ++i) counting.RunAt(i, [&count] { ++count; });
      std::vector<Rank> ranks = MakeRanks(options, counting);
      std::thread other([&] { EXPECT_TRUE(StepOf(options, ranks[1], 1).ok()); });
      EXPECT_TRUE(StepOf(options, ranks[0], 1).ok());
      other.join();
      return count;
    }();
    ASSERT_GT(scatters_of_a_step, 2);
    FaultScript script;
    script.RunAt(scatters_of_a_step + 1, [&] { backward.set_value(); });
    std::vector<Rank> ranks = MakeRanks(options, script);
    std::thread other([&] {
      EXPECT_TRUE(StepOf(options, ranks[1], 1).ok());
      EXPECT_TRUE(StepOf(options, ranks[1], 2).ok());
    });
    ASSERT_TRUE(StepOf(options, ranks[0], 1).ok());
    const auto expected = BitsOf(ranks[0].engine->OpenWeights().value());
    CpuStream* const copy = AsCpuStream(ranks[0].device->copy()).value();
    ASSERT_TRUE(copy->Enqueue([in_backward] {
                      in_backward.wait();
                      return absl::OkStatus();
                    })
                    .ok());
    const Snapshot snapshot = ranks[0].engine->TakeSnapshot().value();
    ASSERT_TRUE(StepOf(options, ranks[0], 2).ok());
    other.join();
    ASSERT_TRUE(ranks[0].device->Synchronize(*snapshot.copied).ok());
    EXPECT_EQ(BitsOf(snapshot.tensors), expected);
    EXPECT_NE(BitsOf(ranks[0].engine->OpenWeights().value()), expected);
  }
}

TEST(Snapshot, NeedsAPlanThatHasMemoryForIt) {
  RunOptions options = Options(1, DType::kF32);
  options.plan.async_checkpoint = false;
  std::vector<Rank> ranks = MakeRanks(options, {});
  EXPECT_EQ(ranks[0].engine->plan().snapshot_bytes, 0);
  EXPECT_EQ(ranks[0].engine->TakeSnapshot().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fsdp
