#include "tests/gpu/bench_support.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace fsdp::bench {

void Must(const absl::Status& status, const std::string& what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), status.ToString().c_str());
  std::exit(1);
}

Arena::Arena(Device& device) : device_(device) {
  constexpr std::int64_t kSourceSize = std::int64_t{1} << 20;
  std::vector<float> values(kSourceSize);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : values) value = uniform(random_);
  source_ = {Allocate(kSourceSize * sizeof(float)), DType::kF32, kSourceSize};
  Must(device_.Copy(source_.data, values.data(), kSourceSize * sizeof(float), device_.compute()),
       "copy");
  Must(device_.Synchronize(device_.compute()), "copy");
}

void* Arena::Allocate(std::size_t size_bytes) {
  auto buffer = device_.Allocate(size_bytes);
  Must(buffer.status(), "allocate");
  buffers_.push_back(std::move(*buffer));
  return buffers_.back()->data();
}

// Repeats the source; each tensor starts elsewhere in it.
void Arena::Fill(void* to, DType dtype, std::int64_t size) {
  std::int64_t from = static_cast<std::int64_t>(random_() % source_.size) / 256 * 256;
  for (std::int64_t done = 0; done < size;) {
    const std::int64_t count = std::min(size - done, source_.size - from);
    const Vector source{static_cast<float*>(source_.data) + from, DType::kF32, count};
    const Vector target{static_cast<std::byte*>(to) + done * SizeOf(dtype), dtype, count};
    Must(device_.ops().Cast(device_.compute(), source, target), "fill");
    done += count;
    from = 0;
  }
}

Matrix Arena::Random(DType dtype, std::int64_t rows, std::int64_t cols) {
  const Matrix matrix = Matrix::Packed(Allocate(rows * cols * SizeOf(dtype)), dtype, rows, cols);
  Fill(matrix.data, dtype, rows * cols);
  return matrix;
}

Vector Arena::RandomVector(DType dtype, std::int64_t size) {
  const Matrix matrix = Random(dtype, 1, size);
  return {matrix.data, dtype, size};
}

std::span<std::int32_t> Arena::Ids(std::int64_t size, std::int32_t limit) {
  std::vector<std::int32_t> ids(size);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random_() % limit);
  auto* data = static_cast<std::int32_t*>(Allocate(size * sizeof(std::int32_t)));
  Must(device_.Copy(data, ids.data(), size * sizeof(std::int32_t), device_.compute()), "copy");
  Must(device_.Synchronize(device_.compute()), "copy");
  return {data, static_cast<std::size_t>(size)};
}

std::span<std::byte> Arena::Bytes(std::size_t size_bytes) {
  return {static_cast<std::byte*>(Allocate(size_bytes)), size_bytes};
}

int NumSets(std::int64_t bytes_per_set) {
  constexpr std::int64_t kFourTimesL2 = std::int64_t{4} * 60 << 20;
  return static_cast<int>(std::max<std::int64_t>(2, kFourTimesL2 / bytes_per_set + 1));
}

double MedianSeconds(Device& device, int num_sets, const std::function<absl::Status(int)>& run,
                     int rounds) {
  auto begin = device.CreateEvent();
  auto end = device.CreateEvent();
  Must(begin.status(), "event");
  Must(end.status(), "event");
  std::vector<double> seconds;
  for (int round = -3; round < rounds; ++round) {
    Must(device.Record(**begin, device.compute()), "record");
    for (int set = 0; set < num_sets; ++set) Must(run(set), "run");
    Must(device.Record(**end, device.compute()), "record");
    Must(device.Synchronize(device.compute()), "synchronize");
    auto elapsed = device.ElapsedSeconds(**begin, **end);
    Must(elapsed.status(), "elapsed");
    if (round >= 0) seconds.push_back(*elapsed / num_sets);
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

double CopySeconds(Device& device, std::int64_t bytes) {
  Arena arena(device);
  const int num_sets = NumSets(bytes);
  std::vector<std::span<std::byte>> from;
  std::vector<std::span<std::byte>> to;
  for (int set = 0; set < num_sets; ++set) {
    from.push_back(arena.Bytes(bytes / 2));
    to.push_back(arena.Bytes(bytes / 2));
  }
  return MedianSeconds(device, num_sets, [&](int set) {
    return device.Copy(to[set].data(), from[set].data(), bytes / 2, device.compute());
  });
}

}  // namespace fsdp::bench
