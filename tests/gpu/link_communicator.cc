#include "tests/gpu/link_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/comm/operand_checks.h"

namespace fsdp {

LinkCommunicator::LinkCommunicator(Device& device, LinkOccupancy& occupancy, int world_size,
                                   double bytes_per_second)
    : device_(device),
      occupancy_(occupancy),
      world_size_(world_size),
      bytes_per_second_(bytes_per_second) {}

absl::Status LinkCommunicator::Health() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

void LinkCommunicator::Abort(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_.ok()) status_ = absl::AbortedError(absl::StrCat("aborted: ", reason));
}

template <typename Fn>
absl::Status LinkCommunicator::Occupy(Kind kind, std::int64_t bytes, Stream& stream, Fn&& move) {
  RETURN_IF_ERROR(Health());
  const bool held = bytes_per_second_ > 0;
  const double seconds = held ? static_cast<double>(bytes) / bytes_per_second_ : 0;
  if (held) RETURN_IF_ERROR(occupancy_.Begin(stream));
  RETURN_IF_ERROR(std::forward<Fn>(move)());
  if (held) RETURN_IF_ERROR(occupancy_.End(stream, seconds));
  records_.push_back({kind, label_, bytes, seconds});
  return absl::OkStatus();
}

absl::Status LinkCommunicator::AllGather(const Vector& shard, const Vector& unit, Stream& stream) {
  RETURN_IF_ERROR(CheckShardAndUnit("all_gather", shard, unit, world_size_));
  return Occupy(Kind::kGather, unit.size_bytes(), stream, [&]() -> absl::Status {
    const auto bytes = static_cast<std::size_t>(shard.size_bytes());
    for (int rank = 0; rank < world_size_; ++rank) {
      auto* slice = static_cast<std::byte*>(unit.data) + static_cast<std::size_t>(rank) * bytes;
      RETURN_IF_ERROR(device_.Copy(slice, shard.data, bytes, stream));
    }
    return absl::OkStatus();
  });
}

absl::Status LinkCommunicator::ReduceScatter(const Vector& unit, const Vector& shard,
                                             Stream& stream) {
  RETURN_IF_ERROR(CheckShardAndUnit("reduce_scatter", shard, unit, world_size_));
  return Occupy(Kind::kScatter, unit.size_bytes(), stream, [&] {
    return device_.Copy(shard.data, unit.data, static_cast<std::size_t>(shard.size_bytes()),
                        stream);
  });
}

// A few numbers: no time on the link.
absl::Status LinkCommunicator::AllReduce(const Vector& data, Stream& /*stream*/) {
  RETURN_IF_ERROR(Health());
  records_.push_back({Kind::kReduce, label_, data.size_bytes(), 0});
  return absl::OkStatus();
}

absl::Status LinkCommunicator::Broadcast(const Vector& /*data*/, int root, Stream& /*stream*/) {
  RETURN_IF_ERROR(CheckRoot("broadcast", root, world_size_));
  return Health();
}

absl::Status LinkCommunicator::Barrier(Stream& /*stream*/) { return Health(); }

}  // namespace fsdp
