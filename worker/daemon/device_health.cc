#include "worker/daemon/device_health.h"

#include <algorithm>
#include <array>

#include "absl/time/time.h"

namespace fsdp::daemon {
namespace {

constexpr absl::Duration kLongestGap = absl::Seconds(5);

// NVML's bits.
constexpr std::uint64_t kGpuIdle = 0x1;
constexpr std::uint64_t kSoftwarePowerCap = 0x4;
constexpr std::uint64_t kHardwareSlowdown = 0x8;
constexpr std::uint64_t kSoftwareThermal = 0x20;
constexpr std::uint64_t kHardwareThermal = 0x40;
constexpr std::uint64_t kHardwarePowerBrake = 0x80;
constexpr std::uint64_t kPower = kSoftwarePowerCap | kHardwarePowerBrake;
constexpr std::uint64_t kThermal = kSoftwareThermal | kHardwareThermal;

bool IsPower(std::uint64_t reasons) { return (reasons & kPower) != 0; }
bool IsThermal(std::uint64_t reasons) { return (reasons & kThermal) != 0; }
// The driver sets this beside the hardware's thermal and power bits; alone it is something else.
bool IsHardware(std::uint64_t reasons) {
  return (reasons & kHardwareSlowdown) != 0 &&
         (reasons & (kHardwareThermal | kHardwarePowerBrake)) == 0;
}
// Application clocks, synchronised boost, the display, and what a later driver may add.
bool IsOther(std::uint64_t reasons) {
  return (reasons & ~(kGpuIdle | kHardwareSlowdown | kPower | kThermal)) != 0;
}

struct Reason {
  const char* label;
  bool (*holds)(std::uint64_t reasons);
};
constexpr std::array<Reason, 4> kReasons = {
    {{"power", IsPower}, {"thermal", IsThermal}, {"hardware", IsHardware}, {"other", IsOther}}};

}  // namespace

void HealthMeter::Update(const DeviceReading& reading, MonotonicTime now) {
  const double seconds =
      last_look_ ? absl::ToDoubleSeconds(std::min(now - *last_look_, kLongestGap)) : 0;
  Miss(now);
  if (reading.power_watts) health_.set_power_watts(*reading.power_watts);
  if (reading.temperature_celsius) health_.set_temperature_celsius(*reading.temperature_celsius);
  if (reading.sm_clock_hertz) health_.set_sm_clock_hertz(*reading.sm_clock_hertz);
  if (reading.throttle_reasons) AddThrottling(*reading.throttle_reasons, seconds);
  for (const auto& [kind, count] : reading.ecc_errors) {
    (*health_.mutable_ecc_errors())[kind] = count;
  }
  AddLinkBytes(reading.link_bytes);
}

void HealthMeter::Miss(MonotonicTime now) {
  last_look_ = now;
  health_.clear_power_watts();
  health_.clear_temperature_celsius();
  health_.clear_sm_clock_hertz();
}

void HealthMeter::AddThrottling(std::uint64_t reasons, double seconds) {
  for (const Reason& reason : kReasons) {
    // Each starts at 0, so that its first rise is seen.
    double& total = (*health_.mutable_throttled_seconds())[reason.label];
    if (reason.holds(reasons)) total += seconds;
  }
}

void HealthMeter::AddLinkBytes(const std::map<std::string, std::uint64_t>& totals) {
  for (const auto& [kind, total] : totals) {
    double& sum = (*health_.mutable_link_bytes())[kind];
    const auto last = last_link_bytes_.find(kind);
    // A counter that fell has started over or wrapped: nobody knows how much was lost.
    if (last != last_link_bytes_.end() && total > last->second) {
      sum += static_cast<double>(total - last->second);
    }
    last_link_bytes_[kind] = total;
  }
}

}  // namespace fsdp::daemon
