#include "worker/device/cuda/cuda_device.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cuda_ops.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/unique_handle.h"

namespace fsdp {
namespace {

using StreamHandle = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

class CudaStream final : public Stream {
 public:
  StreamHandle handle;
};

class CudaEvent final : public Event {
 public:
  EventHandle handle;
};

class CudaGraph final : public DeviceGraph {
 public:
  GraphExecHandle handle;
};

class Buffer final : public DeviceBuffer {
 public:
  using Free = void (*)(void*);
  Buffer(void* data, std::size_t size_bytes, Free free)
      : data_(data), size_bytes_(size_bytes), free_(free) {}
  ~Buffer() override {
    if (data_ != nullptr) free_(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const override { return data_; }
  std::size_t size_bytes() const override { return size_bytes_; }

 private:
  void* data_;
  std::size_t size_bytes_;
  Free free_;
};

void FreeDevice(void* data) { static_cast<void>(cudaFree(data)); }
void FreeHost(void* data) { static_cast<void>(cudaFreeHost(data)); }

class CudaDevice final : public Device {
 public:
  absl::Status Init(const CudaDeviceOptions& options) {
    shareable_ = options.shareable;
    ordinal_ = options.ordinal;
    FSDP_RETURN_IF_CUDA_ERROR(cudaSetDevice(options.ordinal));
    cudaDeviceProp properties;
    FSDP_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, options.ordinal));
    name_ = properties.name;
    int least = 0;
    int greatest = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    RETURN_IF_ERROR(CreateStream(compute_, 0));
    RETURN_IF_ERROR(CreateStream(gather_, greatest));
    RETURN_IF_ERROR(CreateStream(scatter_, greatest));
    RETURN_IF_ERROR(CreateStream(copy_, least));
    ASSIGN_OR_RETURN(workspace_, Allocate(options.matmul_workspace_bytes));
    CudaOpsContext context;
    context.compute_stream = compute_.handle.get();
    context.matmul_workspace = {static_cast<std::byte*>(workspace_->data()),
                                workspace_->size_bytes()};
    context.attention = options.attention;
    context.deterministic = options.deterministic;
    context.cache_directory = options.cache_directory;
    context.device = name_;
    ASSIGN_OR_RETURN(ops_, CreateCudaOps(context));
    return absl::OkStatus();
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(std::size_t size_bytes) override {
    void* data = nullptr;
    // Zero bytes still get an address, so that empty tensors are told from missing ones.
    const std::size_t bytes = std::max<std::size_t>(size_bytes, 256);
    if (cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) {
      return AllocationError(error, bytes);
    }
    return Cleared(std::make_unique<Buffer>(data, size_bytes, FreeDevice));
  }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShareable(std::size_t size_bytes) override {
    if (shareable_.allocate == nullptr || size_bytes == 0) return Allocate(size_bytes);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
    if (size_bytes > free_bytes) return TooLittle(size_bytes, free_bytes, total_bytes);
    ASSIGN_OR_RETURN(void* data, shareable_.allocate(size_bytes));
    return Cleared(std::make_unique<Buffer>(data, size_bytes, shareable_.free));
  }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(std::size_t size_bytes) override {
    void* data = nullptr;
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(&data, std::max<std::size_t>(size_bytes, 1), cudaHostAllocDefault));
    return std::make_unique<Buffer>(data, size_bytes, FreeHost);
  }

  std::size_t allocated_bytes() const override { return allocated_bytes_; }
  std::int64_t num_allocations() const override { return num_allocations_; }

  Stream& compute() override { return compute_; }
  Stream& gather() override { return gather_; }
  Stream& scatter() override { return scatter_; }
  Stream& copy() override { return copy_; }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    auto event = std::make_unique<CudaEvent>();
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventCreate(event->handle.receive()));
    return event;
  }

  absl::Status Record(Event& event, Stream& stream) override {
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventRecord(Handle(event), CudaStreamOf(stream)));
    return absl::OkStatus();
  }

  absl::Status Wait(Stream& stream, Event& event) override {
    FSDP_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(CudaStreamOf(stream), Handle(event), 0));
    return absl::OkStatus();
  }

  absl::StatusOr<double> ElapsedSeconds(Event& begin, Event& end) override {
    float milliseconds = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, Handle(begin), Handle(end)));
    return milliseconds * 1e-3;
  }

  absl::Status Copy(void* to, const void* from, std::size_t size_bytes, Stream& stream) override {
    if (size_bytes == 0) return absl::OkStatus();
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, CudaStreamOf(stream)));
    return absl::OkStatus();
  }

  absl::Status Zero(void* data, std::size_t size_bytes, Stream& stream) override {
    if (size_bytes == 0) return absl::OkStatus();
    FSDP_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(data, 0, size_bytes, CudaStreamOf(stream)));
    return absl::OkStatus();
  }

  absl::Status Synchronize(Stream& stream) override {
    FSDP_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(CudaStreamOf(stream)));
    return absl::OkStatus();
  }

  absl::Status Synchronize(Event& event) override {
    // A thread of its own would begin on device 0.
    FSDP_RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal_));
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(Handle(event)));
    return absl::OkStatus();
  }

  bool has_graphs() const override { return true; }

  absl::StatusOr<std::unique_ptr<DeviceGraph>> Capture(Stream& stream,
                                                       const DeviceGraph::Issue& issue) override {
    // Other threads (a communicator's watch) may go on calling CUDA.
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaStreamBeginCapture(CudaStreamOf(stream), cudaStreamCaptureModeThreadLocal));
    const absl::Status issued = issue();
    GraphHandle graph;
    const cudaError_t ended = cudaStreamEndCapture(CudaStreamOf(stream), graph.receive());
    RETURN_IF_ERROR(issued);
    FSDP_RETURN_IF_CUDA_ERROR(ended);
    auto result = std::make_unique<CudaGraph>();
    FSDP_RETURN_IF_CUDA_ERROR(cudaGraphInstantiate(result->handle.receive(), graph.get(), 0));
    FSDP_RETURN_IF_CUDA_ERROR(cudaGraphUpload(result->handle.get(), CudaStreamOf(stream)));
    return result;
  }

  absl::Status Launch(DeviceGraph& graph, Stream& stream) override {
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaGraphLaunch(static_cast<CudaGraph&>(graph).handle.get(), CudaStreamOf(stream)));
    return absl::OkStatus();
  }

  absl::StatusOr<int> CapturedKernels(Stream& stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;  // the stream's, not ours
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaStreamGetCaptureInfo(CudaStreamOf(stream), &status, nullptr, &graph));
    if (status != cudaStreamCaptureStatusActive) {
      return absl::FailedPreconditionError("kernels are counted within a capture only");
    }
    std::size_t num_nodes = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaGraphGetNodes(graph, nullptr, &num_nodes));
    std::vector<cudaGraphNode_t> nodes(num_nodes);
    FSDP_RETURN_IF_CUDA_ERROR(cudaGraphGetNodes(graph, nodes.data(), &num_nodes));
    int num_kernels = 0;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
      FSDP_RETURN_IF_CUDA_ERROR(cudaGraphNodeGetType(node, &type));
      num_kernels += type == cudaGraphNodeTypeKernel ? 1 : 0;
    }
    return num_kernels;
  }

  Ops& ops() override { return *ops_; }

 private:
  static cudaEvent_t Handle(Event& event) { return static_cast<CudaEvent&>(event).handle.get(); }

  static absl::Status CreateStream(CudaStream& stream, int priority) {
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaStreamCreateWithPriority(stream.handle.receive(), cudaStreamNonBlocking, priority));
    return absl::OkStatus();
  }

  // Zero-fills and counts a new buffer.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Cleared(std::unique_ptr<DeviceBuffer> buffer) {
    FSDP_RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(buffer->data(), 0, buffer->size_bytes(), compute_.handle.get()));
    FSDP_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(compute_.handle.get()));
    allocated_bytes_ += buffer->size_bytes();
    ++num_allocations_;
    return buffer;
  }

  static absl::Status TooLittle(std::size_t bytes, std::size_t free_bytes,
                                std::size_t total_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%d bytes of device memory asked for, %d of %d free", bytes, free_bytes, total_bytes));
  }
  static absl::Status AllocationError(cudaError_t error, std::size_t bytes) {
    absl::Status status = CudaToStatus(error, "cudaMalloc");
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (!absl::IsResourceExhausted(status) ||
        cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
      return status;
    }
    return TooLittle(bytes, free_bytes, total_bytes);
  }

  std::string name_;
  int ordinal_ = 0;
  ShareableMemory shareable_;
  CudaStream compute_;
  CudaStream gather_;
  CudaStream scatter_;
  CudaStream copy_;
  std::size_t allocated_bytes_ = 0;
  std::int64_t num_allocations_ = 0;
  std::unique_ptr<DeviceBuffer> workspace_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace

cudaStream_t CudaStreamOf(Stream& stream) { return static_cast<CudaStream&>(stream).handle.get(); }

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options) {
  auto device = std::make_unique<CudaDevice>();
  RETURN_IF_ERROR(Annotate(device->Init(options), absl::StrFormat("device %d", options.ordinal)));
  return device;
}

}  // namespace fsdp
