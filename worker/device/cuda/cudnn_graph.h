#ifndef FSDPCTL_WORKER_DEVICE_CUDA_CUDNN_GRAPH_H_
#define FSDPCTL_WORKER_DEVICE_CUDA_CUDNN_GRAPH_H_

// A thin layer over cuDNN's backend API: the functions of the library opened at run time, and a
// builder that turns four-dimensional tensors and operations into an executable plan. The builder
// keeps its first error; later calls do nothing, so that a graph reads top-down.
//
// Thread rule: one thread at a time. Lifetime: a graph holds its library.

#include <cudnn_graph.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

// The opened library and one handle. Never closed: unloading a CUDA library at exit is not safe.
class CudnnLibrary {
 public:
  //   FAILED_PRECONDITION  libcudnn.so.9 or a function of it cannot be found, with dlerror's text
  static absl::StatusOr<std::shared_ptr<CudnnLibrary>> Open();
  ~CudnnLibrary();

  // As cudnnGetVersion: 91900 is 9.19.0.
  [[nodiscard]] std::size_t version() const { return get_version(); }
  [[nodiscard]] std::string version_text() const;
  //   UNIMPLEMENTED  the library does not support what was asked
  //   INTERNAL       everything else; the message has the library's last error text
  absl::Status ToStatus(cudnnStatus_t status, std::string_view call) const;

  cudnnHandle_t handle = nullptr;
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetErrorString) get_error_string = nullptr;
  decltype(&cudnnGetLastErrorString) get_last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

 private:
  CudnnLibrary() = default;
};

using Dims4 = std::array<std::int64_t, 4>;

class CudnnGraph {
 public:
  using TensorId = std::int64_t;

  explicit CudnnGraph(std::shared_ptr<CudnnLibrary> library) : library_(std::move(library)) {}
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  // A tensor in device memory; its address comes with Execute.
  TensorId Tensor(cudnnDataType_t type, const Dims4& dims, const Dims4& strides);
  // A tensor that exists only between two operations.
  TensorId Virtual(cudnnDataType_t type, const Dims4& dims, const Dims4& strides);
  // An f32 scalar that the host passes with Execute.
  TensorId Scalar();

  void Pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId y);
  void Pointwise(cudnnPointwiseMode_t mode, TensorId a, TensorId b, TensorId y);
  // a >= b into boolean y.
  void GreaterEqual(TensorId a, TensorId b, TensorId y);
  // y = condition ? a : b
  void Select(TensorId a, TensorId b, TensorId condition, TensorId y);
  // y[...] = index along `axis`, in the shape of x
  void Index(TensorId x, std::int64_t axis, TensorId y);
  void MatMul(TensorId a, TensorId b, TensorId c);
  void Reduce(cudnnReduceTensorOp_t op, TensorId x, TensorId y);
  void Reshape(TensorId x, TensorId y);

  // Picks the first engine that takes the graph, best guess first.
  //   UNIMPLEMENTED  none does
  absl::Status Build();

  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] std::int64_t engine() const { return engine_; }

  struct Binding {
    TensorId tensor;
    const void* address;  // of host memory for a Scalar
  };
  absl::Status Execute(cudaStream_t stream, std::span<const Binding> bindings, void* workspace);

 private:
  using Descriptor = cudnnBackendDescriptor_t;

  Descriptor Create(cudnnBackendDescriptorType_t type, std::string_view name);
  void Set(Descriptor descriptor, cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  void SetTensor(Descriptor descriptor, cudnnBackendAttributeName_t name, TensorId tensor);
  void Finalize(Descriptor descriptor, std::string_view name);
  TensorId AddTensor(cudnnDataType_t type, const Dims4& dims, const Dims4& strides, bool is_virtual,
                     bool by_value);
  struct PointwiseOperands {
    TensorId x = 0, b = 0, condition = 0, y = 0;  // 0: none
    std::int64_t axis = -1;
  };
  void AddPointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute_type,
                    const PointwiseOperands& operands);
  absl::Status Choose(cudnnBackendHeurMode_t mode, Descriptor graph);
  void Keep(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  std::shared_ptr<CudnnLibrary> library_;
  absl::Status status_;
  std::vector<Descriptor> owned_;       // destroyed with the graph, newest first
  std::vector<Descriptor> tensors_;     // id - 1 is the index
  std::vector<Descriptor> operations_;  // in order
  Descriptor plan_ = nullptr;
  Descriptor pack_ = nullptr;  // the variant pack, made anew by Execute
  std::size_t workspace_bytes_ = 0;
  std::int64_t engine_ = -1;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CUDA_CUDNN_GRAPH_H_
