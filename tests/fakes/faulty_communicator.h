#ifndef FSDPCTL_TESTS_FAKES_FAULTY_COMMUNICATOR_H_
#define FSDPCTL_TESTS_FAKES_FAULTY_COMMUNICATOR_H_

// A communicator that fails where a script says, and is the wrapped one everywhere else.

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "worker/comm/communicator.h"

namespace fsdp {

// What happens at the n-th collective (from 1) of this communicator.
class FaultScript {
 public:
  // The call returns `status`, and so does every later one.
  FaultScript& FailAt(int collective, absl::Status status) {
    faults_[collective] = [status](Communicator&) { return status; };
    return *this;
  }
  // As if the process had died: the rank is gone for its peers.
  FaultScript& DieAt(int collective) {
    faults_[collective] = [](Communicator& inner) {
      inner.Abort("killed by the script");
      return inner.Health();
    };
    return *this;
  }
  // Runs `action` first, then the collective as usual.
  FaultScript& RunAt(int collective, std::function<void()> action) {
    faults_[collective] = [action = std::move(action)](Communicator&) {
      action();
      return absl::OkStatus();
    };
    return *this;
  }

  // At the n-th agreement of the trainers (from 1), when no engine computes, this rank's part of
  // the unit that was gathered last becomes NaN: a device whose memory went bad. f32 on the CPU.
  FaultScript& PoisonWeightsAtAgreement(int agreement) {
    poison_at_ = agreement;
    return *this;
  }
  [[nodiscard]] int poison_at() const { return poison_at_; }

  [[nodiscard]] absl::Status Apply(int collective, Communicator& inner) const {
    const auto fault = faults_.find(collective);
    return fault == faults_.end() ? absl::OkStatus() : fault->second(inner);
  }

 private:
  std::map<int, std::function<absl::Status(Communicator&)>> faults_;
  int poison_at_ = 0;
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, FaultScript script)
      : inner_(std::move(inner)), script_(std::move(script)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int world_size() const override { return inner_->world_size(); }
  [[nodiscard]] std::string kind() const override { return inner_->kind(); }

  absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) override {
    const absl::Status status = Next();
    if (agreeing_) {
      if (++agreements_ == script_.poison_at()) Poison();
    } else {
      gathered_ = shard;
    }
    return status.ok() ? inner_->AllGather(shard, unit, stream) : status;
  }
  absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) override {
    const absl::Status status = Next();
    return status.ok() ? inner_->ReduceScatter(unit, shard, stream) : status;
  }
  absl::Status AllReduce(const Vector& data, Stream& stream) override {
    const absl::Status status = Next();
    return status.ok() ? inner_->AllReduce(data, stream) : status;
  }
  absl::Status Broadcast(const Vector& data, int root, Stream& stream) override {
    const absl::Status status = Next();
    return status.ok() ? inner_->Broadcast(data, root, stream) : status;
  }
  absl::Status Barrier(Stream& stream) override {
    const absl::Status status = Next();
    return status.ok() ? inner_->Barrier(stream) : status;
  }
  void SetLabel(std::string_view label) override {
    agreeing_ = label == "agree";
    inner_->SetLabel(label);
  }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }
  [[nodiscard]] absl::Status Health() const override {
    return dead_.ok() ? inner_->Health() : dead_;
  }

 private:
  absl::Status Next() {
    if (dead_.ok()) dead_ = script_.Apply(++issued_, *inner_);
    return dead_;
  }

  void Poison() const {
    auto* const values = static_cast<float*>(gathered_.data);
    std::fill(values, values + gathered_.size, std::numeric_limits<float>::quiet_NaN());
  }

  std::unique_ptr<Communicator> inner_;
  FaultScript script_;
  Vector gathered_{};  // of this rank, not an agreement
  bool agreeing_ = false;
  int agreements_ = 0;
  int issued_ = 0;
  absl::Status dead_;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_FAKES_FAULTY_COMMUNICATOR_H_
