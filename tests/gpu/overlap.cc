#include "tests/gpu/overlap.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr int kWorldSize = 2;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Ms(double seconds) { return std::round(seconds * 1e6) / 1e3; }
double Percent(double ratio) { return std::round(ratio * 1e4) / 1e2; }

// One engine's run and what it asked of the link.
struct LinkRun {
  BenchReport report;
  std::vector<LinkCommunicator::Record> gathers;
  std::vector<LinkCommunicator::Record> scatters;  // without the sums of the step
};

class Overlap {
 public:
  Overlap(const OverlapOptions& options, const LocalBackend& backend, Device& device,
          const MakeOccupancy& make_occupancy)
      : options_(options), backend_(backend), device_(device), make_occupancy_(make_occupancy) {}

  absl::StatusOr<OverlapReport> Run() {
    OverlapReport report;
    std::vector<double> base;
    std::vector<double> linked;
    std::vector<double> unprefetched;
    const double rate = options_.link_bytes_per_second;
    for (int round = 0; round < options_.rounds; ++round) {
      ASSIGN_OR_RETURN(const LinkRun free, RunOnce(0, /*prefetch=*/1, base));
      // All variants keep to the policy that the plan has chosen.
      options_.bench.recompute = free.report.options.recompute;
      report.last_loss = free.report.losses.back();
      if (rate <= 0) continue;
      ASSIGN_OR_RETURN(const LinkRun run, RunOnce(rate, /*prefetch=*/1, linked));
      Describe(run, report);
      RETURN_IF_ERROR(RunOnce(rate, /*prefetch=*/0, unprefetched).status());
    }
    report.options = options_;
    report.num_steps = static_cast<std::int64_t>(base.size());
    report.base_seconds = Median(base);
    if (rate <= 0) return report;
    report.linked_seconds = Median(linked);
    report.unprefetched_seconds = Median(unprefetched);
    return report;
  }

 private:
  absl::StatusOr<LinkRun> RunOnce(double rate, int prefetch, std::vector<double>& step_seconds) {
    ASSIGN_OR_RETURN(const auto gather_occupancy, make_occupancy_());
    ASSIGN_OR_RETURN(const auto scatter_occupancy, make_occupancy_());
    LinkCommunicator gather(device_, *gather_occupancy, kWorldSize, rate);
    LinkCommunicator scatter(device_, *scatter_occupancy, kWorldSize, rate);
    BenchOptions bench = options_.bench;
    bench.world_size = kWorldSize;
    bench.num_communicators = 2;
    bench.prefetch = prefetch;
    bench.synchronous = false;
    LocalRank rank{0, device_, &gather, &scatter};
    LinkRun run;
    ASSIGN_OR_RETURN(run.report, RunBenchRank(bench, backend_, rank));
    run.gathers = gather.records();
    for (const LinkCommunicator::Record& record : scatter.records()) {
      if (record.kind == LinkCommunicator::Kind::kScatter) run.scatters.push_back(record);
    }
    if (run.gathers.empty() || run.scatters.size() < 2) {
      return absl::InternalError("the engine asked for no gather or fewer than two scatters");
    }
    for (const double loss : run.report.losses) {
      if (!std::isfinite(loss)) return absl::InternalError(absl::StrCat("the loss is ", loss));
    }
    step_seconds.insert(step_seconds.end(), run.report.step_seconds.begin(),
                        run.report.step_seconds.end());
    return run;
  }

  void Describe(const LinkRun& run, OverlapReport& report) const {
    const auto steps = static_cast<double>(options_.bench.warmup + options_.bench.steps);
    const auto sum = [&](const std::vector<LinkCommunicator::Record>& records) {
      double seconds = 0;
      for (const LinkCommunicator::Record& record : records) seconds += record.seconds;
      return seconds / steps;
    };
    report.gathers_seconds = sum(run.gathers);
    report.scatters_seconds = sum(run.scatters);
    report.first_gather_seconds = run.gathers.front().seconds;
    report.last_scatters_seconds =
        run.scatters.back().seconds + run.scatters[run.scatters.size() - 2].seconds;
    report.waited_gather_seconds = run.report.phases.exposed_gather_seconds();
    report.waited_scatter_seconds = run.report.phases.exposed_scatter_seconds();
  }

  OverlapOptions options_;
  const LocalBackend& backend_;
  Device& device_;
  const MakeOccupancy& make_occupancy_;
};

}  // namespace

absl::Status OverlapReport::Verdict() const {
  if (options.link_bytes_per_second <= 0) return absl::OkStatus();
  const double growth = Growth(linked_seconds);
  // Not-a-number is beyond every limit.
  if (!(growth <= options.max_growth)) {
    return absl::OutOfRangeError(absl::StrFormat(
        "the step grows by %.2f %% beyond the first gather and the last two scatters, more than "
        "%.2f %%",
        growth * 100, options.max_growth * 100));
  }
  const double gain = (unprefetched_seconds - linked_seconds) / base_seconds;
  if (!(gain >= options.min_prefetch_gain)) {
    return absl::OutOfRangeError(absl::StrFormat(
        "without prefetch the step loses %.2f %%, less than %.2f %%: prefetch does not work, or "
        "the link is too fast to show it",
        gain * 100, options.min_prefetch_gain * 100));
  }
  return absl::OkStatus();
}

std::string OverlapReport::ToJson() const {
  nlohmann::ordered_json json;
  json["model"] = options.bench.model.name;
  json["layers"] = options.bench.model.num_layers;
  json["batch"] = options.bench.batch;
  json["seq"] = options.bench.sequence_length;
  json["steps"] = num_steps;
  json["link_GBps"] = options.link_bytes_per_second / 1e9;
  json["base_ms"] = Ms(base_seconds);
  if (options.link_bytes_per_second > 0) {
    json["linked_ms"] = Ms(linked_seconds);
    json["no_prefetch_ms"] = Ms(unprefetched_seconds);
    json["first_gather_ms"] = Ms(first_gather_seconds);
    json["last_scatters_ms"] = Ms(last_scatters_seconds);
    json["growth_percent"] = Percent(Growth(linked_seconds));
    json["no_prefetch_growth_percent"] = Percent(Growth(unprefetched_seconds));
    json["gathers_ms"] = Ms(gathers_seconds);
    json["scatters_ms"] = Ms(scatters_seconds);
    json["waited_gather_ms"] = Ms(waited_gather_seconds);
    json["waited_scatter_ms"] = Ms(waited_scatter_seconds);
  }
  json["last_loss"] = std::round(last_loss * 1e4) / 1e4;
  json["ok"] = Verdict().ok();
  return json.dump();
}

absl::StatusOr<OverlapReport> MeasureOverlap(const OverlapOptions& options,
                                             const LocalBackend& backend, Device& device,
                                             const MakeOccupancy& make_occupancy) {
  return Overlap(options, backend, device, make_occupancy).Run();
}

}  // namespace fsdp
