#include "worker/device/cpu/cpu_device.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/device/cpu/cpu_ops.h"
#include "worker/device/cpu/cpu_stream.h"
#include "worker/device/cpu/thread_pool.h"

namespace fsdp::cpu {
namespace {

constexpr int kMaxThreads = 1024;
constexpr std::size_t kAlignmentBytes = 256;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// The `field` line of a /proc file in "key : value" form; empty when there is none.
std::string ProcField(const char* path, const std::string& field) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (colon == std::string::npos || begin == std::string::npos) return "";
    return line.substr(begin);
  }
  return "";
}

// Unlimited when the system does not say.
std::size_t AvailableBytes() {
  const std::string field = ProcField("/proc/meminfo", "MemAvailable");
  if (field.empty()) return std::numeric_limits<std::size_t>::max();
  return std::strtoull(field.c_str(), nullptr, 10) * 1024;
}

class CpuBuffer final : public DeviceBuffer {
 public:
  CpuBuffer(void* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  ~CpuBuffer() override { std::free(data_); }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  [[nodiscard]] void* data() const override { return data_; }
  [[nodiscard]] std::size_t size_bytes() const override { return size_bytes_; }

 private:
  void* data_;
  std::size_t size_bytes_;
};

absl::StatusOr<std::unique_ptr<DeviceBuffer>> NewBuffer(std::size_t size_bytes) {
  const std::size_t available = AvailableBytes();
  const std::size_t alignment = size_bytes >= 2 * kHugePageBytes ? kHugePageBytes : kAlignmentBytes;
  void* data = nullptr;
  if (size_bytes <= available) {
    const std::size_t rounded = std::max(size_bytes, std::size_t{1}) + alignment - 1;
    data = std::aligned_alloc(alignment, rounded / alignment * alignment);
  }
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("cannot allocate %d bytes of host memory: %d bytes are available; use a "
                        "smaller model or micro-batch, or more ranks on other machines",
                        size_bytes, available));
  }
  // Large pages spare address look-ups in the matmuls; a refusal costs nothing.
  if (alignment == kHugePageBytes) madvise(data, size_bytes, MADV_HUGEPAGE);
  std::memset(data, 0, size_bytes);
  return std::make_unique<CpuBuffer>(data, size_bytes);
}

// Shared with the marks and waits in the queues, which may outlive the Event.
struct EventState {
  std::mutex mutex;
  std::condition_variable reached;
  std::uint64_t num_recorded = 0;  // Records asked for
  std::uint64_t num_reached = 0;   // the last one that a stream came to
  absl::Status status;             // of the stream at that point
  std::chrono::steady_clock::time_point time;
};

class CpuEvent final : public Event {
 public:
  const std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

// Blocks until the `number`-th Record was reached; the status of its stream there.
absl::Status AwaitMark(EventState& state, std::uint64_t number) {
  std::unique_lock<std::mutex> lock(state.mutex);
  state.reached.wait(lock, [&] { return state.num_reached >= number; });
  return state.status;
}

absl::StatusOr<CpuEvent*> AsCpuEvent(Event& event) {
  auto* cpu = dynamic_cast<CpuEvent*>(&event);
  if (cpu == nullptr) {
    return absl::InvalidArgumentError(
        "event: belongs to another backend; pass an event of the CPU device");
  }
  return cpu;
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int num_threads, const KernelSet& kernels, Bf16Path bf16_path)
      : pool_(num_threads), ops_(kernels, pool_, bf16_path) {
    const std::string model = ProcField("/proc/cpuinfo", "model name");
    name_ = absl::StrFormat("%s (%d thread%s)", model.empty() ? "CPU" : model, num_threads,
                            num_threads == 1 ? "" : "s");
  }

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCpu; }
  [[nodiscard]] std::string name() const override { return name_; }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(std::size_t size_bytes) override {
    auto buffer = NewBuffer(size_bytes);
    if (!buffer.ok()) return buffer;
    allocated_bytes_ += size_bytes;
    ++num_allocations_;
    return buffer;
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(std::size_t size_bytes) override {
    return NewBuffer(size_bytes);
  }
  [[nodiscard]] std::size_t allocated_bytes() const override { return allocated_bytes_; }
  [[nodiscard]] std::int64_t num_allocations() const override { return num_allocations_; }

  Stream& compute() override { return compute_; }
  Stream& gather() override { return gather_; }
  Stream& scatter() override { return scatter_; }
  Stream& copy() override { return copy_; }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<CpuEvent>();
  }
  absl::Status Record(Event& event, Stream& stream) override;
  absl::Status Wait(Stream& stream, Event& event) override;
  absl::StatusOr<double> ElapsedSeconds(Event& begin, Event& end) override;

  absl::Status Copy(void* to, const void* from, std::size_t size_bytes, Stream& stream) override;
  absl::Status Zero(void* data, std::size_t size_bytes, Stream& stream) override;
  absl::Status Synchronize(Stream& stream) override;
  absl::Status Synchronize(Event& event) override;

  Ops& ops() override { return ops_; }

 private:
  std::string name_;
  ThreadPool pool_;
  CpuOps ops_;
  std::size_t allocated_bytes_ = 0;
  std::int64_t num_allocations_ = 0;
  CpuStream compute_{"fsdp-compute", CpuStream::Mode::kInline};
  CpuStream gather_{"fsdp-gather", CpuStream::Mode::kThread};
  CpuStream scatter_{"fsdp-scatter", CpuStream::Mode::kThread};
  CpuStream copy_{"fsdp-copy", CpuStream::Mode::kThread};
};

absl::Status CpuDevice::Record(Event& event, Stream& stream) {
  const auto cpu_event = AsCpuEvent(event);
  if (!cpu_event.ok()) return cpu_event.status();
  const auto cpu_stream = AsCpuStream(stream);
  if (!cpu_stream.ok()) return cpu_stream.status();
  const std::shared_ptr<EventState> state = (*cpu_event)->state;
  std::uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    number = ++state->num_recorded;
  }
  (*cpu_stream)->AddMark([state, number](const absl::Status& status) {
    {
      const std::lock_guard<std::mutex> lock(state->mutex);
      state->num_reached = std::max(state->num_reached, number);
      state->status = status;
      state->time = std::chrono::steady_clock::now();
    }
    state->reached.notify_all();
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::Wait(Stream& stream, Event& event) {
  const auto cpu_event = AsCpuEvent(event);
  if (!cpu_event.ok()) return cpu_event.status();
  const auto cpu_stream = AsCpuStream(stream);
  if (!cpu_stream.ok()) return cpu_stream.status();
  const std::shared_ptr<EventState> state = (*cpu_event)->state;
  std::uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    number = state->num_recorded;
  }
  return (*cpu_stream)->Enqueue([state, number] { return AwaitMark(*state, number); });
}

absl::StatusOr<double> CpuDevice::ElapsedSeconds(Event& begin, Event& end) {
  std::chrono::steady_clock::time_point times[2];
  Event* const events[2] = {&begin, &end};
  for (int i = 0; i < 2; ++i) {
    const auto event = AsCpuEvent(*events[i]);
    if (!event.ok()) return event.status();
    const std::lock_guard<std::mutex> lock((*event)->state->mutex);
    if ((*event)->state->num_reached == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(i == 0 ? "begin" : "end",
                       ": the event was not reached yet; synchronize its stream first"));
    }
    times[i] = (*event)->state->time;
  }
  return std::chrono::duration<double>(times[1] - times[0]).count();
}

absl::Status CpuDevice::Copy(void* to, const void* from, std::size_t size_bytes, Stream& stream) {
  const auto cpu_stream = AsCpuStream(stream);
  if (!cpu_stream.ok()) return cpu_stream.status();
  if (size_bytes == 0) return absl::OkStatus();
  return (*cpu_stream)->Enqueue([=] {
    std::memmove(to, from, size_bytes);
    return absl::OkStatus();
  });
}

absl::Status CpuDevice::Zero(void* data, std::size_t size_bytes, Stream& stream) {
  const auto cpu_stream = AsCpuStream(stream);
  if (!cpu_stream.ok()) return cpu_stream.status();
  if (size_bytes == 0) return absl::OkStatus();
  return (*cpu_stream)->Enqueue([=] {
    std::memset(data, 0, size_bytes);
    return absl::OkStatus();
  });
}

absl::Status CpuDevice::Synchronize(Stream& stream) {
  const auto cpu_stream = AsCpuStream(stream);
  if (!cpu_stream.ok()) return cpu_stream.status();
  return (*cpu_stream)->Synchronize();
}

absl::Status CpuDevice::Synchronize(Event& event) {
  const auto cpu_event = AsCpuEvent(event);
  if (!cpu_event.ok()) return cpu_event.status();
  const std::shared_ptr<EventState> state = (*cpu_event)->state;
  std::uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    number = state->num_recorded;
  }
  return AwaitMark(*state, number);
}

}  // namespace

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

absl::StatusOr<std::unique_ptr<Device>> CreateCpuBackend(const CpuBackendOptions& options) {
  int num_threads = options.device.num_threads;
  if (num_threads < 0 || num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "num_threads is %d: use 1 to %d, or 0 for the machine's cores divided by its ranks",
        num_threads, kMaxThreads));
  }
  if (options.device.ranks_on_machine < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ranks_on_machine is %d: use at least 1", options.device.ranks_on_machine));
  }
  if (num_threads == 0) {
    num_threads = std::clamp(AvailableCores() / options.device.ranks_on_machine, 1, kMaxThreads);
  }
  const KernelSet& kernels = options.kernels != nullptr ? *options.kernels : BestKernels();
  return std::make_unique<CpuDevice>(num_threads, kernels,
                                     options.bf16_path.value_or(DetectBf16Path()));
}

}  // namespace fsdp::cpu

namespace fsdp {

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  return cpu::CreateCpuBackend({options, nullptr, std::nullopt});
}

}  // namespace fsdp
