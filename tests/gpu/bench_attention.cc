#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/gpu/bench_support.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cudnn_attention.h"

namespace fsdp::bench {
namespace {

struct Case {
  const char* name;
  AttentionShape shape;
};

struct Implementation {
  const char* name;
  CudaDeviceOptions options;
};

struct Operands {
  Matrix qkv, out, d_out, d_qkv;
  Vector lse;
  std::span<std::byte> scratch;
};

Operands Make(Device& device, Arena& arena, const AttentionShape& shape) {
  const std::int64_t rows = shape.batch * shape.seq;
  const std::int64_t q_cols = shape.num_heads * shape.head_dim;
  const std::int64_t cols = q_cols + 2 * shape.num_kv_heads * shape.head_dim;
  Operands made;
  made.qkv = arena.Random(DType::kBf16, rows, cols);
  made.d_qkv = arena.Random(DType::kBf16, rows, cols);
  made.out = arena.Random(DType::kBf16, rows, q_cols);
  made.d_out = arena.Random(DType::kBf16, rows, q_cols);
  made.lse = arena.RandomVector(DType::kF32, shape.batch * shape.num_heads * shape.seq);
  made.scratch =
      arena.Bytes(std::max(device.ops().AttentionScratchBytes(shape, DType::kBf16, false),
                           device.ops().AttentionScratchBytes(shape, DType::kBf16, true)));
  return made;
}

absl::Status Forward(Device& device, const Operands& o, const AttentionShape& shape) {
  return device.ops().AttentionForward(device.compute(), o.qkv, shape, o.out, o.lse, o.scratch);
}
absl::Status Backward(Device& device, const Operands& o, const AttentionShape& shape) {
  return device.ops().AttentionBackward(device.compute(), o.d_out, o.qkv, o.out, o.lse, shape,
                                        o.d_qkv, o.scratch);
}

// The matrix's values as f32 on the host.
std::vector<float> Download(Device& device, Arena& arena, const Matrix& matrix) {
  const std::int64_t size = matrix.rows * matrix.cols;
  const Matrix wide = arena.Random(DType::kF32, matrix.rows, matrix.cols);
  Must(device.ops().Cast(device.compute(), {matrix.data, matrix.dtype, size},
                         {wide.data, wide.dtype, size}),
       "cast");
  std::vector<float> values(size);
  Must(device.Copy(values.data(), wide.data, size * sizeof(float), device.compute()), "copy");
  Must(device.Synchronize(device.compute()), "copy");
  return values;
}

// ||got - want|| / ||want||
double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (static_cast<double>(got[i]) - want[i]) * (static_cast<double>(got[i]) - want[i]);
    size += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(difference / size);
}

struct Errors {
  double out = 0, d_qkv = 0;
};

// Against our f32 kernels on the same bf16 values.
absl::StatusOr<Errors> Check(Device& device, AttentionShape shape) {
  shape.batch = 1;
  Arena arena(device);
  const Operands tested = Make(device, arena, shape);
  if (absl::Status status = Forward(device, tested, shape); !status.ok()) return status;
  if (absl::Status status = Backward(device, tested, shape); !status.ok()) return status;

  const auto widened = [&](const Matrix& from) {
    const std::int64_t size = from.rows * from.cols;
    const Matrix to = arena.Random(DType::kF32, from.rows, from.cols);
    Must(device.ops().Cast(device.compute(), {from.data, from.dtype, size},
                           {to.data, to.dtype, size}),
         "cast");
    return to;
  };
  Operands wanted = tested;
  wanted.qkv = widened(tested.qkv);
  wanted.d_out = widened(tested.d_out);
  wanted.out = arena.Random(DType::kF32, tested.out.rows, tested.out.cols);
  wanted.d_qkv = arena.Random(DType::kF32, tested.qkv.rows, tested.qkv.cols);
  Must(Forward(device, wanted, shape), "f32 forward");
  Must(Backward(device, wanted, shape), "f32 backward");
  const auto error = [&](const Matrix& got, const Matrix& want) {
    return RelativeError(Download(device, arena, got), Download(device, arena, want));
  };
  return Errors{error(tested.out, wanted.out), error(tested.d_qkv, wanted.d_qkv)};
}

void PrintRow(const Case& c, const Implementation& implementation, int rounds) {
  const auto refuse = [&](const absl::Status& status) {
    std::printf("%-26s %-22s %s\n", c.name, implementation.name, status.ToString().c_str());
  };
  auto device = CreateCudaDevice(implementation.options);
  if (!device.ok()) return refuse(device.status());
  const absl::StatusOr<Errors> errors = Check(**device, c.shape);
  if (!errors.ok()) return refuse(errors.status());

  Arena arena(**device);
  const Operands o = Make(**device, arena, c.shape);
  Must(Forward(**device, o, c.shape), "forward");
  const double forward =
      MedianSeconds(**device, 4, [&](int) { return Forward(**device, o, c.shape); }, rounds);
  const double backward =
      MedianSeconds(**device, 4, [&](int) { return Backward(**device, o, c.shape); }, rounds);
  // Two products forward, five backward, 2 operations per multiply-add; causal halves the pairs.
  const double pairs = static_cast<double>(c.shape.batch) * c.shape.num_heads * c.shape.seq *
                       c.shape.seq / (c.shape.causal ? 2 : 1);
  const double flops = pairs * c.shape.head_dim * 2 * (2 + 5);
  std::printf("%-26s %-22s %8.3f %8.3f %8.3f %9.0f %9.1e %9.1e %6.1f MB\n", c.name,
              implementation.name, forward * 1e3, backward * 1e3, (forward + backward) * 1e3,
              flops / (forward + backward) * 1e-12, errors->out, errors->d_qkv,
              static_cast<double>(o.scratch.size()) * 1e-6);
}

}  // namespace

void BenchAttention(int rounds) {
  const auto shape = [](std::int64_t batch, int heads, int kv_heads, std::int64_t seq,
                        std::int64_t dim, bool causal) {
    return AttentionShape{.batch = batch,
                          .seq = seq,
                          .num_heads = heads,
                          .num_kv_heads = kv_heads,
                          .head_dim = dim,
                          .causal = causal};
  };
  const Case cases[] = {
      {"(8,16,1024,128) full", shape(8, 16, 16, 1024, 128, false)},
      {"(4,32,4096,64) causal", shape(4, 32, 32, 4096, 64, true)},
      {"(2,32,4096,128) causal", shape(2, 32, 32, 4096, 128, true)},
      {"(4,32/8,4096,64) causal", shape(4, 32, 8, 4096, 64, true)},
      {"(2,32/8,4096,128) causal", shape(2, 32, 8, 4096, 128, true)},
  };
  const Implementation implementations[] = {
      {"cudnn", {.attention = AttentionBackend::kCudnn}},
      {"cudnn, deterministic", {.attention = AttentionBackend::kCudnn, .deterministic = true}},
      {"own", {.attention = AttentionBackend::kOwn}},
  };
  const auto cudnn = CudnnAttention::Create();
  std::printf("\ncuDNN: %s\n",
              (cudnn.ok() ? (*cudnn)->version() : cudnn.status().ToString()).c_str());
  std::printf(
      "\nattention, bf16; err: ||x - f32 kernel|| / ||f32 kernel|| of out and d_qkv at batch 1\n");
  std::printf("%-26s %-22s %8s %8s %8s %9s %9s %9s %9s\n", "case", "implementation", "fwd ms",
              "bwd ms", "sum ms", "TFLOP/s", "err out", "err dqkv", "scratch");
  for (const Case& c : cases) {
    for (const Implementation& implementation : implementations) {
      PrintRow(c, implementation, rounds);
    }
  }
}

}  // namespace fsdp::bench
