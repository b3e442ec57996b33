#include <cstdio>

#include "tests/gpu/bench_support.h"

namespace fsdp::bench {
namespace {

struct Case {
  const char* name;
  std::int64_t m, n, k;
  bool trans_a, trans_b, accumulate;
};

}  // namespace

void BenchMatMul(Device& device) {
  // Forward x W^T, input gradient dy W, weight gradient dy^T x added to the gradient buffer.
  const Case cases[] = {
      {"minillm qkv fwd", 8192, 6144, 2048, false, true, false},
      {"minillm mlp up fwd", 8192, 8192, 2048, false, true, false},
      {"minillm mlp up dx", 8192, 2048, 8192, false, false, false},
      {"minillm mlp up dw", 8192, 2048, 8192, true, false, true},
      {"minillm head fwd", 8192, 32000, 2048, false, true, false},
      {"llama8b gate_up fwd", 4096, 28672, 4096, false, true, false},
      {"llama8b gate_up dw", 28672, 4096, 4096, true, false, true},
      {"8192 cube", 8192, 8192, 8192, false, true, false},
  };
  std::printf("\nmatmul, bf16, f32 accumulation (heuristic's first algorithm)\n");
  std::printf("%-24s %9s %9s\n", "case", "us", "TFLOP/s");
  for (const Case& c : cases) {
    Arena arena(device);
    const Matrix a = arena.Random(DType::kBf16, c.trans_a ? c.k : c.m, c.trans_a ? c.m : c.k);
    const Matrix b = arena.Random(DType::kBf16, c.trans_b ? c.n : c.k, c.trans_b ? c.k : c.n);
    const Matrix out = arena.Random(DType::kBf16, c.m, c.n);
    const double seconds = MedianSeconds(device, 4, [&](int) {
      return device.ops().MatMul(device.compute(), a, static_cast<Transpose>(c.trans_a), b,
                                 static_cast<Transpose>(c.trans_b), {}, out, c.accumulate);
    });
    std::printf("%-24s %9.1f %9.0f\n", c.name, seconds * 1e6, 2e-12 * c.m * c.n * c.k / seconds);
  }
}

}  // namespace fsdp::bench
