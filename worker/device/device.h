#ifndef FSDPCTL_WORKER_DEVICE_DEVICE_H_
#define FSDPCTL_WORKER_DEVICE_DEVICE_H_

// The seam between the engine and a backend (cpu, cuda). Everything above this header is written
// once.
//
// Thread rule: a Device and its streams are driven by one host thread (the trainer's step thread).
// Only Communicator::Abort, Synchronize(Event&) and read-only queries may come from elsewhere.
// Lifetime: Device outlives its streams, events, buffers and Ops.
//
// Streams are ordered queues. On CUDA the four of them are CUDA streams (gather and scatter with
// high priority). On the CPU the compute stream runs work at once on the calling thread, and
// gather, scatter and copy are one worker thread each, so that communication overlaps compute there
// too.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

class Ops;

class Stream {
 public:
  virtual ~Stream() = default;
};

// Marks a point in a stream. Reusable: a second Record moves the mark.
class Event {
 public:
  virtual ~Event() = default;
};

// A sequence of work that was recorded once and is launched as a whole; it reads and writes the
// same memory each time.
class DeviceGraph {
 public:
  using Issue = std::function<absl::Status()>;
  virtual ~DeviceGraph() = default;
};

// Owns one block of device memory.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  [[nodiscard]] virtual void* data() const = 0;
  [[nodiscard]] virtual std::size_t size_bytes() const = 0;
};

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  // Such as "AMD EPYC (2 threads)" or "NVIDIA H200".
  [[nodiscard]] virtual std::string name() const = 0;

  // Device memory, zero-filled, aligned to 256 bytes. Called while the trainer starts, never in a
  // step.
  //   RESOURCE_EXHAUSTED  the device has too little free memory; the message gives both figures.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(std::size_t size_bytes) = 0;
  // As Allocate, from memory that a communicator may register (Communicator::Register).
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShareable(std::size_t size_bytes) {
    return Allocate(size_bytes);
  }
  // Host memory that the device can copy from and to asynchronously (pinned on CUDA).
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(std::size_t size_bytes) = 0;
  // Bytes handed out by Allocate so far, and how many calls: the step loop asserts that neither
  // grows.
  [[nodiscard]] virtual std::size_t allocated_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t num_allocations() const = 0;

  virtual Stream& compute() = 0;
  virtual Stream& gather() = 0;
  virtual Stream& scatter() = 0;
  virtual Stream& copy() = 0;

  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;
  virtual absl::Status Record(Event& event, Stream& stream) = 0;
  // Work put into `stream` after this call starts only once `event`'s last Record was reached. The
  // host does not block, except on the CPU's compute stream, whose work is the host's own.
  virtual absl::Status Wait(Stream& stream, Event& event) = 0;
  // Seconds from `begin`'s last reached mark to `end`'s; both must have been reached.
  virtual absl::StatusOr<double> ElapsedSeconds(Event& begin, Event& end) = 0;

  // Copies between any two of host and device memory, in `stream`'s order.
  virtual absl::Status Copy(void* to, const void* from, std::size_t size_bytes, Stream& stream) = 0;
  virtual absl::Status Zero(void* data, std::size_t size_bytes, Stream& stream) = 0;
  // Blocks the host until everything put into `stream` has run; returns the first error of that
  // work.
  virtual absl::Status Synchronize(Stream& stream) = 0;
  // Blocks the calling thread, which may be any, until `event`'s last Record was reached. Nobody
  // records it again meanwhile.
  virtual absl::Status Synchronize(Event& event) = 0;

  // CUDA graphs. A device without them refuses the calls below: UNIMPLEMENTED.
  [[nodiscard]] virtual bool has_graphs() const { return false; }
  // Records what `issue` puts into `stream`, without running it. `issue` may use no other stream,
  // must not wait for the device, and has run once before, so that nothing is left to allocate.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> Capture(
      Stream& /*stream*/, const DeviceGraph::Issue& /*issue*/) {
    return absl::UnimplementedError("this device has no graphs");
  }
  virtual absl::Status Launch(DeviceGraph& /*graph*/, Stream& /*stream*/) {
    return absl::UnimplementedError("this device has no graphs");
  }
  // Kernels put into `stream` so far by the `issue` of its Capture, which is where to ask; copies
  // and fills are none.
  virtual absl::StatusOr<int> CapturedKernels(Stream& /*stream*/) {
    return absl::UnimplementedError("this device has no graphs");
  }

  virtual Ops& ops() = 0;
};

struct CpuDeviceOptions {
  // Threads that one rank's matmuls and loops use; 0 = the cores this process may run on, divided
  // by ranks_on_machine (at least 1).
  int num_threads = 0;
  // Ranks that share this machine's cores; used when num_threads is 0.
  int ranks_on_machine = 1;
};
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_DEVICE_H_
