// Built where the toolkit has no CUPTI.

#include "worker/profile/counters/cupti_counters.h"

namespace fsdp {
namespace {

absl::Status Absent() {
  return absl::FailedPreconditionError(
      "this trainer was built without CUPTI's headers, so it has no hardware counters");
}

class NoCounters final : public CounterDriver {
 public:
  absl::Status Begin(Pace /*pace*/) override { return Absent(); }
  absl::StatusOr<CounterReading> End() override { return Absent(); }
};

}  // namespace

std::unique_ptr<CounterDriver> CreateCuptiCounters(const CuptiCountersOptions& options) {
  static_cast<void>(options);
  return std::make_unique<NoCounters>();
}

absl::StatusOr<std::uint32_t> CuptiStreamId(void* cuda_stream) {
  static_cast<void>(cuda_stream);
  return Absent();
}

}  // namespace fsdp
