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
  std::int64_t document = 0;  // tokens of each document; 0: none
};

struct Implementation {
  const char* name;
  CudaDeviceOptions options;
};

struct Operands {
  Matrix qkv, out, d_out, d_qkv;
  Vector lse;
  std::span<const std::int32_t> begins;
  std::span<std::byte> scratch;
};

std::span<const std::int32_t> Begins(Device& device, Arena& arena, const AttentionShape& shape,
                                     std::int64_t document) {
  if (!shape.documents) return {};
  std::vector<std::int32_t> begins(shape.batch * shape.seq);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    begins[i] = static_cast<std::int32_t>(i % shape.seq / document * document);
  }
  const std::span<std::byte> bytes = arena.Bytes(begins.size() * sizeof(std::int32_t));
  Must(device.Copy(bytes.data(), begins.data(), bytes.size(), device.compute()), "copy");
  Must(device.Synchronize(device.compute()), "copy");
  return {reinterpret_cast<const std::int32_t*>(bytes.data()), begins.size()};
}

Operands Make(Device& device, Arena& arena, const AttentionShape& shape, std::int64_t document) {
  const std::int64_t rows = shape.batch * shape.seq;
  const std::int64_t q_cols = shape.num_heads * shape.head_dim;
  const std::int64_t cols = q_cols + 2 * shape.num_kv_heads * shape.head_dim;
  Operands made;
  made.qkv = arena.Random(DType::kBf16, rows, cols);
  made.d_qkv = arena.Random(DType::kBf16, rows, cols);
  made.out = arena.Random(DType::kBf16, rows, q_cols);
  made.d_out = arena.Random(DType::kBf16, rows, q_cols);
  made.lse = arena.RandomVector(DType::kF32, shape.batch * shape.num_heads * shape.seq);
  made.begins = Begins(device, arena, shape, document);
  made.scratch =
      arena.Bytes(std::max(device.ops().AttentionScratchBytes(shape, DType::kBf16, false),
                           device.ops().AttentionScratchBytes(shape, DType::kBf16, true)));
  return made;
}

absl::Status Forward(Device& device, const Operands& o, const AttentionShape& shape) {
  return device.ops().AttentionForward(device.compute(), o.qkv, shape, o.begins, o.out, o.lse,
                                       o.scratch);
}
absl::Status Backward(Device& device, const Operands& o, const AttentionShape& shape) {
  return device.ops().AttentionBackward(device.compute(), o.d_out, o.qkv, o.out, o.lse, shape,
                                        o.begins, o.d_qkv, o.scratch);
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
absl::StatusOr<Errors> Check(Device& device, AttentionShape shape, std::int64_t document) {
  shape.batch = 1;
  Arena arena(device);
  const Operands tested = Make(device, arena, shape, document);
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
  const absl::StatusOr<Errors> errors = Check(**device, c.shape, c.document);
  if (!errors.ok()) return refuse(errors.status());

  Arena arena(**device);
  const Operands o = Make(**device, arena, c.shape, c.document);
  Must(Forward(**device, o, c.shape), "forward");
  const double forward =
      MedianSeconds(**device, 4, [&](int) { return Forward(**device, o, c.shape); }, rounds);
  const double backward =
      MedianSeconds(**device, 4, [&](int) { return Backward(**device, o, c.shape); }, rounds);
  // Two products forward, five backward, 2 operations per multiply-add; causal halves the pairs.
  const std::int64_t keys = c.shape.documents ? c.document : c.shape.seq;
  const double pairs = static_cast<double>(c.shape.batch) * c.shape.num_heads * c.shape.seq * keys /
                       (c.shape.causal ? 2 : 1);
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
  AttentionShape packed = shape(2, 32, 8, 4096, 128, true);
  packed.documents = true;
  const Case cases[] = {
      {"(8,16,1024,128) full", shape(8, 16, 16, 1024, 128, false)},
      {"(4,32,4096,64) causal", shape(4, 32, 32, 4096, 64, true)},
      {"(2,32,4096,128) causal", shape(2, 32, 32, 4096, 128, true)},
      {"(4,32/8,4096,64) causal", shape(4, 32, 8, 4096, 64, true)},
      {"(2,32/8,4096,128) causal", shape(2, 32, 8, 4096, 128, true)},
      {"the same, documents of all", packed, 4096},
      {"the same, of 512 tokens", packed, 512},
      {"the same, of 100 tokens", packed, 100},
      {"(32,14/2,1024,64) causal", shape(32, 14, 2, 1024, 64, true)},
      {"(16,12/2,1024,128) causal", shape(16, 12, 2, 1024, 128, true)},
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
