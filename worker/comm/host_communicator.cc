#include "worker/comm/host_communicator.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/comm/operand_checks.h"
#include "worker/device/cpu/cpu_stream.h"

namespace fsdp {

absl::Status HostCommunicator::Fail(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_.ok()) status_ = status;
  return status_;
}

absl::Status HostCommunicator::Health() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

void HostCommunicator::Abort(const std::string& reason) {
  static_cast<void>(Fail(absl::AbortedError(absl::StrCat("aborted: ", reason))));
  Interrupt();
}

absl::Status HostCommunicator::Issue(Stream& stream, std::function<absl::Status()> run) {
  ASSIGN_OR_RETURN(CpuStream * queue, AsCpuStream(stream));
  RETURN_IF_ERROR(Health());
  return queue->Enqueue([this, run = std::move(run)]() -> absl::Status {
    RETURN_IF_ERROR(Health());
    const absl::Status status = run();
    return status.ok() ? status : Fail(status);
  });
}

absl::Status HostCommunicator::AllGather(const Vector& shard, const Vector& unit, Stream& stream) {
  RETURN_IF_ERROR(CheckShardAndUnit("all_gather", shard, unit, world_size_));
  return Issue(stream, [this, shard, unit] {
    if (shard.size == 0) return absl::OkStatus();
    if (world_size_ > 1) return RunAllGather(shard, unit);
    std::memcpy(unit.data, shard.data, static_cast<std::size_t>(shard.size_bytes()));
    return absl::OkStatus();
  });
}

absl::Status HostCommunicator::ReduceScatter(const Vector& unit, const Vector& shard,
                                             Stream& stream) {
  RETURN_IF_ERROR(CheckShardAndUnit("reduce_scatter", shard, unit, world_size_));
  RETURN_IF_ERROR(CheckSummable("reduce_scatter", unit.dtype));
  return Issue(stream, [this, shard, unit] {
    if (shard.size == 0) return absl::OkStatus();
    if (world_size_ > 1) return RunReduceScatter(unit, shard);
    std::memcpy(shard.data, unit.data, static_cast<std::size_t>(shard.size_bytes()));
    return absl::OkStatus();
  });
}

absl::Status HostCommunicator::AllReduce(const Vector& data, Stream& stream) {
  RETURN_IF_ERROR(CheckMemory("all_reduce", data));
  RETURN_IF_ERROR(CheckSummable("all_reduce", data.dtype));
  return Issue(stream, [this, data] {
    return data.size == 0 || world_size_ == 1 ? absl::OkStatus() : RunAllReduce(data);
  });
}

absl::Status HostCommunicator::Broadcast(const Vector& data, int root, Stream& stream) {
  RETURN_IF_ERROR(CheckMemory("broadcast", data));
  RETURN_IF_ERROR(CheckRoot("broadcast", root, world_size_));
  return Issue(stream, [this, data, root] {
    return data.size == 0 || world_size_ == 1 ? absl::OkStatus() : RunBroadcast(data, root);
  });
}

absl::Status HostCommunicator::Barrier(Stream& stream) {
  return Issue(stream, [this] { return world_size_ == 1 ? absl::OkStatus() : RunBarrier(); });
}

}  // namespace fsdp
