#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_DEVICE_OPS_FIXTURE_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_DEVICE_OPS_FIXTURE_H_

// What the cases of device_ops_contract.h share: operands on a device, the truth, tolerances.
//
// How a case works: an operation is written once as a function of an Env and of inputs in f64. It
// runs on the backend in f32 and in bf16, and on the truth with the same inputs after their
// rounding to that dtype. Outputs start as NaN, so an element that was not written is seen.
//
// Tolerances. u(f32) = 2^-24 and u(bf16) = 2^-8 are the largest relative errors of one rounding to
// nearest. Operations form sums in f32, so an output has the error of its f32 arithmetic (a count
// of operations times u(f32) times the size of what was added) and, for bf16, one rounding of the
// result (u(bf16) times the result). Each case states its count and size.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "worker/device/device.h"
#include "worker/device/ops.h"

namespace fsdp {

struct Backend {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> create;
  // Causal attention in bf16 multiplies whole tiles on tensor cores: a later token's NaN or Inf
  // times its weight of 0 reaches earlier rows. Finite values never do, on any backend.
  bool bf16_attention_spreads_nonfinite = false;
};

inline std::string BackendName(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}

using Values = std::vector<double>;

inline constexpr double kUnitF32 = 0x1p-24;
inline constexpr double kUnitBf16 = 0x1p-8;
inline double UnitOf(DType dtype) { return dtype == DType::kBf16 ? kUnitBf16 : kUnitF32; }
// What one rounding of a result costs beyond f32 arithmetic.
inline double StoreUnit(DType dtype) { return dtype == DType::kBf16 ? kUnitBf16 : 0; }
inline DType SumsOf(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

inline std::uint16_t Bf16Bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
inline float FromBf16Bits(std::uint16_t bf16) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// `x` after storing it as `dtype`.
inline double Rounded(double x, DType dtype) {
  if (dtype == DType::kF64) return x;
  const auto narrow = static_cast<float>(x);
  return dtype == DType::kBf16 ? FromBf16Bits(Bf16Bits(narrow)) : narrow;
}
inline Values Rounded(Values x, DType dtype) {
  for (double& value : x) value = Rounded(value, dtype);
  return x;
}

inline std::vector<std::byte> Encode(const Values& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* to = bytes.data() + i * SizeOf(dtype);
    const auto narrow = static_cast<float>(values[i]);
    const std::uint16_t bf16 = Bf16Bits(narrow);
    if (dtype == DType::kF64) std::memcpy(to, &values[i], 8);
    if (dtype == DType::kF32) std::memcpy(to, &narrow, 4);
    if (dtype == DType::kBf16) std::memcpy(to, &bf16, 2);
  }
  return bytes;
}
inline Values Decode(const std::vector<std::byte>& bytes, DType dtype) {
  Values values(bytes.size() / SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* from = bytes.data() + i * SizeOf(dtype);
    float narrow = 0;
    std::uint16_t bf16 = 0;
    if (dtype == DType::kF64) std::memcpy(&values[i], from, 8);
    if (dtype == DType::kF32) std::memcpy(&narrow, from, 4);
    if (dtype == DType::kBf16) std::memcpy(&bf16, from, 2);
    if (dtype == DType::kF32) values[i] = narrow;
    if (dtype == DType::kBf16) values[i] = FromBf16Bits(bf16);
  }
  return values;
}

// Where an operation runs: a device and the dtype of its operands. Owns the operands.
class Env {
 public:
  Env(Device& device, DType dtype) : device_(device), dtype_(dtype) {}

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] DType sums() const { return SumsOf(dtype_); }
  Device& device() { return device_; }
  Ops& ops() { return device_.ops(); }
  Stream& stream() { return device_.compute(); }

  // Rows `pad` elements further apart than they are long; the gaps hold NaN.
  Matrix In(const Values& values, std::int64_t rows, std::int64_t cols, std::int64_t pad = 0) {
    return InAs(dtype_, values, rows, cols, pad);
  }
  Matrix InAs(DType dtype, const Values& values, std::int64_t rows, std::int64_t cols,
              std::int64_t pad = 0) {
    Values padded(rows * (cols + pad), std::nan(""));
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      padded[i / cols * (cols + pad) + i % cols] = values[i];
    }
    return {Upload(Encode(padded, dtype)), dtype, rows, cols, cols + pad};
  }
  Vector VecAs(DType dtype, const Values& values) {
    return {Upload(Encode(values, dtype)), dtype, static_cast<std::int64_t>(values.size())};
  }
  Vector Vec(const Values& values) { return VecAs(dtype_, values); }
  Vector SumVec(const Values& values) { return VecAs(sums(), values); }
  // NaN everywhere.
  Matrix Out(std::int64_t rows, std::int64_t cols, std::int64_t pad = 0) {
    return In(Values(rows * cols, std::nan("")), rows, cols, pad);
  }
  Matrix OutAs(DType dtype, std::int64_t rows, std::int64_t cols) {
    return InAs(dtype, Values(rows * cols, std::nan("")), rows, cols);
  }
  Vector OutVec(DType dtype, std::int64_t size) { return VecAs(dtype, Values(size, std::nan(""))); }
  std::span<const std::int32_t> Ids(const std::vector<std::int32_t>& ids) {
    return {static_cast<const std::int32_t*>(UploadRaw(ids)), ids.size()};
  }
  template <typename T>
  T* UploadRaw(const std::vector<T>& items) {
    std::vector<std::byte> bytes(items.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), items.data(), bytes.size());
    return static_cast<T*>(Upload(bytes));
  }
  template <typename T>
  std::vector<T> DownloadRaw(const T* from, std::size_t size) {
    const std::vector<std::byte> bytes = Download(from, size * sizeof(T));
    std::vector<T> items(size);
    if (size > 0) std::memcpy(items.data(), bytes.data(), bytes.size());
    return items;
  }
  // Filled with 0xFF: scratch must not be taken for zeros.
  std::span<std::byte> Scratch(std::size_t size_bytes) {
    return {static_cast<std::byte*>(Upload(std::vector<std::byte>(size_bytes, std::byte{0xFF}))),
            size_bytes};
  }

  // Values of a matrix, row by row; fails the test when the gaps between rows were written.
  Values Get(const Matrix& x) {
    if (x.rows == 0 || x.cols == 0) return {};
    const Values all = Decode(Download(x.data, x.rows * x.stride * SizeOf(x.dtype)), x.dtype);
    Values values;
    for (std::int64_t i = 0; i < x.rows * x.stride; ++i) {
      if (i % x.stride < x.cols) {
        values.push_back(all[i]);
      } else {
        EXPECT_TRUE(std::isnan(all[i])) << "the gap after row " << i / x.stride << " was written";
      }
    }
    return values;
  }
  Values Get(const Vector& x) {
    if (x.size == 0) return {};
    return Decode(Download(x.data, x.size_bytes()), x.dtype);
  }
  std::vector<std::byte> Bytes(const Matrix& x) {
    return Download(x.data, x.rows * x.stride * SizeOf(x.dtype));
  }
  std::vector<std::byte> Bytes(const Vector& x) { return Download(x.data, x.size_bytes()); }

 private:
  void* Upload(const std::vector<std::byte>& bytes) {
    auto buffer = device_.Allocate(bytes.size());
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffers_.push_back(std::move(*buffer));
    void* data = buffers_.back()->data();
    EXPECT_TRUE(device_.Copy(data, bytes.data(), bytes.size(), stream()).ok());
    EXPECT_TRUE(device_.Synchronize(stream()).ok());
    return data;
  }
  std::vector<std::byte> Download(const void* from, std::size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    EXPECT_TRUE(device_.Copy(bytes.data(), from, size_bytes, stream()).ok());
    const absl::Status status = device_.Synchronize(stream());
    EXPECT_TRUE(status.ok()) << status;
    return bytes;
  }

  Device& device_;
  const DType dtype_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

class DeviceOpsContract : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    auto device = GetParam().create();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
    auto truth = CreateCpuDevice({.num_threads = 1});
    ASSERT_TRUE(truth.ok()) << truth.status();
    truth_ = std::move(*truth);
  }

  // Normal values, the same in every run.
  Values Random(std::int64_t size, double scale = 1.0) {
    std::normal_distribution<double> normal(0.0, scale);
    Values values(size);
    for (double& value : values) value = normal(random_);
    return values;
  }
  std::vector<std::int32_t> RandomIds(std::int64_t size, std::int32_t limit) {
    std::uniform_int_distribution<std::int32_t> uniform(0, limit - 1);
    std::vector<std::int32_t> ids(size);
    for (std::int32_t& id : ids) id = uniform(random_);
    return ids;
  }

  std::unique_ptr<Device> device_, truth_;
  std::mt19937 random_{20240607};
};

// |got - want| <= relative |want| + absolute, elementwise; `absolute` one value or one per element.
inline void ExpectClose(const char* what, const Values& got, const Values& want, double relative,
                        const Values& absolute) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed =
        relative * std::abs(want[i]) + absolute[absolute.size() == 1 ? 0 : i] + 1e-38;
    const double ratio = std::abs(got[i] - want[i]) / allowed;
    if (!(ratio <= worst)) {
      worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
      worst_at = i;
    }
  }
  if (got.empty()) return;
  EXPECT_LE(worst, 1.0) << what << "[" << worst_at << "] is " << got[worst_at] << ", truth "
                        << want[worst_at];
}

inline double MaxAbs(const Values& x) {
  double best = 0;
  for (const double value : x) best = std::max(best, std::abs(value));
  return best;
}

#define FSDP_ASSERT_OK(expression)                 \
  do {                                             \
    const absl::Status fsdp_status = (expression); \
    ASSERT_TRUE(fsdp_status.ok()) << fsdp_status;  \
  } while (false)
#define FSDP_EXPECT_OK(expression)                 \
  do {                                             \
    const absl::Status fsdp_status = (expression); \
    EXPECT_TRUE(fsdp_status.ok()) << fsdp_status;  \
  } while (false)

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_DEVICE_OPS_FIXTURE_H_
