#ifndef FSDPCTL_TESTS_GPU_LINK_COMMUNICATOR_H_
#define FSDPCTL_TESTS_GPU_LINK_COMMUNICATOR_H_

// A communicator of one rank that pretends to have peers behind a link of a given speed: it keeps
// its stream busy for as long as the bytes of a unit would take there, so that one device shows
// what a step hides of its collectives and what it cannot.

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "worker/comm/communicator.h"

namespace fsdp {

// Keeps a stream busy. Begin and End are called in turn with the same stream.
class LinkOccupancy {
 public:
  virtual ~LinkOccupancy() = default;
  // Notes the time when `stream` gets here.
  virtual absl::Status Begin(Stream& stream) = 0;
  // Holds `stream` until `seconds` after the time that Begin noted.
  virtual absl::Status End(Stream& stream, double seconds) = 0;
};

// Rank 0 of `world_size`. What peers would send is made up: AllGather fills every slice of the unit
// with this rank's shard, ReduceScatter returns this rank's slice as it is, AllReduce and Broadcast
// leave the data as it is. Losses are finite and mean nothing.
//
// Thread rule and ordering: as Communicator. Lifetime: device and occupancy outlive it.
class LinkCommunicator final : public Communicator {
 public:
  enum class Kind : std::uint8_t { kGather, kScatter, kReduce };
  struct Record {
    Kind kind = Kind::kGather;
    std::string label;
    std::int64_t bytes = 0;  // of the whole unit
    double seconds = 0;      // that the stream was held for
  };

  // `bytes_per_second` of the link; 0: nothing is held up.
  LinkCommunicator(Device& device, LinkOccupancy& occupancy, int world_size,
                   double bytes_per_second);

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] std::string kind() const override { return "link"; }
  absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) override;
  absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) override;
  absl::Status AllReduce(const Vector& data, Stream& stream) override;
  absl::Status Broadcast(const Vector& data, int root, Stream& stream) override;
  absl::Status Barrier(Stream& stream) override;
  void SetLabel(std::string_view label) override { label_ = label; }
  void Abort(const std::string& reason) override;
  [[nodiscard]] absl::Status Health() const override;

  // Every collective that was issued, in order.
  [[nodiscard]] const std::vector<Record>& records() const { return records_; }

 private:
  template <typename Fn>
  absl::Status Occupy(Kind kind, std::int64_t bytes, Stream& stream, Fn&& move);

  Device& device_;
  LinkOccupancy& occupancy_;
  const int world_size_;
  const double bytes_per_second_;
  std::string label_;
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
  std::vector<Record> records_;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_GPU_LINK_COMMUNICATOR_H_
