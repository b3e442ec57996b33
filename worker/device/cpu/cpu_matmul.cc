#include "worker/device/cpu/cpu_matmul.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace fsdp::cpu {
namespace {

// Tiles have at most this many elements along an edge: large enough that packing its operands costs
// a tile little, small enough to share a product among threads. Edges are multiples of kTileStep.
constexpr std::int64_t kTileEdge = 512;
constexpr std::int64_t kTileStep = 16;
constexpr std::int64_t kMinTileEdge = 64;
// Primitives kept per thread; a trainer needs a few dozen.
constexpr std::size_t kMaxCachedPrimitives = 4096;

absl::Status DnnlToStatus(const char* call, int code, std::int64_t m, std::int64_t n,
                          std::int64_t k) {
  if (code == dnnl_success) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("%s failed with status %d (m %d, n %d, k %d)", call, code, m, n, k));
}

// oneDNN would start an OpenMP team per calling thread; the pool is the only source of threads.
void LimitLibraryThreads() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

struct PrimitiveKey {
  std::int64_t m, n, k, a_stride, b_stride, c_stride;
  bool trans_a, trans_b, bias, accumulate, out_f32;
  bool operator==(const PrimitiveKey&) const = default;
};
struct PrimitiveKeyHash {
  std::size_t operator()(const PrimitiveKey& key) const {
    std::uint64_t hash = 1469598103934665603U;
    const int flags =
        key.trans_a + 2 * key.trans_b + 4 * key.bias + 8 * key.accumulate + 16 * key.out_f32;
    for (const std::int64_t value :
         {key.m, key.n, key.k, key.a_stride, key.b_stride, key.c_stride, std::int64_t{flags}}) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
    }
    return hash;
  }
};

// A compiled product with the memory handles it is run with. One per thread and shape: handles and
// scratchpad are not shared.
struct CachedMatMul {
  dnnl::matmul primitive;
  dnnl::memory a, b, bias, c, scratchpad;
};

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

CachedMatMul Compile(const PrimitiveKey& key) {
  using dnnl::memory;
  const auto bf16 = memory::data_type::bf16;
  const auto strides = [](bool transposed, std::int64_t stride) {
    return transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  };
  const memory::desc a({key.m, key.k}, bf16, strides(key.trans_a, key.a_stride));
  const memory::desc b({key.k, key.n}, bf16, strides(key.trans_b, key.b_stride));
  const memory::desc c({key.m, key.n}, key.out_f32 ? memory::data_type::f32 : bf16,
                       memory::dims{key.c_stride, 1});
  const memory::desc bias({1, key.n}, bf16, memory::dims{key.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::desc description =
      key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc primitive(description, attributes, Engine());
  return {dnnl::matmul(primitive),      memory(a, Engine(), nullptr),
          memory(b, Engine(), nullptr), memory(bias, Engine(), nullptr),
          memory(c, Engine(), nullptr), memory(primitive.scratchpad_desc(), Engine())};
}

CachedMatMul& Lookup(const PrimitiveKey& key) {
  thread_local std::unordered_map<PrimitiveKey, CachedMatMul, PrimitiveKeyHash> cache;
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  if (cache.size() >= kMaxCachedPrimitives) cache.clear();
  // One thread at a time sets up the library's own tables and compiles.
  static std::mutex compile_mutex;
  const std::lock_guard<std::mutex> lock(compile_mutex);
  return cache.emplace(key, Compile(key)).first->second;
}

struct Tiling {
  std::int64_t rows, cols;  // of a tile; the last ones may be smaller
  std::int64_t row_tiles, col_tiles;
};

// The longer side is cut into more tiles until the threads share them evenly.
Tiling ChooseTiling(std::int64_t rows, std::int64_t cols, int num_threads) {
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  std::int64_t row_tiles = ceil_div(rows, kTileEdge);
  std::int64_t col_tiles = ceil_div(cols, kTileEdge);
  while (row_tiles * col_tiles % num_threads != 0) {
    std::int64_t& longer = rows / row_tiles > cols / col_tiles ? row_tiles : col_tiles;
    const std::int64_t side = &longer == &row_tiles ? rows : cols;
    if (side / (longer + 1) < kMinTileEdge) break;
    ++longer;
  }
  const std::int64_t tile_rows = ceil_div(ceil_div(rows, row_tiles), kTileStep) * kTileStep;
  const std::int64_t tile_cols = ceil_div(ceil_div(cols, col_tiles), kTileStep) * kTileStep;
  return {tile_rows, tile_cols, ceil_div(rows, tile_rows), ceil_div(cols, tile_cols)};
}

template <typename T>
T* At(void* data, std::int64_t offset) {
  return static_cast<T*>(data) + offset;
}

// The part of op(x) that starts at its row `row` and column `col`.
void* Offset(const Matrix& x, Transpose transpose, std::int64_t row, std::int64_t col) {
  const std::int64_t offset =
      transpose == Transpose::kYes ? col * x.stride + row : row * x.stride + col;
  return static_cast<std::byte*>(x.data) + offset * static_cast<std::int64_t>(SizeOf(x.dtype));
}

std::vector<float>& ThreadScratch(int which) {
  thread_local std::array<std::vector<float>, 3> scratch;
  return scratch[static_cast<std::size_t>(which)];
}

}  // namespace

struct CpuMatMul::Problem {
  Matrix a, b;
  Vector bias;
  Matrix out;
  Transpose trans_a, trans_b;
  std::int64_t k;
  bool accumulate;
};

Bf16Path DetectBf16Path() {
  const int isa = dnnl_get_effective_cpu_isa();
  const bool native = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
  return native ? Bf16Path::kNative : Bf16Path::kConvert;
}

absl::Status GemmSerial(const KernelSet& /*kernels*/, Transpose trans_a, Transpose trans_b,
                        std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                        std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta,
                        float* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return absl::OkStatus();
  if (k == 0) {  // the library refuses it
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t col = 0; col < n; ++col) {
        float& value = c[row * c_stride + col];
        value = beta == 0 ? 0 : beta * value;
      }
    }
    return absl::OkStatus();
  }
  LimitLibraryThreads();
  const int code =
      dnnl_sgemm(trans_a == Transpose::kYes ? 'T' : 'N', trans_b == Transpose::kYes ? 'T' : 'N', m,
                 n, k, alpha, a, a_stride, b, b_stride, beta, c, c_stride);
  return DnnlToStatus("dnnl_sgemm", code, m, n, k);
}

absl::Status GemmSerial(const KernelSet& kernels, Transpose trans_a, Transpose trans_b,
                        std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                        const double* a, std::int64_t a_stride, const double* b,
                        std::int64_t b_stride, double beta, double* c, std::int64_t c_stride) {
  const bool ta = trans_a == Transpose::kYes;
  const bool tb = trans_b == Transpose::kYes;
  kernels.gemm_f64(m, n, k, alpha, a, ta ? 1 : a_stride, ta ? a_stride : 1, b, tb ? 1 : b_stride,
                   tb ? b_stride : 1, beta, c, c_stride);
  return absl::OkStatus();
}

absl::Status CpuMatMul::Run(const Matrix& a, Transpose trans_a, const Matrix& b, Transpose trans_b,
                            const Vector& bias, const Matrix& out, bool accumulate) {
  const Problem problem = {
      a, b, bias, out, trans_a, trans_b, trans_a == Transpose::kYes ? a.rows : a.cols, accumulate};
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  if (a.dtype == DType::kBf16 && (bf16_path_ == Bf16Path::kConvert || problem.k == 0)) {
    return RunConverted(problem);
  }
  return RunTiles(problem);
}

absl::Status CpuMatMul::RunTiles(const Problem& problem) {
  const Tiling tiling = ChooseTiling(problem.out.rows, problem.out.cols, pool_.num_threads());
  std::mutex mutex;
  absl::Status first_error;
  auto run = [&](std::int64_t task, int /*slot*/) {
    const std::int64_t row = task / tiling.col_tiles * tiling.rows;
    const std::int64_t col = task % tiling.col_tiles * tiling.cols;
    const absl::Status status =
        RunTile(problem, row, col, std::min(tiling.rows, problem.out.rows - row),
                std::min(tiling.cols, problem.out.cols - col));
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex);
    first_error.Update(status);
  };
  pool_.ParallelFor(tiling.row_tiles * tiling.col_tiles, run);
  return first_error;
}

absl::Status CpuMatMul::RunTile(const Problem& problem, std::int64_t row, std::int64_t col,
                                std::int64_t rows, std::int64_t cols) {
  switch (problem.a.dtype) {
    case DType::kF64:
      RunTileF64(problem, row, col, rows, cols);
      return absl::OkStatus();
    case DType::kBf16:
      return RunTileBf16(problem, row, col, rows, cols);
    default:
      return RunTileF32(problem, row, col, rows, cols);
  }
}

absl::Status CpuMatMul::RunTileF32(const Problem& p, std::int64_t row, std::int64_t col,
                                   std::int64_t rows, std::int64_t cols) {
  float* c = At<float>(p.out.data, row * p.out.stride + col);
  bool add = p.accumulate;
  if (!p.bias.empty()) {
    if (!add) {
      for (std::int64_t r = 0; r < rows; ++r) std::fill_n(c + r * p.out.stride, cols, 0.0F);
    }
    ElementwiseArgs args = {};
    args.b = At<float>(p.bias.data, col);
    args.y = c;
    args.y_stride = p.out.stride;
    args.cols = cols;
    kernels_.f32.add_row(args, 0, rows);
    add = true;
  }
  return GemmSerial(kernels_, p.trans_a, p.trans_b, rows, cols, p.k, 1.0F,
                    static_cast<float*>(Offset(p.a, p.trans_a, row, 0)), p.a.stride,
                    static_cast<float*>(Offset(p.b, p.trans_b, 0, col)), p.b.stride,
                    add ? 1.0F : 0.0F, c, p.out.stride);
}

void CpuMatMul::RunTileF64(const Problem& p, std::int64_t row, std::int64_t col, std::int64_t rows,
                           std::int64_t cols) {
  double* c = At<double>(p.out.data, row * p.out.stride + col);
  static_cast<void>(GemmSerial(kernels_, p.trans_a, p.trans_b, rows, cols, p.k, 1.0,
                               static_cast<double*>(Offset(p.a, p.trans_a, row, 0)), p.a.stride,
                               static_cast<double*>(Offset(p.b, p.trans_b, 0, col)), p.b.stride,
                               p.accumulate ? 1.0 : 0.0, c, p.out.stride));
  if (p.bias.empty()) return;
  ElementwiseArgs args = {};
  args.b = At<double>(p.bias.data, col);
  args.y = c;
  args.y_stride = p.out.stride;
  args.cols = cols;
  kernels_.f64.add_row(args, 0, rows);
}

absl::Status CpuMatMul::RunTileBf16(const Problem& p, std::int64_t row, std::int64_t col,
                                    std::int64_t rows, std::int64_t cols) {
  LimitLibraryThreads();
  const PrimitiveKey key = {.m = rows,
                            .n = cols,
                            .k = p.k,
                            .a_stride = p.a.stride,
                            .b_stride = p.b.stride,
                            .c_stride = p.out.stride,
                            .trans_a = p.trans_a == Transpose::kYes,
                            .trans_b = p.trans_b == Transpose::kYes,
                            .bias = !p.bias.empty(),
                            .accumulate = p.accumulate,
                            .out_f32 = p.out.dtype == DType::kF32};
  try {
    CachedMatMul& cached = Lookup(key);
    cached.a.set_data_handle(Offset(p.a, p.trans_a, row, 0));
    cached.b.set_data_handle(Offset(p.b, p.trans_b, 0, col));
    cached.c.set_data_handle(Offset(p.out, Transpose::kNo, row, col));
    std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, cached.a},
                                                       {DNNL_ARG_WEIGHTS, cached.b},
                                                       {DNNL_ARG_DST, cached.c},
                                                       {DNNL_ARG_SCRATCHPAD, cached.scratchpad}};
    if (key.bias) {
      cached.bias.set_data_handle(At<std::uint16_t>(p.bias.data, col));
      arguments.emplace(DNNL_ARG_BIAS, cached.bias);
    }
    thread_local dnnl::stream stream(Engine());
    cached.primitive.execute(stream, arguments);
    stream.wait();
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrFormat("oneDNN matmul failed: %s (m %d, n %d, k %d, bf16)",
                                               error.what(), rows, cols, p.k));
  }
  return absl::OkStatus();
}

// bf16 without bf16 instructions: both operands and the output pass through f32, rounded once.
absl::Status CpuMatMul::RunConverted(const Problem& problem) {
  const Kernels& bf16 = kernels_.bf16;
  const auto widen = [&](const Matrix& x, int which) {
    std::vector<float>& to = ThreadScratch(which);
    if (to.size() < static_cast<std::size_t>(x.rows * x.cols)) to.resize(x.rows * x.cols);
    const ConvertArgs args = {x.data, to.data(), x.stride, x.cols, x.cols, nullptr};
    auto row = [&](std::int64_t r, int) { bf16.to_sum(args, r, r + 1); };
    pool_.ParallelFor(x.rows, row);
    return Matrix::Packed(to.data(), DType::kF32, x.rows, x.cols);
  };
  Problem wide = problem;
  wide.a = widen(problem.a, 0);
  wide.b = widen(problem.b, 1);
  wide.bias = {};
  const bool out_is_f32 = problem.out.dtype == DType::kF32;
  if (!out_is_f32) {
    wide.out = widen(problem.out, 2);  // read only when accumulating
  }
  if (absl::Status status = RunTiles(wide); !status.ok()) return status;
  auto finish = [&](std::int64_t r, int) {
    if (!problem.bias.empty()) {
      ElementwiseArgs args = {};
      args.b = problem.bias.data;
      args.y = wide.out.data;
      args.y_stride = wide.out.stride;
      args.cols = wide.out.cols;
      bf16.add_row(args, r, r + 1);
    }
    if (out_is_f32) return;
    bf16.from_sum({wide.out.data, problem.out.data, wide.out.stride, problem.out.stride,
                   wide.out.cols, nullptr},
                  r, r + 1);
  };
  pool_.ParallelFor(problem.out.rows, finish);
  return absl::OkStatus();
}

}  // namespace fsdp::cpu
