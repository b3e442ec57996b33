#ifndef FSDPCTL_WORKER_TRAIN_LOCAL_RANKS_H_
#define FSDPCTL_WORKER_TRAIN_LOCAL_RANKS_H_

// Several ranks on this machine without a daemon: oracle, bench, `run --local-ranks`, tests.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/rendezvous_store.h"
#include "worker/device/device.h"

namespace fsdp {

// "gloo": a process per rank; "in_process": a thread per rank; "nccl": a process per rank and
// device.
enum class CommunicatorKind : std::uint8_t { kGloo, kInProcess, kNccl };

//   INVALID_ARGUMENT  none of "gloo", "in_process", "nccl"
absl::StatusOr<CommunicatorKind> ParseCommunicatorKind(const std::string& name);

struct LocalRanksOptions {
  int world_size = 1;
  CommunicatorKind communicator = CommunicatorKind::kInProcess;
  int num_communicators = 2;
  bool deterministic = false;
  BufferRegistration registration = kDefaultRegistration;  // nccl
};

// What the executable brings: the device of a rank and the communicators between processes.
struct LocalBackend {
  // `name`: "gather" or "scatter".
  using CreateCommunicator = std::function<absl::StatusOr<std::unique_ptr<Communicator>>(
      const std::string& name, int rank, const LocalRanksOptions& options, Device& device,
      RendezvousStore& store)>;

  // `deterministic`: the same bits in every run of the same ranks (spec.train.deterministic).
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int rank, int world_size,
                                                        bool deterministic)>
      create_device;
  // Each is null where the backend has none; gloo and in_process need device memory that the host
  // can touch, so a backend has either gloo or nccl.
  CreateCommunicator create_gloo;
  CreateCommunicator create_nccl;
  // What a rank may use of the device's memory (0: unknown), and what of it is in use; null:
  // unknown, and the process's resident memory.
  std::function<std::int64_t(Device&)> memory_bytes;
  std::function<std::int64_t(Device&)> used_bytes;
};

// CPU devices that share the machine's cores, and gloo.
LocalBackend CpuBackend();

// The one that tools take when none is named: nccl where the backend has nothing else.
const char* DefaultCommunicator(const LocalBackend& backend);
// Whether the backend has it; a question for the command line.
//   INVALID_ARGUMENT  it has not; names what it has
absl::Status CheckCommunicator(CommunicatorKind kind, int world_size, const LocalBackend& backend);

struct LocalRank {
  int rank = 0;
  Device& device;
  Communicator* gather = nullptr;  // null at world size 1
  Communicator* scatter = nullptr;
};

// Calls `body` once per rank and returns when all have returned; the first error, with its rank.
// With processes, rank 0 runs in this process (so its captures come back) and the others in
// children that are forked before any device exists: call it before threads are started, or with
// kInProcess.
absl::Status RunLocalRanks(const LocalRanksOptions& options, const LocalBackend& backend,
                           const std::function<absl::Status(LocalRank&)>& body);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_LOCAL_RANKS_H_
