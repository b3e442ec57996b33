#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_METRICS_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_METRICS_H_

// A set of metrics as CUPTI's host library plans and evaluates it. Needs no GPU.
//
// Thread rule: one thread at a time.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/profile/counters/cupti_library.h"

namespace fsdp {

class CuptiMetrics {
 public:
  // Plans `names` for PM sampling on `chip`. `availability` is what the device says it has; empty:
  // all that the chip has.
  //   FAILED_PRECONDITION  unknown chip or metric
  //   others               as CuptiLibrary::ToStatus
  static absl::StatusOr<std::unique_ptr<CuptiMetrics>> Create(
      const CuptiLibrary& cupti, std::string chip, std::vector<std::uint8_t> availability,
      std::vector<const char*> names);
  ~CuptiMetrics();
  CuptiMetrics(const CuptiMetrics&) = delete;
  CuptiMetrics& operator=(const CuptiMetrics&) = delete;

  [[nodiscard]] const std::vector<const char*>& names() const { return names_; }
  // PM sampling takes one only.
  [[nodiscard]] std::size_t num_passes() const { return num_passes_; }
  // What the device is programmed with. CUPTI keeps a pointer to it, so this object outlives the
  // sampling.
  [[nodiscard]] std::span<const std::uint8_t> config() const { return config_; }

  // The metrics of sample `index` of `counter_data`; `values` has as many places as names().
  absl::Status Evaluate(std::span<const std::uint8_t> counter_data, std::size_t index,
                        std::span<double> values);

 private:
  CuptiMetrics(const CuptiLibrary& cupti, std::string chip, std::vector<std::uint8_t> availability,
               std::vector<const char*> names)
      : cupti_(cupti),
        chip_(std::move(chip)),
        availability_(std::move(availability)),
        names_(std::move(names)) {}
  absl::Status Plan();

  const CuptiLibrary& cupti_;
  const std::string chip_;
  const std::vector<std::uint8_t> availability_;
  std::vector<const char*> names_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  std::vector<std::uint8_t> config_;
  std::size_t num_passes_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_CUPTI_METRICS_H_
