#ifndef FSDPCTL_COORDINATOR_PROFILE_PROFILE_SESSIONS_H_
#define FSDPCTL_COORDINATOR_PROFILE_PROFILE_SESSIONS_H_

// Profiles of running jobs: who was asked, how far each rank is, and how far each rank's clock lies
// from ours. Recordings themselves stay on the workers' disks.
//
// Clocks: the worker's answer to a probe gives an offset that is wrong by at most half of the round
// trip; of several probes, at the beginning and at the end, the shortest round trip counts.
//
// Not thread-safe: under the coordinator's lock.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/membership/worker_registry.h"
#include "fsdp/v1/job_service.pb.h"
#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

class ProfileSessions {
 public:
  // Of each job; older ones are forgotten.
  static constexpr std::size_t kMaxKept = 8;

  struct Rank {
    v1::EpochKey key;
    WorkerId worker;
    std::string incarnation;
    v1::RankProfileStatus status;
    int probes_left = 0;
    bool probed_at_end = false;
  };
  struct Session {
    std::string profile;
    v1::ProfileOptions options;  // checked
    std::vector<Rank> ranks;

    [[nodiscard]] bool finished() const;
    [[nodiscard]] const Rank* Find(int rank) const;
  };

  // Asks the workers of `ranks` (key, worker and incarnation are set) to record.
  //   ABORTED  another profile of the job is being recorded; one that no rank has begun gives way
  absl::StatusOr<const Session*> Start(WorkerRegistry& workers, const JobId& job,
                                       std::string profile, const v1::ProfileOptions& options,
                                       std::vector<Rank> ranks, MonotonicTime now);
  void OnUpdate(WorkerRegistry& workers, const WorkerId& worker, const v1::ProfileUpdate& update,
                MonotonicTime now);
  void OnClock(WorkerRegistry& workers, const WorkerId& worker, const v1::ClockAnswer& answer,
               MonotonicTime now);
  // Ranks of which `lives(key, worker, incarnation)` is false will say nothing any more.
  void FailLost(const std::function<bool(const Rank&)>& lives);

  // Null: there is none, or it is forgotten.
  [[nodiscard]] const Session* Find(const JobId& job, const std::string& profile) const;
  void Forget(const JobId& job) { sessions_.erase(job); }

 private:
  static void Probe(WorkerRegistry& workers, Rank& rank, MonotonicTime now);

  std::map<JobId, std::deque<Session>> sessions_;  // newest last
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_PROFILE_PROFILE_SESSIONS_H_
