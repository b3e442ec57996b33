#ifndef FSDPCTL_WORKER_COMM_COMMUNICATOR_H_
#define FSDPCTL_WORKER_COMM_COMMUNICATOR_H_

// Collectives among the ranks of one epoch. Implementations: gloo (processes over TCP), in_process
// (ranks are threads), nccl (cuda only). All pass tests/contract/communicator_contract_test.cc.
//
// Thread rule: collectives are issued by one thread, in the same order on every rank; Abort and
// Health may be called from any thread at any time. Ordering: a collective is put into `stream` and
// may return before it ran; it never blocks the host for a peer unless `stream` is the CPU's
// compute stream. After any error or Abort the communicator is dead: every later call returns the
// first error. Errors (returned by the call, or by Synchronize of the stream, or by Health):
//   UNAVAILABLE        a peer is gone (connection closed or reset); the message names rank and
//   collective DEADLINE_EXCEEDED  a peer did not join within the timeout given at creation ABORTED
//   Abort was called here INVALID_ARGUMENT   shapes or dtypes do not fit; nothing was sent

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device.h"
#include "worker/device/tensor.h"

namespace fsdp {

// How a communicator gets at the memory that its collectives read and write. `local` and the rest
// need ranks of one machine that can map each other's memory; where they cannot, they do as kNone.
enum class BufferRegistration : std::uint8_t {
  kNone,              // by way of buffers of its own
  kLocal,             // peers read and write registered memory themselves
  kWindow,            // the same, at the same offsets on every rank: shorter algorithms
  kWindowCopyEngine,  // and gathers by copy engines, which leaves the multiprocessors alone
};
// "none", "local", "window", "window-ce".
const char* NameOf(BufferRegistration registration);
//   INVALID_ARGUMENT  none of those names
absl::StatusOr<BufferRegistration> ParseBufferRegistration(const std::string& name);
// Of trainers; docs/adr/0011-nccl.md.
inline constexpr BufferRegistration kDefaultRegistration = BufferRegistration::kNone;

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  // "gloo", "in_process", "nccl".
  [[nodiscard]] virtual std::string kind() const = 0;

  // unit[world_size * shard.size] = the shards of all ranks in rank order. Out of place: the shard
  // must not lie inside `unit`.
  virtual absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) = 0;
  // shard[i] = sum over ranks of their unit[rank * shard.size + i], formed in rank order (nccl: in
  // a fixed order of its own), so that equal inputs give equal bits. `unit` may be used as scratch
  // and is undefined afterwards.
  virtual absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) = 0;
  // data = sum over ranks, in place, the same bits on every rank.
  virtual absl::Status AllReduce(const Vector& data, Stream& stream) = 0;
  // Rank `root`'s data on every rank.
  virtual absl::Status Broadcast(const Vector& data, int root, Stream& stream) = 0;
  // Done on `stream` once every rank's has been reached.
  virtual absl::Status Barrier(Stream& stream) = 0;

  // Whether Register does anything: then the buffers come from Device::AllocateShareable.
  [[nodiscard]] virtual bool wants_registration() const { return false; }
  // Lets collectives on parts of `buffer` do without copies. Every rank registers buffers of equal
  // sizes in the same order while no collective is pending, and from then on uses equal offsets in
  // them. Errors as a collective's.
  virtual absl::Status Register(const DeviceBuffer& /*buffer*/) { return absl::OkStatus(); }
  // Before a registered buffer goes, and when no collective uses it any more. An abort has done it.
  virtual void Deregister(const DeviceBuffer& /*buffer*/) {}

  // Names what the next collectives carry ("layers.3"), for flight recorders; has no other effect.
  virtual void SetLabel(std::string_view label) { static_cast<void>(label); }

  // Every pending and later collective here returns ABORTED; peers see this rank as gone.
  virtual void Abort(const std::string& reason) = 0;
  [[nodiscard]] virtual absl::Status Health() const = 0;
};

// The peer that an UNAVAILABLE of a communicator blames; absent: unknown. Survives Annotate.
absl::Status WithPeer(absl::Status status, int peer);
std::optional<int> PeerOf(const absl::Status& status);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_COMM_COMMUNICATOR_H_
