#include <cstdio>
#include <map>

#include "tests/gpu/bench_support.h"

namespace fsdp::bench {
namespace {

constexpr DType kBf16 = DType::kBf16;
constexpr DType kF32 = DType::kF32;

class Table {
 public:
  explicit Table(Device& device) : device_(device) {
    std::printf("\nmemory-bound kernels, bf16; %% of the copy of as many bytes in this run\n");
    std::printf("%-44s %9s %9s %8s %8s %6s\n", "kernel", "MB", "us", "TB/s", "copy", "%");
  }

  // `make(arena)` gives one set's run function; `bytes` is what one call must read and write.
  template <typename Make>
  void Row(const std::string& name, double bytes, Make make) {
    Arena arena(device_);
    const auto size = static_cast<std::int64_t>(bytes);
    const int num_sets = NumSets(size);
    std::vector<std::function<absl::Status()>> runs;
    for (int set = 0; set < num_sets; ++set) runs.push_back(make(arena));
    const double seconds = MedianSeconds(device_, num_sets, [&](int set) { return runs[set](); });
    const double copy = Copy(size);
    std::printf("%-44s %9.1f %9.1f %8.2f %8.2f %6.1f\n", name.c_str(), bytes * 1e-6, seconds * 1e6,
                bytes / seconds * 1e-12, bytes / copy * 1e-12, 100 * copy / seconds);
  }

 private:
  double Copy(std::int64_t bytes) {
    auto [at, is_new] = copies_.try_emplace(bytes, 0.0);
    if (is_new) at->second = CopySeconds(device_, bytes);
    return at->second;
  }

  Device& device_;
  std::map<std::int64_t, double> copies_;
};

std::string Named(const char* name, std::int64_t rows, std::int64_t cols) {
  return std::string(name) + " [" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

void Norms(Device& device, Table& table, std::int64_t t, std::int64_t d) {
  Ops& ops = device.ops();
  const double matrix = 2.0 * t * d;
  table.Row(Named("rmsnorm + residual fwd", t, d), 4 * matrix, [&](Arena& arena) {
    const Matrix x = arena.Random(kBf16, t, d);
    const Matrix delta = arena.Random(kBf16, t, d);
    const Matrix sum = arena.Random(kBf16, t, d);
    const Matrix y = arena.Random(kBf16, t, d);
    const Vector weight = arena.RandomVector(kBf16, d);
    const Vector rstd = arena.RandomVector(kF32, t);
    return [&, x, delta, sum, y, weight, rstd] {
      return ops.RmsNormForward(device.compute(), x, delta, weight, 1e-5, sum, y, rstd);
    };
  });
  for (const bool redo : {false, true}) {
    const char* name = redo ? "rmsnorm bwd + residual, y again" : "rmsnorm bwd + residual";
    table.Row(Named(name, t, d), (redo ? 5 : 4) * matrix, [&, redo](Arena& arena) {
      const Matrix dy = arena.Random(kBf16, t, d);
      const Matrix x = arena.Random(kBf16, t, d);
      const Matrix residual = arena.Random(kBf16, t, d);
      const Matrix dx = arena.Random(kBf16, t, d);
      const Matrix y = redo ? arena.Random(kBf16, t, d) : Matrix{};
      const Vector weight = arena.RandomVector(kBf16, d);
      const Vector rstd = arena.RandomVector(kF32, t);
      const Vector d_weight = arena.RandomVector(kF32, d);
      const std::span<std::byte> scratch = arena.Bytes(ops.NormBackwardScratchBytes(t, d));
      return [&, dy, x, residual, dx, y, weight, rstd, d_weight, scratch] {
        return ops.RmsNormBackward(device.compute(), dy, x, weight, rstd, residual, dx, y, d_weight,
                                   false, scratch);
      };
    });
  }
}

void LayerNorms(Device& device, Table& table, std::int64_t t, std::int64_t d) {
  Ops& ops = device.ops();
  const double matrix = 2.0 * t * d;
  table.Row(Named("layernorm + residual fwd", t, d), 4 * matrix, [&](Arena& arena) {
    const Matrix x = arena.Random(kBf16, t, d);
    const Matrix delta = arena.Random(kBf16, t, d);
    const Matrix y = arena.Random(kBf16, t, d);
    const Matrix sum = arena.Random(kBf16, t, d);
    const Vector weight = arena.RandomVector(kBf16, d);
    const Vector bias = arena.RandomVector(kBf16, d);
    const Vector mean = arena.RandomVector(kF32, t);
    const Vector rstd = arena.RandomVector(kF32, t);
    return [&, x, delta, sum, y, weight, bias, mean, rstd] {
      return ops.LayerNormForward(device.compute(), x, delta, weight, bias, 1e-5, sum, y, mean,
                                  rstd);
    };
  });
  for (const bool redo : {false, true}) {
    const char* name = redo ? "layernorm bwd + residual, y again" : "layernorm bwd + residual";
    table.Row(Named(name, t, d), (redo ? 5 : 4) * matrix, [&, redo](Arena& arena) {
      const Matrix dy = arena.Random(kBf16, t, d);
      const Matrix x = arena.Random(kBf16, t, d);
      const Matrix residual = arena.Random(kBf16, t, d);
      const Matrix dx = arena.Random(kBf16, t, d);
      const Matrix y = redo ? arena.Random(kBf16, t, d) : Matrix{};
      const Vector weight = arena.RandomVector(kBf16, d);
      const Vector bias = arena.RandomVector(kBf16, d);
      const Vector mean = arena.RandomVector(kF32, t);
      const Vector rstd = arena.RandomVector(kF32, t);
      const Vector d_weight = arena.RandomVector(kF32, d);
      const Vector d_bias = arena.RandomVector(kF32, d);
      const std::span<std::byte> scratch = arena.Bytes(ops.NormBackwardScratchBytes(t, d));
      return [&, dy, x, residual, dx, y, weight, bias, mean, rstd, d_weight, d_bias, scratch] {
        return ops.LayerNormBackward(device.compute(), dy, x, weight, bias, mean, rstd, residual,
                                     dx, y, d_weight, d_bias, false, scratch);
      };
    });
  }
}

using ForwardOp = absl::Status (Ops::*)(Stream&, const Matrix&, const Matrix&);
using BackwardOp = absl::Status (Ops::*)(Stream&, const Matrix&, const Matrix&, const Matrix&,
                                         const Matrix&);

// Forward, backward, and backward that writes y again in x's place.
void Activation(Device& device, Table& table, const std::string& name, ForwardOp forward,
                BackwardOp backward, std::int64_t t, std::int64_t f) {
  Ops& ops = device.ops();
  const double matrix = 2.0 * t * f;
  table.Row(Named((name + " fwd").c_str(), t, f), 2 * matrix, [&](Arena& arena) {
    const Matrix x = arena.Random(kBf16, t, f);
    const Matrix y = arena.Random(kBf16, t, f);
    return [&, x, y] { return (ops.*forward)(device.compute(), x, y); };
  });
  table.Row(Named((name + " bwd").c_str(), t, f), 3 * matrix, [&](Arena& arena) {
    const Matrix dy = arena.Random(kBf16, t, f);
    const Matrix x = arena.Random(kBf16, t, f);
    const Matrix dx = arena.Random(kBf16, t, f);
    return [&, dy, x, dx] { return (ops.*backward)(device.compute(), dy, x, dx, {}); };
  });
  table.Row(Named((name + " bwd, y again").c_str(), t, f), 4 * matrix, [&](Arena& arena) {
    const Matrix dy = arena.Random(kBf16, t, f);
    const Matrix x = arena.Random(kBf16, t, f);
    return [&, dy, x] { return (ops.*backward)(device.compute(), dy, x, dy, x); };
  });
}

void Activations(Device& device, Table& table, std::int64_t t, std::int64_t f) {
  Activation(device, table, "silu", &Ops::SiluForward, &Ops::SiluBackward, t, f);
  Activation(device, table, "gelu", &Ops::GeluForward, &Ops::GeluBackward, t, f);
}

void SwiGlus(Device& device, Table& table, std::int64_t t, std::int64_t f) {
  Ops& ops = device.ops();
  const double matrix = 2.0 * t * f;
  table.Row(Named("swiglu fwd", t, f), 3 * matrix, [&](Arena& arena) {
    const Matrix gate_up = arena.Random(kBf16, t, 2 * f);
    const Matrix h = arena.Random(kBf16, t, f);
    return [&, gate_up, h] { return ops.SwiGluForward(device.compute(), gate_up, h); };
  });
  table.Row(Named("swiglu bwd", t, f), 5 * matrix, [&](Arena& arena) {
    const Matrix dh = arena.Random(kBf16, t, f);
    const Matrix gate_up = arena.Random(kBf16, t, 2 * f);
    const Matrix d_gate_up = arena.Random(kBf16, t, 2 * f);
    return [&, dh, gate_up, d_gate_up] {
      return ops.SwiGluBackward(device.compute(), dh, gate_up, d_gate_up, {});
    };
  });
  table.Row(Named("swiglu bwd, h again", t, f), 6 * matrix, [&](Arena& arena) {
    const Matrix dh = arena.Random(kBf16, t, f);
    const Matrix gate_up = arena.Random(kBf16, t, 2 * f);
    return
        [&, dh, gate_up] { return ops.SwiGluBackward(device.compute(), dh, gate_up, gate_up, dh); };
  });
}

void Ropes(Device& device, Table& table, const AttentionShape& shape) {
  Ops& ops = device.ops();
  const std::int64_t t = shape.batch * shape.seq;
  const std::int64_t rotated = (shape.num_heads + shape.num_kv_heads) * shape.head_dim;
  const std::int64_t cols = rotated + shape.num_kv_heads * shape.head_dim;
  table.Row(Named("rope", t, rotated), 2 * 2.0 * t * rotated, [&](Arena& arena) {
    const Matrix qkv = arena.Random(kBf16, t, cols);
    const Matrix cos = arena.Random(kF32, shape.seq, shape.head_dim / 2);
    const Matrix sin = arena.Random(kF32, shape.seq, shape.head_dim / 2);
    return [&, qkv, cos, sin] { return ops.Rope(device.compute(), qkv, shape, cos, sin, false); };
  });
}

void Optimizers(Device& device, Table& table, std::int64_t size) {
  Ops& ops = device.ops();
  const AdamWOptions options;
  Arena shared(device);
  auto* stats = reinterpret_cast<StepStats*>(shared.Bytes(sizeof(StepStats)).data());
  auto* scalars = reinterpret_cast<UpdateScalars*>(shared.Bytes(sizeof(UpdateScalars)).data());
  const StepStats host{.loss_sum = 1, .valid_tokens = 1, .grad_norm_sq = 1, .nonfinite = 0};
  Must(device.Copy(stats, &host, sizeof(host), device.compute()), "copy");
  auto* step = reinterpret_cast<StepScalars*>(shared.Bytes(sizeof(StepScalars)).data());
  const StepScalars host_step = *StepScalarsOf(1e-4, 1, options);
  Must(device.Copy(step, &host_step, sizeof(host_step), device.compute()), "copy");
  Must(ops.FinishStats(device.compute(), stats, 1, step, scalars), "finish stats");
  Must(device.Synchronize(device.compute()), "finish stats");
  // Two weight decays in turn, as norm weights between matrices have it.
  std::vector<DecaySegment> segments;
  for (std::int64_t at = 0; at < size; at += size / 16) {
    segments.push_back({at, std::min(size, at + size / 16), segments.size() % 2 == 0 ? 0.1F : 0});
  }
  // The second moment must not be negative: zeros.
  const auto zeros = [size](Arena& arena) {
    return Vector{arena.Bytes(4 * size).data(), kF32, size};
  };
  table.Row("adamw split, " + std::to_string(size), 28.0 * size, [&](Arena& arena) {
    const Vector compute = arena.RandomVector(kBf16, size);
    Vector remainder = arena.RandomVector(kBf16, size);
    remainder.dtype = DType::kU16;
    const Vector m = arena.RandomVector(kF32, size);
    const Vector v = zeros(arena);
    const Vector grad = arena.RandomVector(kF32, size);
    return [&, compute, remainder, m, v, grad, step, scalars] {
      return ops.AdamWSplit(device.compute(), compute, remainder, m, v, grad, segments, options,
                            step, scalars);
    };
  });
  table.Row("adamw f32 master, " + std::to_string(size), 28.0 * size, [&](Arena& arena) {
    const Vector master = arena.RandomVector(kF32, size);
    const Vector m = arena.RandomVector(kF32, size);
    const Vector v = zeros(arena);
    const Vector grad = arena.RandomVector(kF32, size);
    return [&, master, m, v, grad, step, scalars] {
      return ops.AdamW(device.compute(), master, m, v, grad, segments, options, step, scalars);
    };
  });
  for (const auto& [name, kind] : {std::pair{"uniform", InitialDraw::Kind::kUniform},
                                   std::pair{"normal", InitialDraw::Kind::kNormal}}) {
    table.Row("fill initial " + std::string(name) + ", " + std::to_string(size), 4.0 * size,
              [&, kind](Arena& arena) {
                const Vector out = arena.RandomVector(kF32, size);
                return [&, kind, out] {
                  return ops.FillInitial(device.compute(), {kind, 0.02F, 1}, 0, out);
                };
              });
  }
  table.Row("grad stats, " + std::to_string(size), 4.0 * size, [&](Arena& arena) {
    const Vector grad = arena.RandomVector(kF32, size);
    const std::span<std::byte> scratch = arena.Bytes(ops.GradStatsScratchBytes(size));
    return
        [&, grad, stats, scratch] { return ops.GradStats(device.compute(), grad, stats, scratch); };
  });
  table.Row("accumulate bf16 into f32, " + std::to_string(size), 10.0 * size, [&](Arena& arena) {
    const Vector from = arena.RandomVector(kBf16, size);
    const Vector to = arena.RandomVector(kF32, size);
    return [&, from, to] { return ops.Accumulate(device.compute(), from, to); };
  });
}

void Embeddings(Device& device, Table& table, std::int64_t t, std::int32_t vocab, std::int64_t d) {
  Ops& ops = device.ops();
  table.Row(Named("embedding fwd", t, d), 2 * 2.0 * t * d, [&](Arena& arena) {
    const std::span<const std::int32_t> ids = arena.Ids(t, vocab);
    const Matrix weights = arena.Random(kBf16, vocab, d);
    const Matrix out = arena.Random(kBf16, t, d);
    return [&, ids, weights, out] {
      return ops.EmbeddingForward(device.compute(), ids, weights, {}, t, {}, out);
    };
  });
  // Reads dout and writes each row of the f32 gradient once, zeros for most.
  table.Row(Named("embedding bwd", t, d), 4.0 * vocab * d + 2.0 * t * d, [&](Arena& arena) {
    const std::span<const std::int32_t> ids = arena.Ids(t, vocab);
    const Matrix gradient = arena.Random(kF32, vocab, d);
    const Matrix dout = arena.Random(kBf16, t, d);
    return [&, ids, gradient, dout] {
      return ops.EmbeddingBackward(device.compute(), ids, dout, t, {}, gradient, {}, false);
    };
  });
}

void Losses(Device& device, Table& table, std::int64_t t, std::int32_t vocab) {
  Ops& ops = device.ops();
  table.Row(Named("cross entropy", t, vocab), 2 * 2.0 * t * vocab, [&](Arena& arena) {
    const std::span<const std::int32_t> targets = arena.Ids(t, vocab);
    const Matrix logits = arena.Random(kBf16, t, vocab);
    auto* stats = reinterpret_cast<StepStats*>(arena.Bytes(sizeof(StepStats)).data());
    const std::span<std::byte> scratch = arena.Bytes(ops.CrossEntropyScratchBytes(t, vocab));
    return [&, targets, logits, stats, scratch] {
      return ops.CrossEntropy(device.compute(), logits, targets, stats, false, scratch);
    };
  });
}

}  // namespace

void BenchBandwidth(Device& device) {
  Table table(device);
  Norms(device, table, 8192, 2048);
  Norms(device, table, 16384, 2048);
  Norms(device, table, 8192, 4096);
  LayerNorms(device, table, 8192, 2048);
  LayerNorms(device, table, 16384, 2048);
  Activations(device, table, 8192, 8192);
  SwiGlus(device, table, 16384, 8192);
  SwiGlus(device, table, 8192, 14336);
  const auto rope = [](std::int64_t batch, std::int64_t dim) {
    return AttentionShape{
        .batch = batch, .seq = 4096, .num_heads = 32, .num_kv_heads = 8, .head_dim = dim};
  };
  Ropes(device, table, rope(4, 64));
  Ropes(device, table, rope(2, 128));
  Optimizers(device, table, std::int64_t{50} << 20);
  table.Row("column sum [8192, 6144]", 2.0 * 8192 * 6144, [&](Arena& arena) {
    const Matrix x = arena.Random(kBf16, 8192, 6144);
    const Vector out = arena.RandomVector(kF32, 6144);
    const std::span<std::byte> scratch =
        arena.Bytes(device.ops().ColumnSumScratchBytes(8192, 6144));
    return [&, x, out, scratch] {
      return device.ops().ColumnSum(device.compute(), x, out, false, scratch);
    };
  });
  Embeddings(device, table, 8192, 32000, 2048);
  Embeddings(device, table, 16384, 128256, 2048);
  Losses(device, table, 8192, 32000);
  Losses(device, table, 2048, 128256);
  Losses(device, table, 2048, 151936);
}

}  // namespace fsdp::bench
