// Whether cuBLASLt's fused epilogues win over a product and kernels of our own, for an MLP whose
// activation is GELU (the library has no SiLU): forward with bias, GELU and its input kept
// (GELU_AUX_BIAS); backward with dGELU and the bias gradient (DGELU_BGRAD), where the step also
// needs GELU's output again for the weight gradient.

#include <cublasLt.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "proto/support/status.h"
#include "tests/gpu/bench_support.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/unique_handle.h"

namespace fsdp::bench {
namespace {

constexpr DType kBf16 = DType::kBf16;
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kProposals = 8;
constexpr int kRounds = 20;

// The operands of one pass over the MLP; T x D -> F. Rows of `aux` are those of `wide`.
struct Set {
  Matrix narrow;   // [T, D]: the input, or the gradient of the output
  Matrix weights;  // forward [F, D], backward [D, F]
  Vector bias;     // [F], or its gradient
  Matrix aux;      // [T, F]: GELU's input
  Matrix wide;     // [T, F]: GELU's output, or the gradient of its input
  Matrix again;    // [T, F]: backward, GELU's output again
};

// wide[T,F] = epilogue(narrow[T,D] op(weights)), with `aux` and `bias`.
class FusedProduct {
 public:
  FusedProduct(Device& device, Arena& arena, cublasLtEpilogue_t epilogue, Transpose trans_weights,
               const Set& set)
      : stream_(CudaStreamOf(device.compute())), workspace_(arena.Bytes(kWorkspaceBytes)) {
    Must(Describe(epilogue, trans_weights, set), "describe a fused product");
    Must(Choose(device, set), "choose a fused product");
  }

  absl::Status Run(const Set& set) {
    RETURN_IF_ERROR(Point(set));
    const float one = 1;
    const float zero = 0;
    FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmul(
        handle_.get(), descriptor_.get(), &one, set.weights.data, left_.get(), set.narrow.data,
        right_.get(), &zero, set.wide.data, out_.get(), set.wide.data, out_.get(), &algorithm_,
        workspace_.data(), workspace_.size(), stream_));
    return absl::OkStatus();
  }

 private:
  template <typename T>
  absl::Status Put(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return CublasToStatus(
        cublasLtMatmulDescSetAttribute(descriptor_.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
  }

  absl::Status Point(const Set& set) {
    RETURN_IF_ERROR(Put(CUBLASLT_MATMUL_DESC_BIAS_POINTER, set.bias.data));
    return Put(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, set.aux.data);
  }

  // Column-major, so wide^T = op(weights) narrow^T.
  absl::Status Describe(cublasLtEpilogue_t epilogue, Transpose trans_weights, const Set& set) {
    FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtCreate(handle_.receive()));
    FSDP_RETURN_IF_CUBLAS_ERROR(
        cublasLtMatmulDescCreate(descriptor_.receive(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const bool transposed = trans_weights == Transpose::kYes;
    RETURN_IF_ERROR(Put(CUBLASLT_MATMUL_DESC_TRANSA, transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    RETURN_IF_ERROR(Put(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    RETURN_IF_ERROR(Put(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF));
    RETURN_IF_ERROR(Put(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, set.aux.stride));
    RETURN_IF_ERROR(Point(set));
    const auto layout = [](Layout& result, const Matrix& matrix) {
      return CublasToStatus(cublasLtMatrixLayoutCreate(result.receive(), CUDA_R_16BF, matrix.cols,
                                                       matrix.rows, matrix.stride),
                            "cublasLtMatrixLayoutCreate");
    };
    RETURN_IF_ERROR(layout(left_, set.weights));
    RETURN_IF_ERROR(layout(right_, set.narrow));
    return layout(out_, set.wide);
  }

  // The fastest of what the heuristic proposes, as the backend's own products are chosen.
  absl::Status Choose(Device& device, const Set& set) {
    UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
    FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceCreate(preference.receive()));
    FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulPreferenceSetAttribute(
        preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
        sizeof(kWorkspaceBytes)));
    std::array<cublasLtMatmulHeuristicResult_t, kProposals> proposals;
    int found = 0;
    FSDP_RETURN_IF_CUBLAS_ERROR(cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), descriptor_.get(), left_.get(), right_.get(), out_.get(), out_.get(),
        preference.get(), kProposals, proposals.data(), &found));
    if (found == 0) return absl::UnimplementedError("no algorithm for this epilogue");
    double shortest = HUGE_VAL;
    cublasLtMatmulAlgo_t best = proposals[0].algo;
    for (int i = 0; i < found; ++i) {
      algorithm_ = proposals[i].algo;
      const double seconds = MedianSeconds(device, 1, [&](int) { return Run(set); }, 5);
      if (seconds >= shortest) continue;
      shortest = seconds;
      best = proposals[i].algo;
    }
    algorithm_ = best;
    return absl::OkStatus();
  }

  using Layout = UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  const cudaStream_t stream_;
  const std::span<std::byte> workspace_;
  UniqueHandle<cublasLtHandle_t, cublasLtDestroy> handle_;
  UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> descriptor_;
  Layout left_, right_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// ||a - b|| / ||b|| over the first rows: that both sides compute the same.
double Difference(Device& device, Arena& arena, const Matrix& a, const Matrix& b) {
  const std::int64_t size = 64 * a.cols;
  std::vector<float> values[2] = {std::vector<float>(size), std::vector<float>(size)};
  const Matrix* matrices[] = {&a, &b};
  for (int i = 0; i < 2; ++i) {
    const Vector wide = arena.RandomVector(DType::kF32, size);
    Must(device.ops().Cast(device.compute(), {matrices[i]->data, kBf16, size}, wide), "cast");
    Must(device.Copy(values[i].data(), wide.data, wide.size_bytes(), device.compute()), "copy");
    Must(device.Synchronize(device.compute()), "copy");
  }
  double error = 0;
  double norm = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    error += std::pow(values[0][i] - values[1][i], 2);
    norm += std::pow(values[1][i], 2);
  }
  return std::sqrt(error / norm);
}

struct Shape {
  std::int64_t tokens, dim, mlp_dim;
};

std::vector<Set> MakeSets(Arena& arena, const Shape& s, bool backward) {
  const std::int64_t bytes = 2 * (s.tokens * s.dim + s.dim * s.mlp_dim + 2 * s.tokens * s.mlp_dim);
  std::vector<Set> sets(static_cast<std::size_t>(NumSets(bytes)));
  for (Set& set : sets) {
    set.narrow = arena.Random(kBf16, s.tokens, s.dim);
    set.weights =
        backward ? arena.Random(kBf16, s.dim, s.mlp_dim) : arena.Random(kBf16, s.mlp_dim, s.dim);
    set.bias = arena.RandomVector(kBf16, s.mlp_dim);
    set.aux = arena.Random(kBf16, s.tokens, s.mlp_dim);
    set.wide = arena.Random(kBf16, s.tokens, s.mlp_dim);
    if (backward) set.again = arena.Random(kBf16, s.tokens, s.mlp_dim);
  }
  return sets;
}

void Row(const char* name, double seconds) { std::printf("%-52s %9.1f\n", name, seconds * 1e6); }

void Verdict(const char* name, double ours, double fused, double difference) {
  std::printf("%-52s %9.1f %9.1f %9.3f %11.1e\n", name, ours * 1e6, fused * 1e6, fused / ours,
              difference);
}

void Forward(Device& device, const Shape& shape) {
  Arena arena(device);
  std::vector<Set> sets = MakeSets(arena, shape, /*backward=*/false);
  Ops& ops = device.ops();
  Stream& stream = device.compute();
  const auto time = [&](auto run) {
    return MedianSeconds(
        device, static_cast<int>(sets.size()),
        [&](int set) { return run(sets[static_cast<std::size_t>(set)]); }, kRounds);
  };
  const auto product = [&](const Set& s, const Vector& bias) {
    return ops.MatMul(stream, s.narrow, Transpose::kNo, s.weights, Transpose::kYes, bias, s.aux,
                      false);
  };
  FusedProduct fused(device, arena, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, Transpose::kYes, sets[0]);
  Row("forward: product", time([&](const Set& s) { return product(s, {}); }));
  Row("forward: product + bias (epilogue BIAS, as now)",
      time([&](const Set& s) { return product(s, s.bias); }));
  const auto separate = [&](const Set& s) -> absl::Status {
    RETURN_IF_ERROR(product(s, s.bias));
    return ops.GeluForward(stream, s.aux, s.wide);
  };
  const double ours = time(separate);
  const double theirs = time([&](const Set& s) { return fused.Run(s); });
  const Matrix expected = arena.Random(kBf16, shape.tokens, shape.mlp_dim);
  Set check = sets[0];
  Must(fused.Run(check), "fused");
  check.wide = expected;
  Must(separate(check), "separate");
  Verdict("forward: product + bias, GELU | GELU_AUX_BIAS", ours, theirs,
          Difference(device, arena, sets[0].wide, expected));
}

void Backward(Device& device, const Shape& shape) {
  Arena arena(device);
  std::vector<Set> sets = MakeSets(arena, shape, /*backward=*/true);
  Ops& ops = device.ops();
  Stream& stream = device.compute();
  const auto scratch = arena.Bytes(ops.ColumnSumScratchBytes(shape.tokens, shape.mlp_dim));
  const auto time = [&](auto run) {
    return MedianSeconds(
        device, static_cast<int>(sets.size()),
        [&](int set) { return run(sets[static_cast<std::size_t>(set)]); }, kRounds);
  };
  const auto product = [&](const Set& s) {
    return ops.MatMul(stream, s.narrow, Transpose::kNo, s.weights, Transpose::kNo, {}, s.wide,
                      false);
  };
  FusedProduct fused(device, arena, CUBLASLT_EPILOGUE_DGELU_BGRAD, Transpose::kNo, sets[0]);
  Row("backward: product", time(product));
  const auto separate = [&](const Set& s) -> absl::Status {
    RETURN_IF_ERROR(product(s));
    RETURN_IF_ERROR(ops.GeluBackward(stream, s.wide, s.aux, s.wide, s.again));
    return ops.ColumnSum(stream, s.wide, s.bias, false, scratch);
  };
  const double ours = time(separate);
  const double theirs = time([&](const Set& s) -> absl::Status {
    RETURN_IF_ERROR(fused.Run(s));
    return ops.GeluForward(stream, s.aux, s.again);
  });
  const Matrix expected = arena.Random(kBf16, shape.tokens, shape.mlp_dim);
  Set check = sets[0];
  Must(fused.Run(check), "fused");
  check.wide = expected;
  Must(separate(check), "separate");
  Verdict("backward: product, dGELU, bias | DGELU_BGRAD, GELU", ours, theirs,
          Difference(device, arena, sets[0].wide, expected));
}

}  // namespace

void BenchEpilogue(Device& device) {
  const Shape shapes[] = {
      {8192, 2048, 8192}, {16384, 2048, 8192}, {8192, 4096, 16384}, {32768, 768, 3072}};
  for (const Shape& shape : shapes) {
    std::printf("\nfused epilogues, bf16, [%lld, %lld] -> %lld\n",
                static_cast<long long>(shape.tokens), static_cast<long long>(shape.dim),
                static_cast<long long>(shape.mlp_dim));
    std::printf("%-52s %9s %9s %9s %11s\n", "case", "us", "fused us", "ratio", "difference");
    Forward(device, shape);
    Backward(device, shape);
  }
}

}  // namespace fsdp::bench
