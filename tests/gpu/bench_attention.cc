#include <cmath>
#include <cstdio>
#include <cstring>

#include "tests/gpu/bench_support.h"
#include "worker/device/cuda/cuda_device.h"

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

std::vector<float> Download(Device& device, const Matrix& matrix) {
  std::vector<std::uint16_t> bits(matrix.rows * matrix.cols);
  Must(device.Copy(bits.data(), matrix.data, bits.size() * 2, device.compute()), "copy");
  Must(device.Synchronize(device.compute()), "copy");
  std::vector<float> values(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits[i]) << 16;
    std::memcpy(&values[i], &wide, 4);
  }
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

}  // namespace

void BenchAttention(std::int64_t rounds) {
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
  std::printf(
      "\nattention, bf16; err: ||x - f32 kernel|| / ||f32 kernel|| of out and d_qkv at"
      " batch 1, seq 512\n");
  std::printf("%-26s %-22s %8s %8s %8s %9s %9s %9s\n", "case", "implementation", "fwd ms", "bwd ms",
              "sum ms", "TFLOP/s", "err out", "err dqkv");
  for (const Case& c : cases) {
    for (const Implementation& implementation : implementations) {
      auto device = CreateCudaDevice(implementation.options);
      if (!device.ok()) {
        std::printf("%-26s %-22s %s\n", c.name, implementation.name,
                    device.status().ToString().c_str());
        continue;
      }
      AttentionShape small = c.shape;
      small.batch = 1;
      small.seq = 512;
      Arena arena(**device);
      const Operands tested = Make(**device, arena, small);
      absl::Status status = Forward(**device, tested, small);
      if (status.ok()) status = Backward(**device, tested, small);
      if (!status.ok()) {
        std::printf("%-26s %-22s %s\n", c.name, implementation.name, status.ToString().c_str());
        continue;
      }
      const std::vector<float> out = Download(**device, tested.out);
      const std::vector<float> d_qkv = Download(**device, tested.d_qkv);
      // The same operands through the f32 kernels: an odd offset keeps the others away.
      auto reference = CreateCudaDevice({.attention = AttentionBackend::kOwn});
      Must(reference.status(), "create device");
      Operands wanted = tested;
      const std::int64_t cols = tested.qkv.cols;
      const std::int64_t q_cols = tested.out.cols;
      const auto widened = [&](const Matrix& from) {
        Matrix to = arena.Random(DType::kF32, from.rows, from.cols);
        Must((*device)->ops().Cast((*device)->compute(),
                                   {from.data, from.dtype, from.rows * from.cols},
                                   {to.data, to.dtype, to.rows * to.cols}),
             "cast");
        return to;
      };
      wanted.qkv = widened(tested.qkv);
      wanted.d_out = widened(tested.d_out);
      wanted.out = arena.Random(DType::kF32, tested.out.rows, q_cols);
      wanted.d_qkv = arena.Random(DType::kF32, tested.qkv.rows, cols);
      Must((*device)->Synchronize((*device)->compute()), "cast");
      Must(Forward(**reference, wanted, small), "f32 forward");
      Must(Backward(**reference, wanted, small), "f32 backward");
      const auto read = [&](const Matrix& matrix) {
        std::vector<float> values(matrix.rows * matrix.cols);
        Must((*reference)
                 ->Copy(values.data(), matrix.data, values.size() * 4, (*reference)->compute()),
             "copy");
        Must((*reference)->Synchronize((*reference)->compute()), "copy");
        return values;
      };
      const double out_error = RelativeError(out, read(wanted.out));
      const double d_qkv_error = RelativeError(d_qkv, read(wanted.d_qkv));

      const Operands o = Make(**device, arena, c.shape);
      status = Forward(**device, o, c.shape);
      Must(status, "forward");
      const double forward = MedianSeconds(
          **device, 4, [&](int) { return Forward(**device, o, c.shape); },
          static_cast<int>(rounds));
      const double backward = MedianSeconds(
          **device, 4, [&](int) { return Backward(**device, o, c.shape); },
          static_cast<int>(rounds));
      const double pairs = static_cast<double>(c.shape.batch) * c.shape.num_heads * c.shape.seq *
                           c.shape.seq / (c.shape.causal ? 2 : 1);
      const double flops = pairs * c.shape.head_dim * 2 * (2 + 5);
      std::printf("%-26s %-22s %8.3f %8.3f %8.3f %9.0f %9.1e %9.1e\n", c.name, implementation.name,
                  forward * 1e3, backward * 1e3, (forward + backward) * 1e3,
                  flops / (forward + backward) * 1e-12, out_error, d_qkv_error);
    }
  }
}

}  // namespace fsdp::bench
