// One CPU step of a dim-1024, 8-layer llama shape against the matmul rate measured at the same
// shapes in the same run, and how much of the gathers and scatters of two ranks hides behind
// compute.
//
// Goal: step <= 1.4 x (matmul FLOPs, attention's included, / measured matmul rate). The rate is
// taken twice, before and after the steps, and the mean counts, so that a busy machine slows both
// alike.
//
//   engine_step_bench [--vocab V] [--seq S] [--steps N]   prints one JSON line; exits 1 beyond the
//   goal

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/support/status.h"
#include "worker/device/ops.h"
#include "worker/train/bench.h"
#include "worker/train/tool_flags.h"

namespace fsdp {
namespace {

constexpr double kGoal = 1.4;

struct MatMulShape {
  std::int64_t m, n, k;
  int times;  // in one step
};

// Forward, input gradient and weight gradient of a [tokens, in] x [in, out] product.
void AddLinear(std::int64_t tokens, std::int64_t in, std::int64_t out, int times,
               std::vector<MatMulShape>& shapes) {
  shapes.push_back({tokens, out, in, times});
  shapes.push_back({tokens, in, out, times});
  shapes.push_back({out, in, tokens, times});
}

std::vector<MatMulShape> ShapesOf(const ModelConfig& model, std::int64_t tokens) {
  std::vector<MatMulShape> shapes;
  AddLinear(tokens, model.dim, model.qkv_dim(), model.num_layers, shapes);
  AddLinear(tokens, model.q_dim(), model.dim, model.num_layers, shapes);
  AddLinear(tokens, model.dim, model.mlp_in_dim(), model.num_layers, shapes);
  AddLinear(tokens, model.mlp_dim, model.dim, model.num_layers, shapes);
  AddLinear(tokens, model.dim, model.vocab_size, 1, shapes);
  return shapes;
}

double Flops(const MatMulShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k) * shape.times;
}

// FLOP/s over all shapes, each weighted by its share of a step.
absl::StatusOr<double> MatMulRate(const std::vector<MatMulShape>& shapes) {
  ASSIGN_OR_RETURN(const auto device, CreateCpuDevice({}));
  double flops = 0, seconds = 0;
  for (const MatMulShape& shape : shapes) {
    const auto bytes = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::size_t>(a * b) * sizeof(float);
    };
    ASSIGN_OR_RETURN(const auto a, device->Allocate(bytes(shape.m, shape.k)));
    ASSIGN_OR_RETURN(const auto b, device->Allocate(bytes(shape.n, shape.k)));
    ASSIGN_OR_RETURN(const auto c, device->Allocate(bytes(shape.m, shape.n)));
    const auto run = [&] {
      return device->ops().MatMul(
          device->compute(), Matrix::Packed(a->data(), DType::kF32, shape.m, shape.k),
          Transpose::kNo, Matrix::Packed(b->data(), DType::kF32, shape.n, shape.k), Transpose::kYes,
          {}, Matrix::Packed(c->data(), DType::kF32, shape.m, shape.n), false);
    };
    RETURN_IF_ERROR(run());
    const auto begin = std::chrono::steady_clock::now();
    constexpr int kRepeats = 3;
    for (int i = 0; i < kRepeats; ++i) RETURN_IF_ERROR(run());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    seconds += elapsed.count() / kRepeats * shape.times;
    flops += Flops(shape);
  }
  return flops / seconds;
}

absl::StatusOr<ModelConfig> Model(std::int64_t vocab) {
  v1::ModelSpec spec;
  spec.set_family(v1::MODEL_FAMILY_LLAMA);
  spec.set_vocab_size(vocab);
  spec.set_dim(1024);
  spec.set_num_layers(8);
  spec.set_num_heads(16);
  spec.set_mlp_dim(2816);
  return ResolveModel(spec);
}

double FamilyFlops(const BenchReport& report, KernelFamily family) {
  return report.families[static_cast<std::size_t>(family)].flops /
         static_cast<double>(report.step_seconds.size());
}

absl::StatusOr<int> Run(std::span<const std::string> arguments) {
  ASSIGN_OR_RETURN(const ToolFlags flags,
                   ToolFlags::Parse(arguments, {"vocab", "seq", "steps"}, {}));
  ASSIGN_OR_RETURN(const std::int64_t vocab, flags.Integer("vocab", 8192, 2, 1 << 20));
  BenchOptions options;
  ASSIGN_OR_RETURN(options.model, Model(vocab));
  ASSIGN_OR_RETURN(options.sequence_length, flags.Integer("seq", 512, 1, 1 << 16));
  ASSIGN_OR_RETURN(options.steps, flags.Integer("steps", 3, 1, 1000));
  options.batch = 1;
  options.warmup = 1;
  options.parameter_dtype = DType::kF32;

  const std::vector<MatMulShape> shapes = ShapesOf(options.model, options.sequence_length);
  ASSIGN_OR_RETURN(const double before, MatMulRate(shapes));
  ASSIGN_OR_RETURN(const BenchReport one, RunBench(options, CpuBackend()));
  ASSIGN_OR_RETURN(const double after, MatMulRate(shapes));
  const double rate = 2 / (1 / before + 1 / after);
  double flops = FamilyFlops(one, KernelFamily::kAttentionForward) +
                 FamilyFlops(one, KernelFamily::kAttentionBackward);
  for (const MatMulShape& shape : shapes) flops += Flops(shape);
  const double ideal = flops / rate;
  const double ratio = one.MedianSeconds() / ideal;

  options.world_size = 2;
  ASSIGN_OR_RETURN(const BenchReport two, RunBench(options, CpuBackend()));
  const v1::StepPhases& phases = two.phases;
  const double hidden = phases.overlapped_gather_seconds() + phases.overlapped_scatter_seconds();
  const double exposed = phases.exposed_gather_seconds() + phases.exposed_scatter_seconds();

  nlohmann::ordered_json json;
  json["step_s"] = one.MedianSeconds();
  json["matmul_gflops"] = rate / 1e9;
  json["matmul_and_attention_gflop"] = flops / 1e9;
  json["ideal_s"] = ideal;
  json["ratio"] = ratio;
  json["goal"] = kGoal;
  json["two_ranks_step_s"] = two.MedianSeconds();
  json["communication_hidden_s"] = hidden;
  json["communication_exposed_s"] = exposed;
  json["overlap"] = hidden + exposed > 0 ? hidden / (hidden + exposed) : 0;
  std::printf("%s\n", json.dump().c_str());
  return ratio <= kGoal ? 0 : 1;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const absl::StatusOr<int> code = fsdp::Run(arguments);
  if (code.ok()) return *code;
  std::fprintf(stderr, "engine_step_bench: %s\n", std::string(code.status().message()).c_str());
  return 2;
}
