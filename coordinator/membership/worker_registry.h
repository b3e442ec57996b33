#ifndef FSDPCTL_COORDINATOR_MEMBERSHIP_WORKER_REGISTRY_H_
#define FSDPCTL_COORDINATOR_MEMBERSHIP_WORKER_REGISTRY_H_

// The workers that the coordinator knows: who is connected in which life, what each runs, what it
// has reported. Not thread-safe.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/admission/admission.h"
#include "coordinator/config/options.h"
#include "coordinator/lifecycle/job_runtime.h"
#include "coordinator/membership/liveness.h"
#include "coordinator/schedule/gang_scheduler.h"
#include "coordinator/store/job_store.h"
#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/ids.h"

namespace fsdp::coordinator {

inline constexpr std::int32_t kProtocolVersion = 1;

// The way to one connected worker. Thread-safe; never blocks; does nothing once closed.
class WorkerSink {
 public:
  virtual ~WorkerSink() = default;
  virtual void Send(const v1::ConnectResponse& message) = 0;
  virtual void Close(absl::Status reason) = 0;
};

struct Assignment {
  JobId job;
  std::int64_t epoch = 0;
  std::int32_t rank = 0;
};

struct WorkerEntry {
  records::WorkerRecord record;
  std::string version;
  std::string metrics_address;
  std::string rank_address;
  std::string unplaceable_reason;

  // Null: not connected.
  std::shared_ptr<WorkerSink> sink;
  // Tells one stream of a worker from the next.
  std::uint64_t session = 0;
  LivenessFacts facts;
  Liveness liveness = Liveness::kSuspect;
  absl::Time connect_time;
  absl::Time heartbeat_time;
  // Its wall clock minus ours.
  absl::Duration clock_offset = absl::ZeroDuration();

  // The rank of a live epoch that it was given.
  std::optional<Assignment> assigned;
  // The job that holds it as a spare, without a rank on it.
  std::optional<JobId> spare_of;
  // A rank of a dead epoch that it still runs: nothing is placed on it until that has ended.
  std::optional<v1::EpochKey> foreign;
  // Reports of this life that were taken in, durable or not.
  std::int64_t received_sequence = 0;
  // The last dead epoch whose messages were logged as refused: a spool may hold hundreds.
  std::string stale_logged;

  [[nodiscard]] WorkerId id() const { return WorkerId(record.id()); }
};

class WorkerRegistry {
 public:
  // At the start: known workers that may come back.
  void Restore(const records::WorkerRecord& record, MonotonicTime now, bool expected);

  // Null: unknown.
  WorkerEntry* Find(const WorkerId& id);
  std::map<WorkerId, WorkerEntry>& entries() { return entries_; }
  [[nodiscard]] const std::map<WorkerId, WorkerEntry>& entries() const { return entries_; }

  // May this process speak for this worker?
  //   INVALID_ARGUMENT     a malformed name, no incarnation
  //   FAILED_PRECONDITION  protocol versions differ by more than one
  //   ABORTED              this life was replaced by a newer one
  //   ALREADY_EXISTS       another live process uses the name
  [[nodiscard]] absl::Status CheckHello(const v1::WorkerHello& hello) const;
  // Takes in a checked hello: a new life fences the one before and starts with nothing
  // acknowledged.
  WorkerEntry& Accept(const v1::WorkerHello& hello, std::shared_ptr<WorkerSink> sink,
                      TimePoint now);

  // Workers that were LOST and not cordoned all of `forget_after`.
  [[nodiscard]] std::vector<WorkerId> Forgettable(absl::Time now,
                                                  absl::Duration forget_after) const;
  void Forget(const WorkerId& id) { entries_.erase(id); }

  [[nodiscard]] ClusterView View(MonotonicTime now, const TimingOptions& timing) const;
  // Of the workers with such a device, connected or not, that have not left.
  [[nodiscard]] DeviceMemory KnownMemory(v1::DeviceType type) const;

 private:
  std::map<WorkerId, WorkerEntry> entries_;
  std::uint64_t last_session_ = 0;
};

// What users see.
v1::Worker DescribeWorker(const WorkerEntry& entry);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_MEMBERSHIP_WORKER_REGISTRY_H_
