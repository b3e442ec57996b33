#include "worker/device/cuda/attention.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/kernels/kernels.h"

namespace fsdp {
namespace {

float ScaleOf(const AttentionShape& shape) {
  return shape.scale != 0 ? shape.scale : 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
}

const std::byte* ElementAt(const Matrix& matrix, std::int64_t element) {
  return static_cast<const std::byte*>(matrix.data) + element * SizeOf(matrix.dtype);
}

kernels::AttentionArgs ArgsOf(const Matrix& qkv, const AttentionShape& shape,
                              std::span<const std::int32_t> document_begins, const Matrix& out,
                              const Vector& lse) {
  const std::int64_t q_cols = static_cast<std::int64_t>(shape.num_heads) * shape.head_dim;
  const std::int64_t kv_cols = static_cast<std::int64_t>(shape.num_kv_heads) * shape.head_dim;
  kernels::AttentionArgs args;
  args.dtype = qkv.dtype;
  args.q = qkv.data;
  args.k = ElementAt(qkv, q_cols);
  args.v = ElementAt(qkv, q_cols + kv_cols);
  args.out = out.data;
  args.lse = static_cast<float*>(lse.data);
  args.batch = shape.batch;
  args.seq = shape.seq;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = static_cast<int>(shape.head_dim);
  args.qkv_stride = qkv.stride;
  args.out_stride = out.stride;
  args.scale = ScaleOf(shape);
  args.causal = shape.causal;
  if (shape.documents) args.begins = document_begins.data();
  return args;
}

void AddBackward(const Matrix& d_out, const Matrix& d_qkv, const AttentionShape& shape,
                 kernels::AttentionArgs& args) {
  const std::int64_t q_cols = static_cast<std::int64_t>(shape.num_heads) * shape.head_dim;
  const std::int64_t kv_cols = static_cast<std::int64_t>(shape.num_kv_heads) * shape.head_dim;
  args.d_out = d_out.data;
  args.dq = d_qkv.data;
  args.dk = const_cast<std::byte*>(ElementAt(d_qkv, q_cols));
  args.dv = const_cast<std::byte*>(ElementAt(d_qkv, q_cols + kv_cols));
  args.d_out_stride = d_out.stride;
  args.d_qkv_stride = d_qkv.stride;
}

std::size_t DeltaBytes(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.num_heads * shape.seq) * sizeof(float);
}

CudnnAttentionKey KeyOf(const kernels::AttentionArgs& args, bool backward, bool deterministic) {
  CudnnAttentionKey key;
  key.batch = args.batch;
  key.seq = args.seq;
  key.num_heads = args.num_heads;
  key.num_kv_heads = args.num_kv_heads;
  key.head_dim = args.head_dim;
  key.qkv_stride = args.qkv_stride;
  key.out_stride = args.out_stride;
  if (backward) {
    key.d_out_stride = args.d_out_stride;
    key.d_qkv_stride = args.d_qkv_stride;
    key.deterministic = deterministic;
  }
  key.scale = args.scale;
  key.causal = args.causal;
  key.backward = backward;
  return key;
}

CudnnAttentionTensors TensorsOf(const kernels::AttentionArgs& args) {
  return {.q = args.q,
          .k = args.k,
          .v = args.v,
          .out = const_cast<void*>(args.out),
          .lse = args.lse,
          .d_out = args.d_out,
          .dq = args.dq,
          .dk = args.dk,
          .dv = args.dv};
}

// cuDNN's kernels read 16 bytes at a time.
bool CudnnTakes(const kernels::AttentionArgs& args) {
  if (args.dtype != DType::kBf16 || args.head_dim % 8 != 0 || args.head_dim > 256) return false;
  for (const void* data :
       {args.q, args.k, args.v, args.out, args.d_out, static_cast<const void*>(args.dq),
        static_cast<const void*>(args.dk), static_cast<const void*>(args.dv)}) {
    if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) return false;
  }
  for (std::int64_t stride :
       {args.qkv_stride, args.out_stride, args.d_out_stride, args.d_qkv_stride}) {
    if (stride % 8 != 0) return false;
  }
  return true;
}

// Of packed operands at unknown, well aligned addresses.
kernels::AttentionArgs PackedArgs(const AttentionShape& shape, DType dtype, bool backward) {
  const std::int64_t q_cols = static_cast<std::int64_t>(shape.num_heads) * shape.head_dim;
  const std::int64_t kv_cols = static_cast<std::int64_t>(shape.num_kv_heads) * shape.head_dim;
  const std::int64_t rows = shape.batch * shape.seq;
  const Matrix qkv = Matrix::Packed(nullptr, dtype, rows, q_cols + 2 * kv_cols);
  const Matrix out = Matrix::Packed(nullptr, dtype, rows, q_cols);
  kernels::AttentionArgs args = ArgsOf(qkv, shape, {}, out, Vector{});
  if (backward) AddBackward(out, qkv, shape, args);
  return args;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaAttention>> CudaAttention::Create(AttentionBackend backend,
                                                                     bool deterministic) {
  std::unique_ptr<CudaAttention> attention(new CudaAttention);
  attention->backend_ = backend;
  attention->deterministic_ = deterministic;
  if (backend == AttentionBackend::kOwn) return attention;
  absl::StatusOr<std::unique_ptr<CudnnAttention>> cudnn = CudnnAttention::Create();
  if (cudnn.ok()) {
    attention->cudnn_ = *std::move(cudnn);
  } else if (backend == AttentionBackend::kCudnn) {
    return cudnn.status();
  }
  return attention;
}

absl::StatusOr<CudnnAttentionPlan*> CudaAttention::PlanFor(const CudnnAttentionKey& key) {
  if (auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  absl::StatusOr<std::unique_ptr<CudnnAttentionPlan>> plan = cudnn_->MakePlan(key);
  if (!plan.ok() &&
      (backend_ == AttentionBackend::kCudnn || !absl::IsUnimplemented(plan.status()))) {
    return plan.status();
  }
  // A refusal is kept too: null sends this shape to the own kernels without asking again.
  auto& kept = plans_[key];
  if (plan.ok()) kept = *std::move(plan);
  return kept.get();
}

absl::StatusOr<CudaAttention::Choice> CudaAttention::Choose(const kernels::AttentionArgs& args,
                                                            bool documents, bool backward) {
  if (documents && backend_ == AttentionBackend::kCudnn) {
    return absl::UnimplementedError(
        "attention: cuDNN is demanded, and its kernels know no documents: leave the choice to the "
        "backend, or demand our own");
  }
  Choice choice;
  if (!documents && cudnn_ != nullptr && CudnnTakes(args)) {
    ASSIGN_OR_RETURN(choice.cudnn, PlanFor(KeyOf(args, backward, deterministic_)));
  }
  choice.tensor_cores = kernels::FlashAttentionTakes(args);
  return choice;
}

absl::Status CudaAttention::Forward(cudaStream_t stream, const Matrix& qkv,
                                    const AttentionShape& shape,
                                    std::span<const std::int32_t> document_begins,
                                    const Matrix& out, const Vector& lse,
                                    std::span<std::byte> scratch) {
  const kernels::AttentionArgs args = ArgsOf(qkv, shape, document_begins, out, lse);
  ASSIGN_OR_RETURN(const Choice choice, Choose(args, shape.documents, /*backward=*/false));
  if (choice.cudnn != nullptr) return choice.cudnn->Run(stream, TensorsOf(args), scratch);
  if (choice.tensor_cores) {
    return CudaToStatus(kernels::FlashAttentionForward(stream, args), "FlashAttentionForward");
  }
  return CudaToStatus(kernels::AttentionForward(stream, args), "AttentionForward");
}

absl::Status CudaAttention::Backward(cudaStream_t stream, const Matrix& d_out, const Matrix& qkv,
                                     const Matrix& out, const Vector& lse,
                                     const AttentionShape& shape,
                                     std::span<const std::int32_t> document_begins,
                                     const Matrix& d_qkv, std::span<std::byte> scratch) {
  kernels::AttentionArgs args = ArgsOf(qkv, shape, document_begins, out, lse);
  AddBackward(d_out, d_qkv, shape, args);
  ASSIGN_OR_RETURN(const Choice choice, Choose(args, shape.documents, /*backward=*/true));
  if (choice.cudnn != nullptr) return choice.cudnn->Run(stream, TensorsOf(args), scratch);
  args.delta = reinterpret_cast<float*>(scratch.data());
  if (choice.tensor_cores) {
    return CudaToStatus(kernels::FlashAttentionBackward(stream, args), "FlashAttentionBackward");
  }
  return CudaToStatus(kernels::AttentionBackward(stream, args), "AttentionBackward");
}

std::size_t CudaAttention::ScratchBytes(const AttentionShape& shape, DType dtype, bool backward) {
  const std::size_t own_bytes = backward ? DeltaBytes(shape) : 0;
  if (shape.batch * shape.seq == 0) return own_bytes;
  const absl::StatusOr<Choice> choice =
      Choose(PackedArgs(shape, dtype, backward), shape.documents, backward);
  // A failure comes back, as an error, from the call that wants to run this shape.
  if (!choice.ok() || choice->cudnn == nullptr) return own_bytes;
  return std::max(own_bytes, choice->cudnn->scratch_bytes());
}

absl::StatusOr<std::string> CudaAttention::KernelName(const AttentionShape& shape, DType dtype,
                                                      bool backward) {
  if (shape.batch * shape.seq == 0) return "none";
  ASSIGN_OR_RETURN(const Choice choice,
                   Choose(PackedArgs(shape, dtype, backward), shape.documents, backward));
  if (choice.cudnn != nullptr) return choice.cudnn->name();
  return choice.tensor_cores ? "own tensor-core" : "own fp32";
}

}  // namespace fsdp
