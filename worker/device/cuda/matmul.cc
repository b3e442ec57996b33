#include "worker/device/cuda/matmul.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cuda_status.h"

namespace fsdp {
namespace {

cudaDataType_t CudaTypeOf(DType dtype) { return dtype == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F; }

// The largest power of two, up to 16, that divides the address and the row pitch.
std::uint8_t AlignmentOf(const Matrix& matrix) {
  const auto address = reinterpret_cast<std::uintptr_t>(matrix.data);
  const std::uintptr_t pitch = matrix.rows > 1 ? matrix.stride * SizeOf(matrix.dtype) : 0;
  const std::uintptr_t bits = address | pitch | 16;
  return static_cast<std::uint8_t>(bits & (~bits + 1));
}

// Products from 2 GFLOP on: below, a launch costs about as much as the product.
constexpr std::int64_t kWorthTiming = std::int64_t{1} << 30;
constexpr int kProposals = 8;
constexpr int kTimedRuns = 4;
constexpr float kClearly = 0.985F;

// Bits of a key's epilogue.
constexpr std::uint8_t kHasBias = 1;
constexpr std::uint8_t kHasGelu = 2;

cublasLtEpilogue_t EpilogueOf(std::uint8_t bits) {
  const bool bias = (bits & kHasBias) != 0;
  if ((bits & kHasGelu) != 0) {
    return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  }
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

// Everything an algorithm depends on but whether the product adds to its output.
std::string MatMulPlanner::ShapeOf(const Key& key) {
  return absl::StrJoin(
      {key.m, key.n, key.k, key.lda, key.ldb, key.ldo, std::int64_t{key.in_type},
       std::int64_t{key.out_type}, std::int64_t{key.trans_a}, std::int64_t{key.trans_b},
       std::int64_t{key.epilogue}, std::int64_t{key.align_a}, std::int64_t{key.align_b},
       std::int64_t{key.align_out}},
      ",");
}

std::size_t MatMulPlanner::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3ULL; };
  for (std::int64_t value : {key.m, key.n, key.k, key.lda, key.ldb, key.ldo}) mix(value);
  for (std::uint8_t value :
       {key.in_type, key.out_type, key.trans_a, key.trans_b, key.epilogue, key.accumulate,
        key.has_workspace, key.align_a, key.align_b, key.align_out}) {
    mix(value);
  }
  return hash;
}

absl::StatusOr<std::unique_ptr<MatMulPlanner>> MatMulPlanner::Create(const MatMulOptions& options) {
  std::unique_ptr<MatMulPlanner> planner(new MatMulPlanner(options));
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtCreate(planner->handle_.receive()));
  return planner;
}

absl::Status MatMulPlanner::Run(cudaStream_t stream, const Matrix& a, Transpose trans_a,
                                const Matrix& b, Transpose trans_b, const Epilogue& epilogue,
                                const Matrix& out, bool accumulate) {
  const bool has_workspace = stream == options_.workspace_stream;
  const Key key{
      .m = out.rows,
      .n = out.cols,
      .k = trans_a == Transpose::kNo ? a.cols : a.rows,
      .lda = a.stride,
      .ldb = b.stride,
      .ldo = out.stride,
      .in_type = static_cast<std::uint8_t>(a.dtype),
      .out_type = static_cast<std::uint8_t>(out.dtype),
      .trans_a = trans_a == Transpose::kYes,
      .trans_b = trans_b == Transpose::kYes,
      .epilogue = static_cast<std::uint8_t>((epilogue.bias != nullptr ? kHasBias : 0) |
                                            (epilogue.gelu_input != nullptr ? kHasGelu : 0)),
      .accumulate = accumulate,
      .has_workspace = has_workspace,
      .align_a = AlignmentOf(a),
      .align_b = AlignmentOf(b),
      .align_out = AlignmentOf(out)};
  const Call call{stream, b.data, a.data, out.data, epilogue, accumulate};
  ASSIGN_OR_RETURN(Plan * plan, FindOrMake(key, call));
  return Launch(*plan, call);
}

absl::Status MatMulPlanner::Launch(const Plan& plan, const Call& call) {
  const auto point = [&plan](cublasLtMatmulDescAttributes_t attribute, const void* address) {
    if (address == nullptr) return absl::OkStatus();
    return CublasToStatus(
        cublasLtMatmulDescSetAttribute(plan.descriptor.get(), attribute, &address, sizeof(address)),
        "cublasLtMatmulDescSetAttribute");
  };
  RETURN_IF_ERROR(point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.epilogue.bias));
  RETURN_IF_ERROR(point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.epilogue.gelu_input));
  const float one = 1;
  const float beta = call.accumulate ? 1 : 0;
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmul(
      handle_.get(), plan.descriptor.get(), &one, call.left, plan.left.get(), call.right,
      plan.right.get(), &beta, call.out, plan.out.get(), call.out, plan.out.get(), &plan.algorithm,
      options_.workspace.data(), plan.workspace_bytes, call.stream));
  return absl::OkStatus();
}

absl::StatusOr<MatMulPlanner::Plan*> MatMulPlanner::FindOrMake(const Key& key, const Call& call) {
  if (auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  auto plan = std::make_unique<Plan>();
  RETURN_IF_ERROR(Describe(key, *plan));
  RETURN_IF_ERROR(Annotate(Choose(key, call, *plan),
                           absl::StrFormat("matmul [%d,%d] x [%d,%d] of %s into %s", key.m, key.k,
                                           key.k, key.n, NameOf(static_cast<DType>(key.in_type)),
                                           NameOf(static_cast<DType>(key.out_type)))));
  return plans_.emplace(key, std::move(plan)).first->second.get();
}

// cuBLASLt is column-major: our row-major out[M,N] is its [N,M], so the product is computed as
// out^T = op(b)^T op(a)^T with the operands swapped and nothing copied.
absl::Status MatMulPlanner::Describe(const Key& key, Plan& plan) {
  const cudaDataType_t in_type = CudaTypeOf(static_cast<DType>(key.in_type));
  const cudaDataType_t out_type = CudaTypeOf(static_cast<DType>(key.out_type));
  FSDP_RETURN_IF_CUBLAS_ERROR(
      cublasLtMatmulDescCreate(plan.descriptor.receive(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&plan](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return CublasToStatus(
        cublasLtMatmulDescSetAttribute(plan.descriptor.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
  };
  const cublasOperation_t left_op = key.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t right_op = key.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, left_op));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, right_op));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(key.epilogue)));
  if ((key.epilogue & kHasBias) != 0) {
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out_type));
  }
  if ((key.epilogue & kHasGelu) != 0) {
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ldo));
  }
  const auto layout = [](Layout& result, cudaDataType_t type, bool transposed, std::int64_t rows,
                         std::int64_t cols, std::int64_t stride) {
    if (transposed) std::swap(rows, cols);
    return CublasToStatus(cublasLtMatrixLayoutCreate(result.receive(), type, rows, cols, stride),
                          "cublasLtMatrixLayoutCreate");
  };
  RETURN_IF_ERROR(layout(plan.left, in_type, key.trans_b, key.n, key.k, key.ldb));
  RETURN_IF_ERROR(layout(plan.right, in_type, key.trans_a, key.k, key.m, key.lda));
  return layout(plan.out, out_type, false, key.n, key.m, key.ldo);
}

absl::StatusOr<MatMulPlanner::Proposals> MatMulPlanner::Propose(const Key& key, const Plan& plan,
                                                                int most) {
  Preference preference;
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceCreate(preference.receive()));
  const auto set = [&preference](cublasLtMatmulPreferenceAttributes_t attribute,
                                 const auto& value) {
    return CublasToStatus(
        cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  const std::uint64_t workspace_bytes = key.has_workspace ? options_.workspace.size() : 0;
  const std::uint32_t align_left = key.align_b;
  const std::uint32_t align_right = key.align_a;
  const std::uint32_t align_out = key.align_out;
  // Partial sums of a split K are added in f32, not in the output's type, and in a fixed order.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_left));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_right));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_out));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_out));
  Proposals proposals(static_cast<std::size_t>(most));
  int num_results = 0;
  FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), plan.descriptor.get(), plan.left.get(), plan.right.get(), plan.out.get(),
      plan.out.get(), preference.get(), most, proposals.data(), &num_results));
  proposals.resize(static_cast<std::size_t>(num_results));
  if (proposals.empty()) return CublasToStatus(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm");
  FSDP_RETURN_IF_CUBLAS_ERROR(proposals.front().state);
  return proposals;
}

absl::Status MatMulPlanner::Choose(const Key& key, const Call& call, Plan& plan) {
  const auto take = [&plan](const cublasLtMatmulAlgo_t& algorithm, std::size_t workspace_bytes) {
    plan.algorithm = algorithm;
    plan.workspace_bytes = workspace_bytes;
    return absl::OkStatus();
  };
  const bool timed =
      options_.time_algorithms && key.has_workspace && key.m * key.n * key.k >= kWorthTiming;
  if (timed) {
    // An algorithm of another build of the library is refused by its own check.
    if (const auto known = cache_.Find(ShapeOf(key))) {
      cublasLtMatmulHeuristicResult_t checked;
      const cublasStatus_t status = cublasLtMatmulAlgoCheck(
          handle_.get(), plan.descriptor.get(), plan.left.get(), plan.right.get(), plan.out.get(),
          plan.out.get(), &*known, &checked);
      if (status == CUBLAS_STATUS_SUCCESS && checked.workspaceSize <= options_.workspace.size()) {
        return take(*known, checked.workspaceSize);
      }
    }
  }
  // Timing a product that adds to its output would add it several times.
  const bool times = timed && !call.accumulate;
  ASSIGN_OR_RETURN(const Proposals proposals, Propose(key, plan, times ? kProposals : 1));
  if (!times) return take(proposals.front().algo, proposals.front().workspaceSize);
  ASSIGN_OR_RETURN(const cublasLtMatmulHeuristicResult_t best, Fastest(proposals, call, plan));
  cache_.Put(ShapeOf(key), best.algo);
  return take(best.algo, best.workspaceSize);
}

absl::StatusOr<cublasLtMatmulHeuristicResult_t> MatMulPlanner::Fastest(const Proposals& proposals,
                                                                       const Call& call,
                                                                       Plan& plan) {
  using EventHandle = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
  EventHandle begin;
  EventHandle end;
  FSDP_RETURN_IF_CUDA_ERROR(cudaEventCreate(begin.receive()));
  FSDP_RETURN_IF_CUDA_ERROR(cudaEventCreate(end.receive()));
  const cublasLtMatmulHeuristicResult_t* best = nullptr;
  float shortest = 0;
  for (const cublasLtMatmulHeuristicResult_t& proposal : proposals) {
    if (proposal.state != CUBLAS_STATUS_SUCCESS) continue;
    plan.algorithm = proposal.algo;
    plan.workspace_bytes = proposal.workspaceSize;
    RETURN_IF_ERROR(Launch(plan, call));
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), call.stream));
    for (int i = 0; i < kTimedRuns; ++i) RETURN_IF_ERROR(Launch(plan, call));
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), call.stream));
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()));
    float milliseconds = 0;
    FSDP_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    // Another one must be clearly faster than the library's own choice: it knows more than one run.
    if (best == nullptr || milliseconds < shortest * kClearly) {
      best = &proposal;
      shortest = milliseconds;
    }
  }
  return *best;
}

}  // namespace fsdp
