#ifndef FSDPCTL_WORKER_COMM_HOST_COMMUNICATOR_H_
#define FSDPCTL_WORKER_COMM_HOST_COMMUNICATOR_H_

// What communicators over host memory share: operand checks, the queueing into CPU streams, world
// size 1, and the rule that the first error ends the communicator. Implementations only move bytes.

#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace fsdp {

class HostCommunicator : public Communicator {
 public:
  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int world_size() const final { return world_size_; }

  absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) final;
  absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) final;
  absl::Status AllReduce(const Vector& data, Stream& stream) final;
  absl::Status Broadcast(const Vector& data, int root, Stream& stream) final;
  absl::Status Barrier(Stream& stream) final;

  void Abort(const std::string& reason) final;
  [[nodiscard]] absl::Status Health() const final;

 protected:
  HostCommunicator(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  // Block until done. Operands are checked, world size is above 1 and there is something to move.
  virtual absl::Status RunAllGather(const Vector& shard, const Vector& unit) = 0;
  virtual absl::Status RunReduceScatter(const Vector& unit, const Vector& shard) = 0;
  virtual absl::Status RunAllReduce(const Vector& data) = 0;
  virtual absl::Status RunBroadcast(const Vector& data, int root) = 0;
  virtual absl::Status RunBarrier() = 0;
  // Makes a blocked Run... return soon. Any thread; the error is already in place.
  virtual void Interrupt() = 0;

  // Keeps the first error; returns what is kept.
  absl::Status Fail(const absl::Status& status);

 private:
  absl::Status Issue(Stream& stream, std::function<absl::Status()> run);

  const int rank_;
  const int world_size_;
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_HOST_COMMUNICATOR_H_
