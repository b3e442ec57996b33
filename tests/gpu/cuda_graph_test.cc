// A step is captured in CUDA graphs, so no operation may allocate, synchronise or read device
// memory on the host once its plans exist. Capture refuses all three.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "worker/device/cuda/cuda_device.h"
#include "worker/device/ops.h"

namespace fsdp {
namespace {

constexpr DType kBf16 = DType::kBf16;
constexpr DType kF32 = DType::kF32;

class CudaGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCudaDevice({.deterministic = true});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
  }

  void* Allocate(std::size_t size_bytes) {
    auto buffer = device_->Allocate(size_bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffers_.push_back(std::move(*buffer));
    return buffers_.back()->data();
  }
  std::span<std::byte> Scratch(std::size_t size_bytes) {
    return {static_cast<std::byte*>(Allocate(size_bytes)), size_bytes};
  }
  Vector RandomVector(DType dtype, std::int64_t size) {
    std::normal_distribution<float> normal(0, 0.5F);
    std::vector<float> values(size);
    for (float& value : values) value = normal(random_);
    const Vector wide{Allocate(size * sizeof(float)), kF32, size};
    EXPECT_TRUE(device_->Copy(wide.data, values.data(), wide.size_bytes(), stream()).ok());
    if (dtype == kF32) return wide;
    const Vector narrow{Allocate(size * SizeOf(dtype)), dtype, size};
    EXPECT_TRUE(device_->ops().Cast(stream(), wide, narrow).ok());
    EXPECT_TRUE(device_->Synchronize(stream()).ok());
    return narrow;
  }
  Matrix Random(DType dtype, std::int64_t rows, std::int64_t cols) {
    return Matrix::Packed(RandomVector(dtype, rows * cols).data, dtype, rows, cols);
  }
  std::vector<std::byte> Bytes(const void* data, std::size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    EXPECT_TRUE(device_->Copy(bytes.data(), data, size_bytes, stream()).ok());
    EXPECT_TRUE(device_->Synchronize(stream()).ok());
    return bytes;
  }
  Stream& stream() { return device_->compute(); }

  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::mt19937 random_{7};
};

// One block's worth of operations, forward and backward, and an update.
TEST_F(CudaGraph, BlockReplaysTheBitsOfTheEagerRun) {
  Ops& ops = device_->ops();
  const AttentionShape shape{
      .batch = 2, .seq = 128, .num_heads = 4, .num_kv_heads = 2, .head_dim = 64};
  const std::int64_t t = shape.batch * shape.seq;
  const std::int64_t d = shape.num_heads * shape.head_dim;
  const std::int64_t qkv_cols = d + 2 * shape.num_kv_heads * shape.head_dim;
  const Matrix x = Random(kBf16, t, d);
  const Vector norm = RandomVector(kBf16, d);
  const Matrix w = Random(kBf16, qkv_cols, d);
  const Matrix y = Random(kBf16, t, d);
  const Vector rstd = RandomVector(kF32, t);
  const Matrix qkv = Random(kBf16, t, qkv_cols);
  const Matrix cos = Random(kF32, shape.seq, shape.head_dim / 2);
  const Matrix sin = Random(kF32, shape.seq, shape.head_dim / 2);
  const Matrix out = Random(kBf16, t, d);
  const Vector lse = RandomVector(kF32, t * shape.num_heads);
  const Matrix d_qkv = Random(kBf16, t, qkv_cols);
  const Matrix dw = Random(kF32, qkv_cols, d);
  const Matrix dy = Random(kBf16, t, d);
  const Matrix dx = Random(kBf16, t, d);
  const Vector d_norm = RandomVector(kF32, d);
  const Vector master = RandomVector(kF32, qkv_cols * d);
  const Vector m{Allocate(master.size * 4), kF32, master.size};
  const Vector v{Allocate(master.size * 4), kF32, master.size};
  auto* stats = static_cast<StepStats*>(Allocate(sizeof(StepStats)));
  auto* scalars = static_cast<UpdateScalars*>(Allocate(sizeof(UpdateScalars)));
  auto* step = static_cast<StepScalars*>(Allocate(sizeof(StepScalars)));
  StepScalars step_of_host = *StepScalarsOf(0.01, 1, {});
  const StepStats one{.loss_sum = 1, .valid_tokens = 1, .grad_norm_sq = 0, .nonfinite = 0};
  const auto attention_scratch = Scratch(std::max(ops.AttentionScratchBytes(shape, kBf16, false),
                                                  ops.AttentionScratchBytes(shape, kBf16, true)));
  const auto norm_scratch = Scratch(ops.NormBackwardScratchBytes(t, d));
  const auto stats_scratch = Scratch(ops.GradStatsScratchBytes(master.size));
  const std::vector<DecaySegment> segments = {{0, master.size, 0.1F}};
  const Vector start = RandomVector(kF32, master.size);

  const auto run = [&]() -> absl::Status {
    const auto no = Transpose::kNo;
    const auto yes = Transpose::kYes;
    absl::Status status;
    const auto then = [&status](absl::Status next) {
      if (status.ok()) status = std::move(next);
    };
    then(device_->Copy(master.data, start.data, start.size_bytes(), stream()));
    then(device_->Zero(m.data, m.size_bytes(), stream()));
    then(device_->Zero(v.data, v.size_bytes(), stream()));
    then(ops.RmsNormForward(stream(), x, {}, norm, 1e-5, {}, y, rstd));
    then(ops.MatMul(stream(), y, no, w, yes, {}, qkv, false));
    then(ops.Rope(stream(), qkv, shape, cos, sin, false));
    then(ops.AttentionForward(stream(), qkv, shape, {}, out, lse, attention_scratch));
    then(ops.AttentionBackward(stream(), out, qkv, out, lse, shape, {}, d_qkv, attention_scratch));
    then(ops.Rope(stream(), d_qkv, shape, cos, sin, true));
    then(ops.MatMul(stream(), d_qkv, yes, y, no, {}, dw, false));
    then(ops.MatMul(stream(), d_qkv, no, w, no, {}, dy, false));
    then(ops.RmsNormBackward(stream(), dy, x, norm, rstd, {}, dx, {}, d_norm, false, norm_scratch));
    then(ops.GradStats(stream(), {dw.data, kF32, master.size}, stats, stats_scratch));
    then(ops.FinishStats(stream(), stats, 1, step, scalars));
    then(ops.AdamW(stream(), master, m, v, {dw.data, kF32, master.size}, segments, {}, step,
                   scalars));
    return status;
  };
  const auto prepare = [&] {
    ASSERT_TRUE(device_->Copy(stats, &one, sizeof(one), stream()).ok());
    ASSERT_TRUE(device_->Copy(step, &step_of_host, sizeof(step_of_host), stream()).ok());
    ASSERT_TRUE(device_->Synchronize(stream()).ok());
  };
  const auto results = [&] {
    std::vector<std::byte> all = Bytes(master.data, master.size_bytes());
    for (const Matrix& matrix : {out, d_qkv, dx}) {
      const std::vector<std::byte> part =
          Bytes(matrix.data, matrix.rows * matrix.cols * SizeOf(matrix.dtype));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };

  prepare();
  absl::Status status = run();
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<std::byte> eager = results();
  EXPECT_NE(Bytes(master.data, master.size_bytes()), Bytes(start.data, start.size_bytes()));

  const std::int64_t allocations = device_->num_allocations();
  const cudaStream_t cuda_stream = CudaStreamOf(stream());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  prepare();
  ASSERT_EQ(cudaStreamBeginCapture(cuda_stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  status = run();
  ASSERT_EQ(cudaStreamEndCapture(cuda_stream, &graph), cudaSuccess);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(device_->num_allocations(), allocations);
  for (int replay = 0; replay < 2; ++replay) {
    ASSERT_TRUE(device_->Zero(out.data, t * d * 2, stream()).ok());
    prepare();
    ASSERT_EQ(cudaGraphLaunch(executable, cuda_stream), cudaSuccess);
    ASSERT_TRUE(device_->Synchronize(stream()).ok());
    EXPECT_TRUE(results() == eager) << "replay " << replay;
  }
  // The same graph runs a step with another learning rate: it reads that from device memory.
  step_of_host = *StepScalarsOf(0.02, 1, {});
  prepare();
  ASSERT_EQ(cudaGraphLaunch(executable, cuda_stream), cudaSuccess);
  const std::vector<std::byte> replayed = results();
  prepare();
  status = run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(results() == replayed);
  EXPECT_FALSE(replayed == eager);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// Documents lie elsewhere in every batch: a captured graph reads where from device memory.
TEST_F(CudaGraph, AttentionFollowsTheDocumentsOfEachReplay) {
  Ops& ops = device_->ops();
  const AttentionShape shape{
      .batch = 2, .seq = 200, .num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .documents = true};
  const std::int64_t t = shape.batch * shape.seq;
  const std::int64_t d = shape.num_heads * shape.head_dim;
  const Matrix qkv = Random(kBf16, t, 2 * d);
  const Matrix d_qkv = Random(kBf16, t, 2 * d);
  const Matrix out = Random(kBf16, t, d);
  const Vector lse = RandomVector(kF32, t * shape.num_heads);
  const auto scratch = Scratch(std::max(ops.AttentionScratchBytes(shape, kBf16, false),
                                        ops.AttentionScratchBytes(shape, kBf16, true)));
  const std::size_t begins_bytes = static_cast<std::size_t>(t) * sizeof(std::int32_t);
  auto* begins = static_cast<std::int32_t*>(Allocate(begins_bytes));
  const std::span<const std::int32_t> all_begins(begins, static_cast<std::size_t>(t));
  // Documents of `tokens` each.
  const auto upload = [&](std::int64_t tokens) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(t));
    for (std::int64_t i = 0; i < t; ++i) {
      values[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(i % shape.seq / tokens * tokens);
    }
    ASSERT_TRUE(device_->Copy(begins, values.data(), begins_bytes, stream()).ok());
    ASSERT_TRUE(device_->Synchronize(stream()).ok());
  };
  const auto run = [&]() -> absl::Status {
    const absl::Status status =
        ops.AttentionForward(stream(), qkv, shape, all_begins, out, lse, scratch);
    if (!status.ok()) return status;
    return ops.AttentionBackward(stream(), out, qkv, out, lse, shape, all_begins, d_qkv, scratch);
  };
  const auto results = [&] {
    std::vector<std::byte> all = Bytes(out.data, out.rows * out.cols * 2);
    const std::vector<std::byte> part = Bytes(d_qkv.data, d_qkv.rows * d_qkv.cols * 2);
    all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  std::map<std::int64_t, std::vector<std::byte>> eager;
  for (const std::int64_t tokens : {200, 70, 64, 3}) {
    upload(tokens);
    const absl::Status status = run();
    ASSERT_TRUE(status.ok()) << status;
    eager[tokens] = results();
  }
  EXPECT_FALSE(eager[70] == eager[64]);
  const cudaStream_t cuda_stream = CudaStreamOf(stream());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(cuda_stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  const absl::Status status = run();
  ASSERT_EQ(cudaStreamEndCapture(cuda_stream, &graph), cudaSuccess);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const auto& [tokens, expected] : eager) {
    upload(tokens);
    ASSERT_EQ(cudaGraphLaunch(executable, cuda_stream), cudaSuccess);
    EXPECT_TRUE(results() == expected) << "documents of " << tokens;
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CudaGraph, KernelsAreCountedWhileTheyAreCaptured) {
  const Vector from = RandomVector(kF32, 1024);
  const Vector to = RandomVector(kF32, 1024);
  std::vector<int> counts;
  const auto count = [&]() -> absl::Status {
    const absl::StatusOr<int> kernels = device_->CapturedKernels(stream());
    if (kernels.ok()) counts.push_back(*kernels);
    return kernels.status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(count())) << "outside of a capture";
  ASSERT_TRUE(device_->ops().Accumulate(stream(), from, to).ok());
  const auto graph = device_->Capture(stream(), [&]() -> absl::Status {
    absl::Status status = count();
    for (int i = 0; i < 2; ++i) {
      status.Update(device_->ops().Accumulate(stream(), from, to));
      status.Update(count());
    }
    status.Update(device_->Copy(to.data, from.data, to.size_bytes(), stream()));  // no kernel
    status.Update(count());
    return status;
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(counts, ::testing::ElementsAre(0, 1, 2, 2));
}

TEST_F(CudaGraph, RunsOutOfMemoryWithFigures) {
  const auto buffer = device_->Allocate(std::size_t{1} << 50);
  EXPECT_TRUE(absl::IsResourceExhausted(buffer.status())) << buffer.status();
  EXPECT_THAT(std::string(buffer.status().message()), ::testing::HasSubstr("free"));
  EXPECT_TRUE(device_->Allocate(1024).ok()) << "the failure stuck";
}

}  // namespace
}  // namespace fsdp
