#include "worker/device/cuda/cudnn_graph.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp {

absl::StatusOr<std::shared_ptr<CudnnLibrary>> CudnnLibrary::Open() {
  void* const file = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) return absl::FailedPreconditionError(dlerror());
  std::shared_ptr<CudnnLibrary> library(new CudnnLibrary);
  const char* missing = nullptr;
  const auto find = [file, &missing](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(file, name));
    if (function == nullptr) missing = name;
  };
  find("cudnnGetVersion", library->get_version);
  find("cudnnGetErrorString", library->get_error_string);
  find("cudnnGetLastErrorString", library->get_last_error_string);
  find("cudnnCreate", library->create);
  find("cudnnDestroy", library->destroy);
  find("cudnnSetStream", library->set_stream);
  find("cudnnBackendCreateDescriptor", library->create_descriptor);
  find("cudnnBackendDestroyDescriptor", library->destroy_descriptor);
  find("cudnnBackendSetAttribute", library->set_attribute);
  find("cudnnBackendGetAttribute", library->get_attribute);
  find("cudnnBackendFinalize", library->finalize);
  find("cudnnBackendExecute", library->execute);
  if (missing != nullptr) {
    return absl::FailedPreconditionError(absl::StrFormat("libcudnn.so.9 has no %s", missing));
  }
  RETURN_IF_ERROR(library->ToStatus(library->create(&library->handle), "cudnnCreate"));
  return library;
}

CudnnLibrary::~CudnnLibrary() {
  if (handle != nullptr) static_cast<void>(destroy(handle));
}

std::string CudnnLibrary::version_text() const {
  const std::size_t value = version();
  return absl::StrFormat("%d.%d.%d", value / 10000, value / 100 % 100, value % 100);
}

absl::Status CudnnLibrary::ToStatus(cudnnStatus_t status, std::string_view call) const {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  std::array<char, 512> detail{};
  get_last_error_string(detail.data(), detail.size());
  const auto code = status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR
                        ? absl::StatusCode::kUnimplemented
                        : absl::StatusCode::kInternal;
  return {code, absl::StrFormat("%s: %s (%s)", call, get_error_string(status), detail.data())};
}

CudnnGraph::~CudnnGraph() {
  if (pack_ != nullptr) static_cast<void>(library_->destroy_descriptor(pack_));
  for (auto it = owned_.rbegin(); it != owned_.rend(); ++it) {
    static_cast<void>(library_->destroy_descriptor(*it));
  }
}

CudnnGraph::Descriptor CudnnGraph::Create(cudnnBackendDescriptorType_t type,
                                          std::string_view name) {
  if (!status_.ok()) return nullptr;
  Descriptor descriptor = nullptr;
  Keep(library_->ToStatus(library_->create_descriptor(type, &descriptor), name));
  if (descriptor != nullptr) owned_.push_back(descriptor);
  return descriptor;
}

void CudnnGraph::Set(Descriptor descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  if (!status_.ok()) return;
  Keep(library_->ToStatus(library_->set_attribute(descriptor, name, type, count, values),
                          absl::StrFormat("cudnnBackendSetAttribute(%d)", static_cast<int>(name))));
}

void CudnnGraph::SetTensor(Descriptor descriptor, cudnnBackendAttributeName_t name,
                           TensorId tensor) {
  if (!status_.ok()) return;
  Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors_[tensor - 1]);
}

void CudnnGraph::Finalize(Descriptor descriptor, std::string_view name) {
  if (!status_.ok()) return;
  Keep(library_->ToStatus(library_->finalize(descriptor), absl::StrFormat("finalize %s", name)));
}

CudnnGraph::TensorId CudnnGraph::AddTensor(cudnnDataType_t type, const Dims4& dims,
                                           const Dims4& strides, bool is_virtual, bool by_value) {
  Descriptor tensor = Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "create tensor");
  tensors_.push_back(tensor);
  const auto id = static_cast<TensorId>(tensors_.size());
  const std::int64_t alignment = 16;
  Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  Set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  Set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  Set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  Set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  if (is_virtual) Set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  if (by_value) Set(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  Finalize(tensor, "tensor");
  return id;
}

CudnnGraph::TensorId CudnnGraph::Tensor(cudnnDataType_t type, const Dims4& dims,
                                        const Dims4& strides) {
  return AddTensor(type, dims, strides, false, false);
}
CudnnGraph::TensorId CudnnGraph::Virtual(cudnnDataType_t type, const Dims4& dims,
                                         const Dims4& strides) {
  return AddTensor(type, dims, strides, true, false);
}
CudnnGraph::TensorId CudnnGraph::Scalar() {
  return AddTensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

void CudnnGraph::AddPointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute_type,
                              const PointwiseOperands& operands) {
  Descriptor kind = Create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "create pointwise");
  Set(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  Set(kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
  if (operands.axis >= 0) {
    Set(kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &operands.axis);
  }
  Finalize(kind, "pointwise");
  Descriptor operation =
      Create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "create pointwise operation");
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &kind);
  SetTensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, operands.x);
  if (operands.b != 0) SetTensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, operands.b);
  if (operands.condition != 0) {
    SetTensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, operands.condition);
  }
  SetTensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, operands.y);
  Finalize(operation, absl::StrFormat("pointwise operation %d", static_cast<int>(mode)));
  operations_.push_back(operation);
}

void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId y) {
  AddPointwise(mode, CUDNN_DATA_FLOAT, {.x = x, .y = y});
}
void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, TensorId a, TensorId b, TensorId y) {
  AddPointwise(mode, CUDNN_DATA_FLOAT, {.x = a, .b = b, .y = y});
}
void CudnnGraph::GreaterEqual(TensorId a, TensorId b, TensorId y) {
  AddPointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, {.x = a, .b = b, .y = y});
}
void CudnnGraph::Select(TensorId a, TensorId b, TensorId condition, TensorId y) {
  AddPointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT,
               {.x = a, .b = b, .condition = condition, .y = y});
}
void CudnnGraph::Index(TensorId x, std::int64_t axis, TensorId y) {
  AddPointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, {.x = x, .y = y, .axis = axis});
}

void CudnnGraph::MatMul(TensorId a, TensorId b, TensorId c) {
  const cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  Descriptor kind = Create(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "create matmul");
  Set(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
  Finalize(kind, "matmul");
  Descriptor operation =
      Create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "create matmul operation");
  SetTensor(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  SetTensor(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  SetTensor(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  Set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &kind);
  Finalize(operation, "matmul operation");
  operations_.push_back(operation);
}

void CudnnGraph::Reduce(cudnnReduceTensorOp_t op, TensorId x, TensorId y) {
  const cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  Descriptor kind = Create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "create reduction");
  Set(kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  Set(kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
  Finalize(kind, "reduction");
  Descriptor operation =
      Create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "create reduction operation");
  SetTensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  SetTensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  Set(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &kind);
  Finalize(operation, "reduction operation");
  operations_.push_back(operation);
}

void CudnnGraph::Reshape(TensorId x, TensorId y) {
  Descriptor operation =
      Create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "create reshape operation");
  SetTensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  SetTensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  Finalize(operation, "reshape operation");
  operations_.push_back(operation);
}

absl::Status CudnnGraph::Build() {
  Descriptor graph = Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "create graph");
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      static_cast<std::int64_t>(operations_.size()), operations_.data());
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &library_->handle);
  Finalize(graph, "graph");
  RETURN_IF_ERROR(status_);
  absl::Status chosen = Choose(CUDNN_HEUR_MODE_A, graph);
  if (!chosen.ok()) chosen = Choose(CUDNN_HEUR_MODE_FALLBACK, graph);
  return chosen;
}

absl::Status CudnnGraph::Choose(cudnnBackendHeurMode_t mode, Descriptor graph) {
  constexpr std::int64_t kMaxConfigs = 8;
  Descriptor heuristic = Create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "create heuristic");
  Set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  Set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  RETURN_IF_ERROR(status_);
  // From here on a refusal is no error of the graph: the next candidate may take it.
  RETURN_IF_ERROR(library_->ToStatus(library_->finalize(heuristic), "finalize heuristic"));
  std::array<Descriptor, kMaxConfigs> configs{};
  for (Descriptor& config : configs) {
    config = Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "create engine configuration");
  }
  RETURN_IF_ERROR(status_);
  std::int64_t num_configs = 0;
  RETURN_IF_ERROR(
      library_->ToStatus(library_->get_attribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, kMaxConfigs,
                                                 &num_configs, configs.data()),
                         "get heuristic results"));
  absl::Status last = absl::UnimplementedError("cuDNN proposes no engine");
  for (std::int64_t i = 0; i < std::min(num_configs, kMaxConfigs); ++i) {
    Descriptor plan = Create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "create plan");
    Set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &configs[i]);
    Set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &library_->handle);
    RETURN_IF_ERROR(status_);
    last = library_->ToStatus(library_->finalize(plan), "finalize plan");
    if (!last.ok()) continue;
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    RETURN_IF_ERROR(
        library_->ToStatus(library_->get_attribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                   CUDNN_TYPE_INT64, 1, &count, &bytes),
                           "get workspace size"));
    workspace_bytes_ = static_cast<std::size_t>(bytes);
    plan_ = plan;
    // The engine's number is for the print-out only; not every version tells it.
    Descriptor engine = Create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "create engine");
    if (library_->get_attribute(configs[i], CUDNN_ATTR_ENGINECFG_ENGINE,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                &engine) == CUDNN_STATUS_SUCCESS) {
      static_cast<void>(library_->get_attribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                CUDNN_TYPE_INT64, 1, &count, &engine_));
    }
    return absl::OkStatus();
  }
  return absl::UnimplementedError(last.message());
}

absl::Status CudnnGraph::Execute(cudaStream_t stream, std::span<const Binding> bindings,
                                 void* workspace) {
  constexpr std::size_t kMaxBindings = 24;
  std::array<std::int64_t, kMaxBindings> ids{};
  std::array<const void*, kMaxBindings> addresses{};
  if (bindings.size() > kMaxBindings) return absl::InternalError("too many tensors bound");
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    ids[i] = bindings[i].tensor;
    addresses[i] = bindings[i].address;
  }
  if (pack_ != nullptr)
    static_cast<void>(library_->destroy_descriptor(std::exchange(pack_, nullptr)));
  RETURN_IF_ERROR(library_->ToStatus(
      library_->create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack_), "create pack"));
  const auto count = static_cast<std::int64_t>(bindings.size());
  Set(pack_, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  Set(pack_, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data());
  Set(pack_, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  Finalize(pack_, "pack");
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(
      library_->ToStatus(library_->set_stream(library_->handle, stream), "cudnnSetStream"));
  return library_->ToStatus(library_->execute(library_->handle, plan_, pack_),
                            "cudnnBackendExecute");
}

}  // namespace fsdp
