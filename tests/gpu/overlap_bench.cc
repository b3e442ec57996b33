// overlap-bench: how much of its collectives a training step hides, on one GPU (overlap.h).

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "proto/support/status.h"
#include "tests/gpu/overlap.h"
#include "tests/gpu/spin.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/train/tool_flags.h"

namespace fsdp {
namespace {

constexpr char kUsage[] =
    R"(Usage: overlap-bench --model NAME [--link-GBps N] [--rounds R] [FLAGS OF fsdp-trainer bench]

Times the step of rank 0 of 2 on this GPU alone: with collectives that only copy, with collectives
that hold their stream for (bytes of the unit) / N GB/s (350; 0: only the former), and with those
and prefetch off. R rounds of all three (2), --steps and --warmup of each (20, 5). One JSON line.

Exit codes: 0 the step grows by at most 3 % beyond the first gather and the last two scatters, and
loses at least 2 % without prefetch; 1 it does not, or failed; 2 usage.
)";

class CudaOccupancy final : public LinkOccupancy {
 public:
  static absl::StatusOr<std::unique_ptr<LinkOccupancy>> Create(Device& device) {
    ASSIGN_OR_RETURN(auto stamp, device.Allocate(sizeof(std::uint64_t)));
    return std::make_unique<CudaOccupancy>(std::move(stamp));
  }
  explicit CudaOccupancy(std::unique_ptr<DeviceBuffer> stamp) : stamp_(std::move(stamp)) {}

  absl::Status Begin(Stream& stream) override {
    return CudaToStatus(LaunchStamp(CudaStreamOf(stream), at()), "stamp");
  }
  absl::Status End(Stream& stream, double seconds) override {
    const auto nanoseconds = static_cast<std::uint64_t>(std::llround(seconds * 1e9));
    return CudaToStatus(LaunchSpinUntil(CudaStreamOf(stream), at(), nanoseconds), "spin");
  }

 private:
  [[nodiscard]] std::uint64_t* at() const { return static_cast<std::uint64_t*>(stamp_->data()); }

  std::unique_ptr<DeviceBuffer> stamp_;
};

absl::StatusOr<OverlapReport> Measure(const OverlapOptions& options) {
  ASSIGN_OR_RETURN(const auto device, CreateCudaDevice({}));
  LocalBackend backend;
  backend.memory_bytes = [](Device&) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return std::int64_t{0};
    return static_cast<std::int64_t>(total_bytes);
  };
  return MeasureOverlap(options, backend, *device, [&] { return CudaOccupancy::Create(*device); });
}

// Takes this program's own flags out of `arguments`; the rest is the benchmark's.
absl::StatusOr<OverlapOptions> ParseOptions(const std::vector<std::string>& arguments) {
  std::vector<std::string> own;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool mine = arguments[i] == "--link-GBps" || arguments[i] == "--rounds";
    (mine ? own : rest).push_back(arguments[i]);
    if (mine && i + 1 < arguments.size()) own.push_back(arguments[++i]);
  }
  ASSIGN_OR_RETURN(const ToolFlags flags, ToolFlags::Parse(own, {"link-GBps", "rounds"}, {}));
  OverlapOptions options;
  ASSIGN_OR_RETURN(options.bench, ParseBenchOptions(rest, LocalBackend{}));
  ASSIGN_OR_RETURN(const std::int64_t rate, flags.Integer("link-GBps", 350, 0, 100000));
  ASSIGN_OR_RETURN(const std::int64_t rounds, flags.Integer("rounds", 2, 1, 100));
  options.link_bytes_per_second = static_cast<double>(rate) * 1e9;
  options.rounds = static_cast<int>(rounds);
  return options;
}

int Main(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument != "--help") continue;
    std::fputs(kUsage, stdout);
    return 0;
  }
  const absl::StatusOr<OverlapOptions> options = ParseOptions(arguments);
  if (!options.ok()) {
    std::fprintf(stderr, "overlap-bench: %s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  const absl::StatusOr<OverlapReport> report = Measure(*options);
  absl::Status status = report.status();
  if (report.ok()) {
    std::printf("%s\n", report->ToJson().c_str());
    status = report->Verdict();
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "overlap-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) { return fsdp::Main({argv + 1, argv + argc}); }
