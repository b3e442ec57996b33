#ifndef FSDPCTL_TESTS_BENCH_LOAD_COORDINATOR_PROCESS_H_
#define FSDPCTL_TESTS_BENCH_LOAD_COORDINATOR_PROCESS_H_

// A real fsdp-coordinator as a child, whose processor time and memory are its own and not the load
// generator's.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fsdp::bench {

// What /proc says of a process at one moment.
struct Usage {
  // Since `ResourceLog` began.
  double seconds = 0;
  double cpu_seconds = 0;
  double resident_bytes = 0;
};

class CoordinatorProcess {
 public:
  // Starts `executable` on loopback with an empty state directory of its own and waits until it
  // serves.
  static absl::StatusOr<std::unique_ptr<CoordinatorProcess>> Start(const std::string& executable);
  // SIGTERM, and its state directory goes.
  ~CoordinatorProcess();
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] Usage Read() const;

 private:
  CoordinatorProcess(pid_t pid, std::string directory);

  const pid_t pid_;
  const std::string directory_;
  std::string address_;
};

// Samples of a phase, one a second.
class ResourceLog {
 public:
  explicit ResourceLog(const CoordinatorProcess& process);
  void Sample();
  // Processor time divided by wall time, from the first sample to the last.
  [[nodiscard]] double cores() const;
  [[nodiscard]] double max_resident_mib() const;
  // Mean of the first and of the last quarter of the samples.
  [[nodiscard]] double first_resident_mib() const;
  [[nodiscard]] double last_resident_mib() const;

 private:
  [[nodiscard]] double MeanMib(std::size_t begin, std::size_t end) const;

  const CoordinatorProcess& process_;
  double start_ = 0;
  std::vector<Usage> samples_;
};

// Seconds of the monotonic clock.
double Seconds();

}  // namespace fsdp::bench

#endif  // FSDPCTL_TESTS_BENCH_LOAD_COORDINATOR_PROCESS_H_
