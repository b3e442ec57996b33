// One instruction set's kernels: compiled with FSDP_ISA=avx512, avx2 and baseline and the compiler
// flags that go with each.

#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/kernels_elementwise.h"
#include "worker/device/cpu/kernels_norm.h"
#include "worker/device/cpu/kernels_optimizer.h"
#include "worker/device/cpu/kernels_softmax.h"
#include "worker/device/cpu/simd.h"

#define FSDP_STRING2(x) #x
#define FSDP_STRING(x) FSDP_STRING2(x)

namespace fsdp::cpu::FSDP_ISA {
namespace {

template <typename T>
constexpr Kernels MakeKernels(void (*adamw)(const AdamWArgs&, i64, i64)) {
  return {.norm_forward = NormForward<T>,
          .norm_dx = NormDx<T>,
          .norm_d_weight = NormDWeight<T>,
          .column_sum = ColumnSum<T>,
          .rope = Rope<T>,
          .add = Add<T>,
          .add_row = AddRow<T>,
          .silu_forward = SiluForward<T>,
          .silu_backward = SiluBackward<T>,
          .gelu_forward = GeluForward<T>,
          .gelu_backward = GeluBackward<T>,
          .swiglu_forward = SwiGluForward<T>,
          .swiglu_backward = SwiGluBackward<T>,
          .embedding_forward = EmbeddingForward<T>,
          .gather_sum = GatherSum<T>,
          .cross_entropy = CrossEntropy<T>,
          .softmax = Softmax<A<T>>,
          .softmax_backward = SoftmaxBackward<A<T>>,
          .diagonal = Diagonal<A<T>>,
          .to_sum = ToSum<T>,
          .from_sum = FromSum<T>,
          .row_dot = RowDot<T>,
          .sum_squares = SumSquares<T>,
          .adamw = adamw};
}

void ExpF32(const float* x, float* y, i64 size) {
  ForLanes(0, size, [&](i64 i, auto n) { Store(y + i, Exp(Load(x + i, n)), n); });
}

}  // namespace

const KernelSet& GetKernelSet() {
  static constexpr KernelSet kSet = {
      .isa = FSDP_STRING(FSDP_ISA),
      .f32 = MakeKernels<float>(AdamWF32),
      .bf16 = MakeKernels<Bf16>(nullptr),
      .f64 = MakeKernels<double>(AdamW<double>),
      .cast = {{Cast<double, double>, Cast<double, float>, Cast<double, Bf16>},
               {Cast<float, double>, Cast<float, float>, Cast<float, Bf16>},
               {Cast<Bf16, double>, Cast<Bf16, float>, Cast<Bf16, Bf16>}},
      .accumulate = {{Accumulate<double, double>, Accumulate<double, float>},
                     {Accumulate<float, double>, Accumulate<float, float>},
                     {Accumulate<Bf16, double>, Accumulate<Bf16, float>}},
      .split_master = SplitMaster,
      .join_master = JoinMaster,
      .exp_f32 = ExpF32,
      .gemm_f64 = GemmF64};
  return kSet;
}

}  // namespace fsdp::cpu::FSDP_ISA
