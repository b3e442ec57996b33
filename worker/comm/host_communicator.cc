#include "worker/comm/host_communicator.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/comm/host_reduce.h"
#include "worker/device/cpu/cpu_stream.h"

namespace fsdp {
namespace {

absl::Status CheckPair(const char* operation, const Vector& shard, const Vector& unit,
                       int world_size) {
  if (shard.dtype != unit.dtype) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the shard is %s, the unit %s", operation,
                                                      NameOf(shard.dtype), NameOf(unit.dtype)));
  }
  if (shard.size < 0 || unit.size != shard.size * world_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: a shard of %d elements on %d ranks needs a unit of %d, not %d",
                        operation, shard.size, world_size, shard.size * world_size, unit.size));
  }
  if (shard.size > 0 && (shard.data == nullptr || unit.data == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": an operand has no memory"));
  }
  const auto* shard_begin = static_cast<const std::byte*>(shard.data);
  const auto* unit_begin = static_cast<const std::byte*>(unit.data);
  if (shard.size > 0 && shard_begin < unit_begin + unit.size_bytes() &&
      unit_begin < shard_begin + shard.size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": the shard lies inside the unit"));
  }
  return absl::OkStatus();
}

absl::Status CheckOne(const char* operation, const Vector& data) {
  if (data.size < 0 || (data.size > 0 && data.data == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d elements without memory", operation, data.size));
  }
  return absl::OkStatus();
}

absl::Status CheckSummable(const char* operation, DType dtype) {
  if (IsSummable(dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %s cannot be summed; use f32, bf16, f64 or i32", operation, NameOf(dtype)));
}

}  // namespace

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
  RETURN_IF_ERROR(CheckPair("all_gather", shard, unit, world_size_));
  return Issue(stream, [this, shard, unit] {
    if (shard.size == 0) return absl::OkStatus();
    if (world_size_ > 1) return RunAllGather(shard, unit);
    std::memcpy(unit.data, shard.data, static_cast<std::size_t>(shard.size_bytes()));
    return absl::OkStatus();
  });
}

absl::Status HostCommunicator::ReduceScatter(const Vector& unit, const Vector& shard,
                                             Stream& stream) {
  RETURN_IF_ERROR(CheckPair("reduce_scatter", shard, unit, world_size_));
  RETURN_IF_ERROR(CheckSummable("reduce_scatter", unit.dtype));
  return Issue(stream, [this, shard, unit] {
    if (shard.size == 0) return absl::OkStatus();
    if (world_size_ > 1) return RunReduceScatter(unit, shard);
    std::memcpy(shard.data, unit.data, static_cast<std::size_t>(shard.size_bytes()));
    return absl::OkStatus();
  });
}

absl::Status HostCommunicator::AllReduce(const Vector& data, Stream& stream) {
  RETURN_IF_ERROR(CheckOne("all_reduce", data));
  RETURN_IF_ERROR(CheckSummable("all_reduce", data.dtype));
  return Issue(stream, [this, data] {
    return data.size == 0 || world_size_ == 1 ? absl::OkStatus() : RunAllReduce(data);
  });
}

absl::Status HostCommunicator::Broadcast(const Vector& data, int root, Stream& stream) {
  RETURN_IF_ERROR(CheckOne("broadcast", data));
  if (root < 0 || root >= world_size_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("broadcast: root %d is not a rank of %d", root, world_size_));
  }
  return Issue(stream, [this, data, root] {
    return data.size == 0 || world_size_ == 1 ? absl::OkStatus() : RunBroadcast(data, root);
  });
}

absl::Status HostCommunicator::Barrier(Stream& stream) {
  return Issue(stream, [this] { return world_size_ == 1 ? absl::OkStatus() : RunBarrier(); });
}

}  // namespace fsdp
