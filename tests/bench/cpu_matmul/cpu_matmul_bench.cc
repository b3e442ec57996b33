// Rates of the CPU device's matrix products on the shapes of a dim-1024, 8-layer llama at sequence
// 512 and on skinny ones, beside the libraries that it could be built on: OpenBLAS' sgemm (when
// libopenblas is installed), oneDNN's sgemm and matmul primitive with the library's own threads.
// Then the operations of a block and a whole training step made of them, against the step's matmul
// FLOPs at the measured rate.
//
//   cpu_matmul_bench [threads] [layers] [wall|cpu]
//
// threads 0: all cores. cpu: times are CPU time, for one thread on a busy machine.
//
// For the comparison with OpenBLAS run it without OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE.

#include <dlfcn.h>
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "tests/bench/cpu_matmul/bench_support.h"
#include "worker/device/cpu/cpu_ceilings.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/device/ops.h"

namespace fsdp {
namespace {

using OpenBlasSgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*,
                               int, float, float*, int);
using OpenBlasSetThreads = void (*)(int);
constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;

struct Shape {
  const char* name;
  std::int64_t m, n, k;
  bool ta, tb;
};

constexpr Shape kShapes[] = {
    {"qkv forward", 512, 3072, 1024, false, true},
    {"attention out forward", 512, 1024, 1024, false, true},
    {"gate+up forward", 512, 5632, 1024, false, true},
    {"down forward", 512, 1024, 2816, false, true},
    {"gate+up d_input", 512, 1024, 5632, false, false},
    {"down d_input", 512, 2816, 1024, false, false},
    {"gate+up d_weight", 5632, 1024, 512, true, false},
    {"down d_weight", 1024, 2816, 512, true, false},
    {"head forward", 512, 32000, 1024, false, true},
    {"one head's scores", 64, 512, 64, false, true},
    {"one head's values", 64, 64, 512, false, false},
    {"skinny 8", 8, 1024, 1024, false, true},
    {"one row", 1, 1024, 1024, false, true},
};

double DeviceRate(Device& device, const Shape& s, DType dtype) {
  Memory memory(device);
  const Matrix a = memory.NewMatrix(dtype, s.ta ? s.k : s.m, s.ta ? s.m : s.k);
  const Matrix b = memory.NewMatrix(dtype, s.tb ? s.n : s.k, s.tb ? s.k : s.n);
  const Matrix c = memory.NewMatrix(dtype, s.m, s.n);
  const double seconds = ShortestSeconds([&] {
    Require(device.ops().MatMul(device.compute(), a, If(s.ta), b, If(s.tb), {}, c, false));
  });
  return 2.0 * static_cast<double>(s.m * s.n * s.k) / seconds;
}

// oneDNN with its own threads: the matmul primitive, f32 or bf16.
double PrimitiveRate(const Shape& s, bool bf16, int threads) {
  using dnnl::memory;
  omp_set_num_threads(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc a({s.m, s.k}, type, s.ta ? memory::dims{1, s.m} : memory::dims{s.k, 1});
  const memory::desc b({s.k, s.n}, type, s.tb ? memory::dims{1, s.k} : memory::dims{s.n, 1});
  const memory::desc c({s.m, s.n}, type, memory::dims{s.n, 1});
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
  memory ma(a, engine);
  memory mb(b, engine);
  memory mc(c, engine);
  const double seconds = ShortestSeconds([&] {
    product.execute(stream, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}});
    stream.wait();
  });
  omp_set_num_threads(1);
  return 2.0 * static_cast<double>(s.m * s.n * s.k) / seconds;
}

double LibrarySgemmRate(Device& device, const Shape& s, int threads, OpenBlasSgemm openblas) {
  Memory memory(device);
  const auto* a = static_cast<float*>(memory.New(DType::kF32, s.m * s.k));
  const auto* b = static_cast<float*>(memory.New(DType::kF32, s.k * s.n));
  auto* c = static_cast<float*>(memory.New(DType::kF32, s.m * s.n));
  const std::int64_t lda = s.ta ? s.m : s.k;
  const std::int64_t ldb = s.tb ? s.k : s.n;
  omp_set_num_threads(threads);
  const double seconds = ShortestSeconds([&] {
    if (openblas != nullptr) {
      openblas(kRowMajor, s.ta ? kTrans : kNoTrans, s.tb ? kTrans : kNoTrans, static_cast<int>(s.m),
               static_cast<int>(s.n), static_cast<int>(s.k), 1, a, static_cast<int>(lda), b,
               static_cast<int>(ldb), 0, c, static_cast<int>(s.n));
    } else {
      dnnl_sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', s.m, s.n, s.k, 1, a, lda, b, ldb, 0, c, s.n);
    }
  });
  omp_set_num_threads(1);
  return 2.0 * static_cast<double>(s.m * s.n * s.k) / seconds;
}

void CompareProducts(Device& device, int threads) {
  OpenBlasSgemm sgemm = nullptr;
  if (void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL); library != nullptr) {
    sgemm = reinterpret_cast<OpenBlasSgemm>(dlsym(library, "cblas_sgemm"));
    if (auto* set =
            reinterpret_cast<OpenBlasSetThreads>(dlsym(library, "openblas_set_num_threads"));
        set != nullptr) {
      set(threads);
    }
  }
  std::printf("GFLOP/s, %d thread(s)\n%-22s %18s %9s %9s %9s %9s %9s %9s\n", threads, "", "m n k",
              "ours f32", "ours bf16", "dnnl sg", "dnnl f32", "dnnl bf16", "openblas");
  for (const Shape& s : kShapes) {
    const std::string sizes = std::to_string(s.m) + " " + std::to_string(s.n) + " " +
                              std::to_string(s.k) + (s.ta ? " T" : " N") + (s.tb ? "T" : "N");
    std::printf("%-22s %18s %9.0f %9.0f %9.0f %9.0f %9.0f", s.name, sizes.c_str(),
                DeviceRate(device, s, DType::kF32) / 1e9, DeviceRate(device, s, DType::kBf16) / 1e9,
                LibrarySgemmRate(device, s, threads, nullptr) / 1e9,
                PrimitiveRate(s, false, threads) / 1e9, PrimitiveRate(s, true, threads) / 1e9);
    if (sgemm != nullptr) {
      std::printf(" %9.0f\n", LibrarySgemmRate(device, s, threads, sgemm) / 1e9);
    } else {
      std::printf(" %9s\n", "absent");
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  if (threads == 0) threads = fsdp::cpu::AvailableCores();
  fsdp::use_cpu_clock = argc > 3 && std::string(argv[3]) == "cpu";
  auto device = fsdp::CreateCpuDevice({.num_threads = threads});
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return 2;
  }
  std::printf("%s\n", (*device)->name().c_str());
  const auto ceilings = fsdp::MeasureCeilings(**device);
  fsdp::Require(ceilings.status());
  std::printf("ceilings: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s, copy %.1f GB/s\n",
              ceilings->fp32.alone / 1e9, ceilings->bf16.alone / 1e9,
              ceilings->copy_bytes_per_second / 1e9);
  fsdp::CompareProducts(**device, threads);
  return fsdp::RunStepBench(**device, argc > 2 ? std::atoi(argv[2]) : 8);
}
