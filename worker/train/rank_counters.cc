#include "worker/train/rank_counters.h"

#include <utility>
#include <vector>

#include "proto/support/clock.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

// Every graph of a step is captured by its second use; those that alternate between two steps by
// the fourth.
constexpr std::int64_t kOrderStep = 5;

CounterWindowOptions OptionsOf(const v1::ProfileSpec& spec) {
  CounterWindowOptions options;
  if (spec.has_every_seconds()) options.period = absl::Seconds(spec.every_seconds());
  return options;
}

}  // namespace

RankCounters::RankCounters(CounterSource source, const v1::ProfileSpec& spec, Engine& engine,
                           Device& device)
    : engine_(engine),
      device_(device),
      enabled_(source.driver != nullptr && spec.has_enabled() && spec.enabled()),
      stream_id_(std::move(source.stream_id)),
      profile_(Clock::Real()),
      windows_(
          OptionsOf(spec), enabled_ ? std::move(source.driver) : nullptr,
          [this](const CounterReading& reading) { return Read(reading); }, Clock::Real()) {}

void RankCounters::BeginStep() {
  if (enabled_ && ++num_steps_ == kOrderStep) engine_.KeepLaunchOrder();
}

void RankCounters::EndStep() {
  if (!enabled_) return;
  if (num_steps_ == kOrderStep) {
    const absl::Status status = StartWindows();
    if (!status.ok()) LOG_WARNING("no hardware counters: %s", std::string(status.message()));
    started_ = status.ok();
  }
  if (started_) windows_.OnStep();
}

absl::Status RankCounters::StartWindows() {
  std::vector<ExpectedRun> step = engine_.TakeLaunchOrder();
  std::vector<StreamOrder> order;
  ASSIGN_OR_RETURN(const std::uint32_t compute, stream_id_(device_.compute()));
  order.push_back({compute, std::move(step)});
  ASSIGN_OR_RETURN(const std::uint32_t gather, stream_id_(device_.gather()));
  order.push_back({gather, {{false, {{KernelFamily::kGather}}}}});
  ASSIGN_OR_RETURN(const std::uint32_t scatter, stream_id_(device_.scatter()));
  order.push_back({scatter, {{false, {{KernelFamily::kScatter}}}}});
  profile_.SetOrder(std::move(order));
  windows_.StartThread();
  return absl::OkStatus();
}

CounterWindows::Use RankCounters::Read(const CounterReading& reading) {
  const CounterWindows::Use use = profile_.Read(reading);
  const FamilyCounterTable solved = profile_.Table();
  MeasuredTable table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (solved[i].source != v1::METRIC_SOURCE_PM_SAMPLING) continue;
    table[i] = {solved[i].num_samples, solved[i].sm, solved[i].hbm, solved[i].tensor};
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  table_ = table;
  return use;
}

MeasuredTable RankCounters::Table() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return table_;
}

}  // namespace fsdp
