#ifndef FSDPCTL_COORDINATOR_MEMBERSHIP_FILE_RELAY_H_
#define FSDPCTL_COORDINATOR_MEMBERSHIP_FILE_RELAY_H_

// Pieces of files, of checkpoints and profiles, on their way from workers to callers. Memory is
// bounded by the number of pieces that may be under way, each of at most kMaxPieceBytes.
//
// Not thread-safe: under the coordinator's lock. Callbacks run in the calls below.

#include <cstdint>
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

class FileRelay {
 public:
  static constexpr std::int32_t kMaxPieceBytes = 1 << 20;
  static constexpr std::size_t kMaxPieces = 32;
  // A worker answers, or is taken for stuck: its disk, or its stream.
  static constexpr absl::Duration kPatience = absl::Seconds(20);

  using Done = std::function<void(absl::StatusOr<v1::ReadCheckpointResponse>)>;

  // Asks the workers one after the other until one has the file.
  //   RESOURCE_EXHAUSTED  kMaxPieces are under way
  //   UNAVAILABLE         none of them is connected, or the last one asked left or does not answer
  //   what a worker says, NOT_FOUND once all have said it
  void Ask(WorkerRegistry& workers, std::vector<WorkerId> candidates, v1::ReadFilePiece piece,
           MonotonicTime now, Done done);
  void OnPiece(WorkerRegistry& workers, const WorkerId& worker, const v1::FilePiece& piece,
               MonotonicTime now);
  // The worker's stream has ended.
  void OnDisconnect(const WorkerId& worker);
  void Expire(MonotonicTime now);
  // Nothing is relayed any more.
  void EndAll(const absl::Status& why);

 private:
  struct Pending {
    v1::ReadFilePiece piece;
    WorkerId worker;                   // who was asked
    std::vector<WorkerId> candidates;  // who else may be
    MonotonicTime asked;
    absl::Status last;
    Done done;
  };
  // False: nobody is left; `pending.done` has been told.
  static bool AskNext(WorkerRegistry& workers, Pending& pending, MonotonicTime now);

  std::int64_t last_request_ = 0;
  std::map<std::int64_t, Pending> pending_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_MEMBERSHIP_FILE_RELAY_H_
