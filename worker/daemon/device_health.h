#ifndef FSDPCTL_WORKER_DAEMON_DEVICE_HEALTH_H_
#define FSDPCTL_WORKER_DAEMON_DEVICE_HEALTH_H_

// A device's health as the driver tells it: what is read in one look, and the totals over many.
//
// Pure. Thread rule: one thread at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "proto/support/clock.h"
#include "worker/daemon/daemon_link.pb.h"

namespace fsdp::daemon {

// One look; absent: the driver does not tell.
struct DeviceReading {
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> sm_clock_hertz;
  // Bits of nvmlDeviceGetCurrentClocksEventReasons.
  std::optional<std::uint64_t> throttle_reasons;
  // Key: "corrected", "uncorrected"; since the driver was loaded.
  std::map<std::string, std::int64_t> ecc_errors;
  // Key: as DeviceHealth.link_bytes; since some moment in the past, and may start over.
  std::map<std::string, std::uint64_t> link_bytes;
};

class HealthMeter {
 public:
  // The time since the last look counts for the reasons that are seen in this one, but not more
  // than five seconds: a driver that let its caller wait has told nothing about meanwhile.
  void Update(const DeviceReading& reading, MonotonicTime now);
  // A driver that could not be asked: what is shown are totals, and nothing of the moment.
  void Miss(MonotonicTime now);

  [[nodiscard]] const DeviceHealth& health() const { return health_; }

 private:
  void AddThrottling(std::uint64_t reasons, double seconds);
  void AddLinkBytes(const std::map<std::string, std::uint64_t>& totals);

  DeviceHealth health_;
  std::optional<MonotonicTime> last_look_;
  std::map<std::string, std::uint64_t> last_link_bytes_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_DEVICE_HEALTH_H_
