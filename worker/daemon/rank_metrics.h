#ifndef FSDPCTL_WORKER_DAEMON_RANK_METRICS_H_
#define FSDPCTL_WORKER_DAEMON_RANK_METRICS_H_

// What a scrape shows of the ranks that this device ran: built from step reports, dropped a while
// after the job's end.

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "fsdp/v1/trainer.pb.h"
#include "proto/support/clock.h"
#include "worker/daemon/daemon_link.pb.h"

namespace fsdp::daemon {

// Thread-safe.
class RankMetrics {
 public:
  struct Options {
    // How long series outlive their trainer, so that the last scrape sees them.
    absl::Duration linger = absl::Seconds(60);
  };

  RankMetrics(Options options, Clock& clock) : options_(options), clock_(clock) {}

  // A trainer runs for `key`. Totals of the same job and rank go on; those of another rank of the
  // same job go away, since this device no longer runs it.
  void Begin(const fsdp::v1::EpochKey& key);
  void SetState(const fsdp::v1::EpochKey& key, fsdp::v1::RankState state);
  void SetCeilings(const fsdp::v1::EpochKey& key, const fsdp::v1::DeviceCeilings& ceilings);
  void AddStep(const fsdp::v1::EpochKey& key, const fsdp::v1::StepReport& report);
  // The trainer has ended; its series go away after the linger unless Begin comes before.
  void End(const fsdp::v1::EpochKey& key);

  // What is to be shown now.
  [[nodiscard]] std::vector<RankSeries> Snapshot() const;

 private:
  using JobRank = std::pair<std::string, int>;
  struct Entry {
    RankSeries series;
    // The trainer's own totals at the last report: families count from the trainer's start.
    std::map<std::string, fsdp::v1::FamilyVerdict> last_families;
    std::map<std::string, fsdp::v1::CollectiveTotals> last_collectives;
    fsdp::v1::ProfilerHealth last_profiler;
    std::optional<MonotonicTime> end;
  };

  Entry* Find(const fsdp::v1::EpochKey& key);
  void DropExpired();
  static void AddFamilies(const fsdp::v1::StepReport& report, Entry* entry);
  static void AddCollectives(const fsdp::v1::StepReport& report, Entry* entry);
  static void AddProfiler(const fsdp::v1::StepReport& report, Entry* entry);

  const Options options_;
  Clock& clock_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<JobRank, Entry> entries_;
};

// The fields of StepPhases with the values of their `phase` label.
struct PhaseField {
  const char* label;
  double (fsdp::v1::StepPhases::*get)() const;
  void (fsdp::v1::StepPhases::*set)(double);
};
const std::vector<PhaseField>& PhaseFields();

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_RANK_METRICS_H_
