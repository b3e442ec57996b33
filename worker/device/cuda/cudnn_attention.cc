#include "worker/device/cuda/cudnn_attention.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/cuda/cudnn_graph.h"

namespace fsdp {
namespace {

using TensorId = CudnnGraph::TensorId;

constexpr cudnnDataType_t kBf16 = CUDNN_DATA_BFLOAT16;
constexpr cudnnDataType_t kF32 = CUDNN_DATA_FLOAT;

// Masks with -inf are right from 9.10 on.
constexpr std::size_t kOldestVersion = 91000;

std::size_t AlignedBytes(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// The graphs follow the operation pattern that cuDNN's attention engines recognise: the order of
// operations and the types of virtual tensors are part of it.
class Plan final : public CudnnAttentionPlan {
 public:
  Plan(std::shared_ptr<CudnnLibrary> library, const CudnnAttentionKey& key)
      : library_(std::move(library)), graph_(library_), key_(key) {}

  absl::Status Build() {
    DeclareInputs();
    if (key_.backward) {
      DescribeBackward();
    } else {
      DescribeForward();
    }
    RETURN_IF_ERROR(graph_.Build());
    if (key_.backward) {
      const std::int64_t rows = key_.batch * key_.num_heads * key_.seq;
      row_sum_offset_ = AlignedBytes(graph_.workspace_bytes());
      dq_sum_offset_ = row_sum_offset_ + AlignedBytes(rows * sizeof(float));
      scratch_bytes_ = dq_sum_offset_;
      if (dq_sum_ != 0) scratch_bytes_ += AlignedBytes(rows * key_.head_dim * sizeof(float));
    } else {
      scratch_bytes_ = graph_.workspace_bytes();
    }
    return absl::OkStatus();
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }

  std::string name() const override {
    return absl::StrFormat("cudnn %s engine %d", library_->version_text(), graph_.engine());
  }

  absl::Status Run(cudaStream_t stream, const CudnnAttentionTensors& tensors,
                   std::span<std::byte> scratch) override {
    if (scratch.size() < scratch_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrFormat("attention scratch has %d bytes, this plan needs %d; operands with "
                          "padded rows may need more than packed ones",
                          scratch.size(), scratch_bytes_));
    }
    std::vector<CudnnGraph::Binding>& bound = bindings_;
    bound.clear();
    bound.insert(bound.end(), {{q_, tensors.q},
                               {k_, tensors.k},
                               {v_, tensors.v},
                               {out_, tensors.out},
                               {lse_, tensors.lse},
                               {scale_, &key_.scale}});
    if (key_.causal) bound.push_back({minus_infinity_, &kMinusInfinity});
    if (key_.backward) {
      bound.insert(bound.end(), {{one_, &kOne},
                                 {d_out_, tensors.d_out},
                                 {dq_, tensors.dq},
                                 {dk_, tensors.dk},
                                 {dv_, tensors.dv},
                                 {row_sum_, scratch.data() + row_sum_offset_}});
      if (dq_sum_ != 0) bound.push_back({dq_sum_, scratch.data() + dq_sum_offset_});
    }
    return graph_.Execute(stream, bound, scratch.data());
  }

 private:
  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  static constexpr float kOne = 1;

  // [B, heads, S, Dh] over rows of `stride` elements.
  Dims4 Dims(std::int64_t heads) const { return {key_.batch, heads, key_.seq, key_.head_dim}; }
  Dims4 Strides(std::int64_t stride) const { return {key_.seq * stride, key_.head_dim, stride, 1}; }
  static Dims4 Transposed(Dims4 dims) {
    std::swap(dims[2], dims[3]);
    return dims;
  }

  TensorId Scores(cudnnDataType_t type) {
    const std::int64_t s = key_.seq;
    return graph_.Virtual(type, {key_.batch, key_.num_heads, s, s},
                          {key_.num_heads * s * s, s * s, s, 1});
  }
  TensorId TransposedScores() {
    const std::int64_t s = key_.seq;
    return graph_.Virtual(kBf16, {key_.batch, key_.num_heads, s, s},
                          {key_.num_heads * s * s, s * s, 1, s});
  }
  Dims4 RowDims() const { return {key_.batch, key_.num_heads, key_.seq, 1}; }
  Dims4 RowStrides() const { return {key_.num_heads * key_.seq, key_.seq, 1, 1}; }
  TensorId Rows() { return graph_.Virtual(kF32, RowDims(), RowStrides()); }

  void DeclareInputs() {
    q_ = graph_.Tensor(kBf16, Dims(key_.num_heads), Strides(key_.qkv_stride));
    k_dims_ = Transposed(Dims(key_.num_kv_heads));
    k_strides_ = Transposed(Strides(key_.qkv_stride));
    k_ = graph_.Tensor(kBf16, k_dims_, k_strides_);
    // Forward multiplies by V, backward by its transpose.
    v_ = key_.backward ? graph_.Tensor(kBf16, k_dims_, k_strides_)
                       : graph_.Tensor(kBf16, Dims(key_.num_kv_heads), Strides(key_.qkv_stride));
    out_ = graph_.Tensor(kBf16, Dims(key_.num_heads), Strides(key_.out_stride));
    lse_ = graph_.Tensor(kF32, RowDims(), RowStrides());
    scale_ = graph_.Scalar();
    if (key_.causal) minus_infinity_ = graph_.Scalar();
  }

  TensorId Masked(TensorId scores) {
    if (!key_.causal) return scores;
    const TensorId row = Scores(CUDNN_DATA_INT32);
    const TensorId col = Scores(CUDNN_DATA_INT32);
    const TensorId visible = Scores(CUDNN_DATA_BOOLEAN);
    const TensorId masked = Scores(kF32);
    graph_.Index(scores, 2, row);
    graph_.Index(scores, 3, col);
    graph_.GreaterEqual(row, col, visible);
    graph_.Select(scores, minus_infinity_, visible, masked);
    return masked;
  }

  TensorId ScaledScores() {
    const TensorId raw = Scores(kF32);
    const TensorId scaled = Scores(kF32);
    graph_.MatMul(q_, k_, raw);
    graph_.Pointwise(CUDNN_POINTWISE_MUL, raw, scale_, scaled);
    return scaled;
  }

  void DescribeForward() {
    const TensorId scores = Masked(ScaledScores());
    const TensorId max = Rows();
    const TensorId shifted = Scores(kF32);
    const TensorId exponentials = Scores(kF32);
    const TensorId sum = Rows();
    const TensorId log_sum = Rows();
    const TensorId weights = Scores(kBf16);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, max);
    graph_.Pointwise(CUDNN_POINTWISE_SUB, scores, max, shifted);
    graph_.Pointwise(CUDNN_POINTWISE_EXP, shifted, exponentials);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
    graph_.Pointwise(CUDNN_POINTWISE_LOG, sum, log_sum);
    graph_.Pointwise(CUDNN_POINTWISE_ADD, max, log_sum, lse_);
    graph_.Pointwise(CUDNN_POINTWISE_DIV, exponentials, sum, weights);
    graph_.MatMul(weights, v_, out_);
  }

  // Sums over the query heads that share a key-value head.
  void MatMulIntoGroup(TensorId a, TensorId b, TensorId out) {
    if (key_.num_heads == key_.num_kv_heads) {
      graph_.MatMul(a, b, out);
      return;
    }
    const std::int64_t s = key_.seq;
    const std::int64_t d = key_.head_dim;
    const TensorId per_head =
        graph_.Virtual(kBf16, Dims(key_.num_heads), {key_.num_heads * s * d, s * d, d, 1});
    graph_.MatMul(a, b, per_head);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, per_head, out);
  }

  void DescribeBackward() {
    const std::int64_t h = key_.num_heads;
    const std::int64_t s = key_.seq;
    const std::int64_t d = key_.head_dim;
    one_ = graph_.Scalar();
    d_out_ = graph_.Tensor(kBf16, Dims(h), Strides(key_.d_out_stride));
    dq_ = graph_.Tensor(kBf16, Dims(h), Strides(key_.d_qkv_stride));
    dk_ = graph_.Tensor(kBf16, Dims(key_.num_kv_heads), Strides(key_.d_qkv_stride));
    dv_ = graph_.Tensor(kBf16, Dims(key_.num_kv_heads), Strides(key_.d_qkv_stride));
    row_sum_ = graph_.Tensor(kF32, RowDims(), RowStrides());

    const TensorId product = graph_.Virtual(kF32, Dims(h), {h * s * d, s * d, h * d, 1});
    const TensorId product_sum = Rows();
    graph_.Pointwise(CUDNN_POINTWISE_MUL, d_out_, out_, product);
    graph_.Reduce(CUDNN_REDUCE_TENSOR_ADD, product, product_sum);
    graph_.Pointwise(CUDNN_POINTWISE_MUL, product_sum, one_, row_sum_);

    const TensorId scores = ScaledScores();
    const TensorId shifted = Scores(kF32);
    graph_.Pointwise(CUDNN_POINTWISE_SUB, scores, lse_, shifted);
    const TensorId masked = Masked(shifted);
    const TensorId weights = Scores(kF32);
    graph_.Pointwise(CUDNN_POINTWISE_EXP, masked, weights);
    const TensorId weights_transposed = TransposedScores();
    graph_.Reshape(weights, weights_transposed);
    MatMulIntoGroup(weights_transposed, d_out_, dv_);

    const TensorId d_weights = Scores(kF32);
    const TensorId centred = Scores(kF32);
    const TensorId d_masked = Scores(kF32);
    const TensorId d_scores = Scores(kF32);
    graph_.MatMul(d_out_, v_, d_weights);
    graph_.Pointwise(CUDNN_POINTWISE_SUB, d_weights, row_sum_, centred);
    graph_.Pointwise(CUDNN_POINTWISE_MUL, centred, weights, d_masked);
    graph_.Pointwise(CUDNN_POINTWISE_MUL, d_masked, scale_, d_scores);
    const TensorId d_scores_transposed = TransposedScores();
    graph_.Reshape(d_scores, d_scores_transposed);
    MatMulIntoGroup(d_scores_transposed, q_, dk_);

    const TensorId k = graph_.Virtual(kBf16, Transposed(k_dims_), Transposed(k_strides_));
    graph_.Reshape(k_, k);
    if (key_.deterministic) {
      graph_.MatMul(d_scores, k, dq_);
      return;
    }
    dq_sum_ = graph_.Tensor(kF32, Dims(h), {h * s * d, s * d, d, 1});
    graph_.MatMul(d_scores, k, dq_sum_);
    graph_.Pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum_, dq_);
  }

  std::shared_ptr<CudnnLibrary> library_;
  CudnnGraph graph_;
  CudnnAttentionKey key_;
  Dims4 k_dims_{}, k_strides_{};  // of the transposed keys
  TensorId q_ = 0, k_ = 0, v_ = 0, out_ = 0, lse_ = 0, scale_ = 0, minus_infinity_ = 0;
  TensorId one_ = 0, d_out_ = 0, dq_ = 0, dk_ = 0, dv_ = 0;
  TensorId row_sum_ = 0;  // rowsum(dO * O), in the scratch
  TensorId dq_sum_ = 0;   // f32 dQ that blocks add to, in the scratch; 0 when deterministic
  std::size_t row_sum_offset_ = 0, dq_sum_offset_ = 0, scratch_bytes_ = 0;
  std::vector<CudnnGraph::Binding> bindings_;
};

class Cudnn final : public CudnnAttention {
 public:
  explicit Cudnn(std::shared_ptr<CudnnLibrary> library) : library_(std::move(library)) {}

  absl::StatusOr<std::unique_ptr<CudnnAttentionPlan>> MakePlan(
      const CudnnAttentionKey& key) override {
    auto plan = std::make_unique<Plan>(library_, key);
    RETURN_IF_ERROR(
        Annotate(plan->Build(),
                 absl::StrFormat("attention %s [%d,%d/%d,%d,%d] causal=%d",
                                 key.backward ? "backward" : "forward", key.batch, key.num_heads,
                                 key.num_kv_heads, key.seq, key.head_dim, key.causal ? 1 : 0)));
    return plan;
  }

  std::string version() const override { return library_->version_text(); }

 private:
  std::shared_ptr<CudnnLibrary> library_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Create() {
  ASSIGN_OR_RETURN(std::shared_ptr<CudnnLibrary> library, CudnnLibrary::Open());
  if (library->version() < kOldestVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("libcudnn %s is older than 9.10", library->version_text()));
  }
  return std::make_unique<Cudnn>(std::move(library));
}

}  // namespace fsdp
