// counters-probe: what hardware counters cost and whether they are right, on one GPU.

#include <cuda_profiler_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "proto/support/clock.h"
#include "proto/support/status.h"
#include "tests/gpu/counters_workload.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/profile/counters/counter_profile.h"
#include "worker/profile/counters/counter_windows.h"
#include "worker/profile/counters/cupti_counters.h"
#include "worker/train/tool_flags.h"

namespace fsdp::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kUsage[] =
    R"(Usage: counters-probe [--steps N] [--interval-us N] [--seconds N]
       counters-probe --hold SECONDS | --once

Runs steps of known kernels in CUDA graphs: N (200) without counters, N within windows back to back,
N without again, and for --seconds (15) as by default, which takes one window. Prints a report.
--hold takes the counters and keeps them, for a second probe to find them busy. --once runs each
kernel once, without counters, for ncu.

Exit codes: 0 measured, and every verdict is right; 1 a verdict is wrong or something failed; 2
usage; 3 the counters are denied, busy or unavailable, and the report says which.
)";

struct Options {
  std::int64_t steps = 200;
  std::int64_t interval_us = 25;
  std::int64_t default_seconds = 15;
  std::int64_t hold_seconds = 0;
  bool once = false;
};

struct Times {
  std::vector<double> seconds;
  [[nodiscard]] double Mean() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
           static_cast<double>(std::max<std::size_t>(1, seconds.size()));
  }
  [[nodiscard]] double Median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
};

class Probe {
 public:
  Probe(Device& device, const Options& options)
      : device_(device), options_(options), workload_(device) {}

  absl::StatusOr<int> Run() {
    for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(TimeStep(nullptr).status());  // plans, graphs
    ASSIGN_OR_RETURN(const std::uint32_t stream, CuptiStreamId(CudaStreamOf(device_.compute())));
    profile_.SetOrder({{stream, workload_.order()}});
    ASSIGN_OR_RETURN(const Times before, TimeBare());
    ASSIGN_OR_RETURN(const bool sampled, RunBackToBack());
    if (!sampled) return 3;
    ASSIGN_OR_RETURN(const Times after, TimeBare());
    std::printf("\nstep time, ms          median     mean   steps\n");
    PrintTimes("without counters", before);
    PrintTimes("in windows", inside_);
    PrintTimes("between windows", outside_);
    PrintTimes("without counters again", after);
    std::printf("first step after       %7.3f\n", after.seconds.front() * 1e3);
    const double base = (before.Mean() + after.Mean()) / 2;
    std::printf("in the window %+.2f %%, between windows %+.2f %% of the mean without\n",
                100 * (inside_.Mean() / base - 1), 100 * (outside_.Mean() / base - 1));
    RETURN_IF_ERROR(RunDefault(base));
    return PrintTruth() ? 0 : 1;
  }

 private:
  static void PrintTimes(const char* name, const Times& times) {
    std::printf("%-22s %7.3f  %7.3f  %6zu\n", name, times.Median() * 1e3, times.Mean() * 1e3,
                times.seconds.size());
  }

  // Seconds of one step from an idle device to an idle device.
  absl::StatusOr<double> TimeStep(CounterWindows* windows) {
    const SteadyClock::time_point begin = SteadyClock::now();
    RETURN_IF_ERROR(workload_.Step());
    RETURN_IF_ERROR(device_.Synchronize(device_.compute()));
    if (windows != nullptr) windows->OnStep();
    return std::chrono::duration<double>(SteadyClock::now() - begin).count();
  }

  absl::StatusOr<Times> TimeBare() {
    Times times;
    for (std::int64_t i = 0; i < options_.steps; ++i) {
      ASSIGN_OR_RETURN(const double seconds, TimeStep(nullptr));
      times.seconds.push_back(seconds);
    }
    return times;
  }

  std::unique_ptr<CounterWindows> MakeWindows(const CounterWindowOptions& options) {
    CuptiCountersOptions driver;
    driver.interval = std::chrono::microseconds(options_.interval_us);
    auto windows = std::make_unique<CounterWindows>(
        options, CreateCuptiCounters(driver),
        [this](const CounterReading& reading) {
          std::printf("%s%.0f", clocks_++ == 0 ? "SM clock of each window, MHz: " : " ",
                      reading.sm_clock_hertz * 1e-6);
          return profile_.Read(reading);
        },
        Clock::Real());
    windows->StartThread();
    return windows;
  }

  static void PrintHealth(const char* name, const v1::ProfilerHealth& health) {
    std::printf("\n%s: state %s %s, %lld windows, %lld samples credited", name,
                health.state().c_str(), health.message().c_str(),
                static_cast<long long>(health.windows()), static_cast<long long>(health.samples()));
    for (const auto& [reason, count] : health.dropped()) {
      std::printf(", dropped %s %lld", reason.c_str(), static_cast<long long>(count));
    }
    for (const auto& [kind, seconds] : health.overhead_seconds()) {
      std::printf(", host %s %.3f s", kind.c_str(), seconds);
    }
    std::printf("\n");
  }

  // False: the counters could not be had.
  absl::StatusOr<bool> RunBackToBack() {
    CounterWindowOptions options;
    options.period = absl::ZeroDuration();
    const std::unique_ptr<CounterWindows> windows = MakeWindows(options);
    while (static_cast<std::int64_t>(inside_.seconds.size()) < options_.steps) {
      const std::string before = windows->Health().state();
      ASSIGN_OR_RETURN(const double seconds, TimeStep(windows.get()));
      const std::string after = windows->Health().state();
      const bool in_window = before == "sampling" && after == "sampling";
      (in_window ? inside_ : outside_).seconds.push_back(seconds);
      if (after == "busy" || after == "denied" || after == "unavailable") {
        PrintHealth("back to back", windows->Health());
        return false;
      }
    }
    PrintHealth("back to back", windows->Health());
    return true;
  }

  // One window a minute: what it takes of this minute.
  absl::Status RunDefault(double base_seconds) {
    clocks_ = 0;
    const std::unique_ptr<CounterWindows> windows = MakeWindows({});
    double extra_seconds = 0;
    const SteadyClock::time_point begin = SteadyClock::now();
    while (SteadyClock::now() - begin < std::chrono::seconds(options_.default_seconds)) {
      ASSIGN_OR_RETURN(const double seconds, TimeStep(windows.get()));
      extra_seconds += seconds - base_seconds;
    }
    PrintHealth("by default", windows->Health());
    std::printf("one default window: %+.1f ms in all, %+.3f %% of its minute\n",
                extra_seconds * 1e3, 100 * extra_seconds / 60);
    return absl::OkStatus();
  }

  static bool IsRight(KnownBound bound, const FamilyCounters& family) {
    switch (bound) {
      case KnownBound::kMemory:
        return family.sm < 0.25 && family.hbm > 0.75;
      case KnownBound::kNearMemory:
        return family.sm >= 0.25 && family.hbm > 0.75 && family.sm < family.hbm;
      case KnownBound::kCompute:
        return family.sm > 0.75 && family.hbm < 0.50;
      case KnownBound::kLatency:
        return family.sm < 0.25 && family.hbm < 0.25;
      case KnownBound::kAny:
        return true;
    }
    return false;
  }

  bool PrintTruth() {
    const FamilyCounterTable table = profile_.Table();
    bool all_right = true;
    std::printf("\n%-20s %6s %6s %6s %8s  %-8s %s\n", "kernel", "SM %", "HBM %", "tensor",
                "samples", "credited", "verdict");
    for (const WorkloadPart& part : workload_.parts()) {
      const FamilyCounters& family = table[static_cast<std::size_t>(part.family)];
      const bool measured = family.source == v1::METRIC_SOURCE_PM_SAMPLING;
      const bool right = measured && IsRight(part.bound, family);
      all_right = all_right && right;
      std::printf("%-20s %6.1f %6.1f %6.1f %8lld  %-8s %s\n", part.name.c_str(), 100 * family.sm,
                  100 * family.hbm, 100 * family.tensor, static_cast<long long>(family.num_samples),
                  !measured ? "analytic" : (family.solved ? "solved" : "directly"),
                  right ? "right" : "WRONG");
    }
    return all_right;
  }

  Device& device_;
  const Options options_;
  CountersWorkload workload_;
  CounterProfile profile_{Clock::Real()};
  Times inside_;
  Times outside_;
  int clocks_ = 0;  // of the windows' thread
};

// Each kernel once, for a tool that was told to wait for the profiler's range.
absl::StatusOr<int> RunForTool(Device& device, CountersWorkload& workload) {
  FSDP_RETURN_IF_CUDA_ERROR(cudaProfilerStart());
  RETURN_IF_ERROR(workload.Once());
  RETURN_IF_ERROR(device.Synchronize(device.compute()));
  FSDP_RETURN_IF_CUDA_ERROR(cudaProfilerStop());
  return 0;
}

absl::StatusOr<int> Hold(std::int64_t seconds) {
  const std::unique_ptr<CounterDriver> driver = CreateCuptiCounters({});
  const absl::Status status = driver->Begin(CounterDriver::Pace::kShort);
  std::printf("hold: %s\n", status.ok() ? "sampling" : std::string(status.message()).c_str());
  std::fflush(stdout);
  if (!status.ok()) return 3;
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  return 0;
}

absl::StatusOr<Options> Parse(const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(
      const ToolFlags flags,
      ToolFlags::Parse(arguments, {"steps", "interval-us", "seconds", "hold"}, {"once"}));
  Options options;
  ASSIGN_OR_RETURN(options.steps, flags.Integer("steps", 200, 1, 1000000));
  ASSIGN_OR_RETURN(options.interval_us, flags.Integer("interval-us", 25, 5, 10000));
  ASSIGN_OR_RETURN(options.default_seconds, flags.Integer("seconds", 15, 1, 55));
  ASSIGN_OR_RETURN(options.hold_seconds, flags.Integer("hold", 0, 0, 600));
  options.once = flags.Has("once");
  return options;
}

absl::StatusOr<int> RunProbe(const Options& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateCudaDevice({}));
  if (options.hold_seconds > 0) {
    // A tool that traces this process has the counters by now.
    CountersWorkload workload(*device);
    RETURN_IF_ERROR(RunForTool(*device, workload).status());
    return Hold(options.hold_seconds);
  }
  if (options.once) {
    CountersWorkload workload(*device);
    return RunForTool(*device, workload);
  }
  return Probe(*device, options).Run();
}

int Main(const std::vector<std::string>& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const absl::StatusOr<Options> options = Parse(arguments);
  if (!options.ok()) {
    std::fprintf(stderr, "counters-probe: %s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  const absl::StatusOr<int> code = RunProbe(*options);
  if (code.ok()) return *code;
  std::fprintf(stderr, "counters-probe: %s\n", std::string(code.status().message()).c_str());
  return 1;
}

}  // namespace
}  // namespace fsdp::bench

int main(int argc, char** argv) { return fsdp::bench::Main({argv + 1, argv + argc}); }
