// The arena is registered with each communicator that wants it, before its first collective, and
// not any more when its memory goes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/clock.h"
#include "tests/parity/engine_harness.h"
#include "worker/comm/recording_communicator.h"
#include "worker/profile/flight_recorder.h"

namespace fsdp {
namespace {

using testing::ElementsAre;
using testing_support::MakeBatch;
using testing_support::Preset;
using testing_support::RunOptions;
using testing_support::ShareOf;
using testing_support::SmallPlan;

// Passes everything on, and notes what is registered and whether memory outside of it is used.
class RegisteringCommunicator final : public Communicator {
 public:
  RegisteringCommunicator(Communicator& inner, bool wants, std::vector<std::string>& log)
      : inner_(inner), wants_(wants), log_(log) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int world_size() const override { return inner_.world_size(); }
  [[nodiscard]] std::string kind() const override { return inner_.kind(); }
  [[nodiscard]] bool wants_registration() const override { return wants_; }
  absl::Status Register(const DeviceBuffer& buffer) override {
    if (!wants_) return absl::OkStatus();
    log_.push_back("register");
    registered_ = {static_cast<const std::byte*>(buffer.data()), buffer.size_bytes()};
    return refusal;
  }
  void Deregister(const DeviceBuffer& buffer) override {
    if (buffer.data() != registered_.data()) return;
    log_.push_back("deregister");
    registered_ = {};
  }
  absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) override {
    Note({shard, unit});
    return inner_.AllGather(shard, unit, stream);
  }
  absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) override {
    Note({shard, unit});
    return inner_.ReduceScatter(unit, shard, stream);
  }
  absl::Status AllReduce(const Vector& data, Stream& stream) override {
    return inner_.AllReduce(data, stream);
  }
  absl::Status Broadcast(const Vector& data, int root, Stream& stream) override {
    return inner_.Broadcast(data, root, stream);
  }
  absl::Status Barrier(Stream& stream) override { return inner_.Barrier(stream); }
  void Abort(const std::string& reason) override { inner_.Abort(reason); }
  [[nodiscard]] absl::Status Health() const override { return inner_.Health(); }

  absl::Status refusal;

 private:
  void Note(std::initializer_list<Vector> operands) {
    for (const Vector& operand : operands) {
      const auto* data = static_cast<const std::byte*>(operand.data);
      const bool inside = data >= registered_.data() &&
                          data + operand.size_bytes() <= registered_.data() + registered_.size();
      const std::string what = inside ? "inside" : "outside";
      if (log_.empty() || log_.back() != what) log_.push_back(what);
    }
  }

  Communicator& inner_;
  const bool wants_;
  std::vector<std::string>& log_;
  std::span<const std::byte> registered_;
};

struct Logs {
  std::vector<std::string> gather, scatter;
};

// Two ranks train one step; what rank 0's communicators saw.
absl::Status TrainRegistered(bool gather_wants, bool scatter_wants, bool one_communicator,
                             const absl::Status& refusal, Logs& logs) {
  RunOptions options;
  options.plan = SmallPlan(Preset("llama-tiny"));
  options.plan.world_size = 2;
  options.plan.num_communicators = one_communicator ? 1 : 2;
  const LocalRanksOptions ranks{2, CommunicatorKind::kInProcess, options.plan.num_communicators};
  std::array<Logs, 2> all;
  const absl::Status status =
      RunLocalRanks(ranks, CpuBackend(), [&](LocalRank& rank) -> absl::Status {
        Logs& mine = all[static_cast<std::size_t>(rank.rank)];
        FlightRecorder recorder(Clock::Real());
        RegisteringCommunicator inner_gather(*rank.gather, gather_wants, mine.gather);
        RegisteringCommunicator inner_scatter(*rank.scatter, scatter_wants, mine.scatter);
        inner_gather.refusal = refusal;
        // As the trainer wraps them.
        RecordingCommunicator gather(inner_gather, recorder, "gather");
        RecordingCommunicator scatter(inner_scatter, recorder, "scatter");
        const auto plan = Engine::PlanFor(options.plan, rank.device);
        if (!plan.ok()) return plan.status();
        const auto engine =
            Engine::Create(*plan, {}, rank.device, &gather, one_communicator ? &gather : &scatter);
        if (!engine.ok()) return engine.status();
        if (const auto ready = (*engine)->InitializeWeights(1); !ready.ok()) return ready;
        const auto batch = MakeBatch(options, 1);
        return (*engine)
            ->Step({1, 1e-3, ShareOf(batch.tokens, *plan, rank.rank),
                    ShareOf(batch.targets, *plan, rank.rank)})
            .status();
      });
  logs = all[0];
  return status;
}

TEST(Registration, CoversEveryGatherAndScatter) {
  Logs logs;
  const absl::Status status = TrainRegistered(true, true, false, absl::OkStatus(), logs);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(logs.gather, ElementsAre("register", "inside", "deregister"));
  EXPECT_THAT(logs.scatter, ElementsAre("register", "inside", "deregister"));
}

TEST(Registration, OneCommunicatorRegistersOnce) {
  Logs logs;
  const absl::Status status = TrainRegistered(true, true, true, absl::OkStatus(), logs);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(logs.gather, ElementsAre("register", "inside", "deregister"));
}

TEST(Registration, IsLeftOutWhereItIsNotWanted) {
  Logs logs;
  const absl::Status status = TrainRegistered(true, false, false, absl::OkStatus(), logs);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(logs.gather, ElementsAre("register", "inside", "deregister"));
  EXPECT_THAT(logs.scatter, ElementsAre("outside"));
}

TEST(Registration, ARefusalEndsTheRankBeforeItsFirstStep) {
  Logs logs;
  const absl::Status status =
      TrainRegistered(true, true, false, absl::UnavailableError("a peer is gone"), logs);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(logs.gather, ElementsAre("register", "deregister"));
}

}  // namespace
}  // namespace fsdp
