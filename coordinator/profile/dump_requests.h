#ifndef FSDPCTL_COORDINATOR_PROFILE_DUMP_REQUESTS_H_
#define FSDPCTL_COORDINATOR_PROFILE_DUMP_REQUESTS_H_

// Callers that wait for the collectives of all ranks of a job (JobService.DumpCollectives).
//
// Not thread-safe: under the coordinator's lock. Callbacks run in the calls below.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/membership/worker_registry.h"
#include "fsdp/v1/job_service.pb.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

class DumpRequests {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(5);
  using Done = std::function<void(absl::StatusOr<v1::DumpCollectivesResponse>)>;

  struct Rank {
    v1::EpochKey key;
    WorkerId worker;
    v1::RankCollectives answer;  // filled in here
    bool answered = false;
  };

  // Asks each rank's worker (key and worker are set).
  // `pending_seconds`: the longest that any rank has said of a collective.
  void Ask(WorkerRegistry& workers, std::vector<Rank> ranks, double pending_seconds,
           MonotonicTime now, Done done);
  void OnDump(const v1::EpochKey& key, const v1::CollectiveDump& dump);
  // The rank cannot answer, and why.
  void OnSilent(const v1::EpochKey& key, const std::string& why);
  void Expire(MonotonicTime now);
  void EndAll(const absl::Status& why);

 private:
  struct Request {
    std::vector<Rank> ranks;
    double pending_seconds = 0;
    MonotonicTime asked;
    Done done;
  };
  void Answer(const v1::EpochKey& key, const std::function<void(Rank&)>& fill);
  static void Finish(Request& request);

  std::vector<Request> requests_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_PROFILE_DUMP_REQUESTS_H_
