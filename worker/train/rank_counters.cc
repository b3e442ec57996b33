#include "worker/train/rank_counters.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/support/clock.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

// Every graph of a step is captured by its second use; those that alternate between two steps by
// the fourth.
constexpr std::int64_t kOrderStep = 5;
constexpr std::size_t kMaxStepTimes = 4096;

void AddTime(double seconds, std::deque<double>* times) {
  if (times->size() == kMaxStepTimes) times->pop_front();
  times->push_back(seconds);
}

double MedianOf(const std::deque<double>& times) {
  std::vector<double> sorted(times.begin(), times.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2),
                   sorted.end());
  return sorted[sorted.size() / 2];
}

bool IsEnabled(const v1::ProfileSpec& spec) { return !spec.has_enabled() || spec.enabled(); }

CounterWindowOptions OptionsOf(const v1::ProfileSpec& spec) {
  CounterWindowOptions options;
  options.only_held = !IsEnabled(spec);
  if (spec.has_every_seconds()) options.period = absl::Seconds(spec.every_seconds());
  // A test's setting, to measure what windows cost.
  if (std::getenv("FSDP_COUNTER_WINDOWS_BACK_TO_BACK") != nullptr) {
    options.period = absl::ZeroDuration();
  }
  return options;
}

}  // namespace

RankCounters::RankCounters(CounterSource source, const v1::ProfileSpec& spec, Engine& engine,
                           Device& device)
    : engine_(engine),
      device_(device),
      has_driver_(source.driver != nullptr),
      enabled_(has_driver_ && IsEnabled(spec)),
      stream_id_(std::move(source.stream_id)),
      profile_(Clock::Real()),
      windows_(
          OptionsOf(spec), std::move(source.driver),
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
  if (!started_) return;
  const MonotonicTime now = Clock::Real().Now();
  const bool sampling = windows_.is_sampling();
  if (num_steps_ > kOrderStep && sampling == was_sampling_) {
    AddTime(absl::ToDoubleSeconds(now - last_end_), sampling ? &within_ : &between_);
  }
  last_end_ = now;
  was_sampling_ = sampling;
  windows_.OnStep();
}

std::string RankCounters::DescribeCost() const {
  if (within_.empty() || between_.empty()) return "";
  const double within = MedianOf(within_);
  const double between = MedianOf(between_);
  const v1::ProfilerHealth health = windows_.Health();
  std::string text = absl::StrFormat(
      "counter windows: %d, %d samples; %d steps within, median %.3f ms; %d between, median %.3f "
      "ms",
      health.windows(), health.samples(), within_.size(), within * 1e3, between_.size(),
      between * 1e3);
  for (const auto& [reason, count] : health.dropped()) {
    absl::StrAppendFormat(&text, "; dropped %d (%s)", count, reason);
  }
  return text;
}

v1::ProfilerHealth RankCounters::Health() const {
  v1::ProfilerHealth health = windows_.Health();
  if (!has_driver_ || enabled_) return health;
  health.set_state(NameOf(CounterState::kAnalytic));
  health.set_message("profile.enabled is false: verdicts come from counted work");
  return health;
}

void RankCounters::Hold() {
  windows_.Hold();
  windows_.StartThread();
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
  const MeasuredTable table = MeasuredOf(profile_.Table());
  const std::lock_guard<std::mutex> lock(mutex_);
  table_ = table;
  return use;
}

MeasuredTable RankCounters::Table() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return table_;
}

}  // namespace fsdp
