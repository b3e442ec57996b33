#ifndef FSDPCTL_COORDINATOR_LIFECYCLE_JOB_RUNTIME_H_
#define FSDPCTL_COORDINATOR_LIFECYCLE_JOB_RUNTIME_H_

// One job as the coordinator holds it, and what a step of its life asks of the outside.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/lifecycle/straggler.h"
#include "coordinator/membership/hang_rule.h"
#include "coordinator/rendezvous/rendezvous.h"
#include "coordinator/store/job_store.h"
#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

struct TimePoint {
  MonotonicTime mono;
  absl::Time wall;
};

// A rank of the current epoch: what need not outlive the coordinator.
struct LiveRank {
  std::optional<RankPulseView> pulse;
  std::string pulse_bytes;
  // The coordinator stood still since: it says nothing about now.
  bool pulse_outdated = false;
  // The first failure it reported itself.
  std::optional<v1::RankFailure> failure;
  std::optional<MonotonicTime> stop_sent;
  v1::StopMode stop_mode = v1::STOP_MODE_UNSPECIFIED;
  // Why its process cannot run, as its worker found when it was asked; empty: it can.
  std::string stuck;
  // Its last collectives, told while the job hangs or its epoch ends.
  std::optional<v1::CollectiveDump> dump;
  // Since when its worker's heartbeats have said that it runs nothing.
  std::optional<MonotonicTime> idle_since;
};

struct JobRuntime {
  records::JobRecord record;
  std::vector<v1::Attempt> attempts;
  // Admitted ones, by step.
  std::vector<v1::CheckpointInfo> checkpoints;
  std::int64_t last_log = 0;
  std::int64_t last_metric = 0;

  // Of the current epoch, by rank.
  std::vector<LiveRank> live;
  RendezvousTable rendezvous;
  MonotonicTime placed;
  // A rank of the epoch that forms was last seen making tokens of text, or waiting for them.
  MonotonicTime tokenizing;
  MonotonicTime progressed;
  std::optional<MonotonicTime> first_finish;
  std::int64_t first_step = 0;
  bool hang_reported = false;
  // What comparing the ranks' dumps said; empty: not all are there.
  std::string collectives_verdict;
  StragglerScores stragglers;
  bool linger_killed = false;
  // The ranks that it will have from its next checkpoint on; 0: as many as now.
  int growth = 0;

  // A failure whose recovery is being timed.
  std::optional<MonotonicTime> failed_at;
  bool progress_dirty = false;
  MonotonicTime progress_published;
  MonotonicTime progress_stored;

  // Of a task: the state that its array has counted.
  v1::JobState counted_state = v1::JOB_STATE_UNSPECIFIED;

  [[nodiscard]] const v1::Job& job() const { return record.job(); }
  [[nodiscard]] v1::Job& mutable_job() { return *record.mutable_job(); }
};

struct Outgoing {
  WorkerId worker;
  // The life of the worker that it is meant for; another one does not get it.
  std::string incarnation;
  v1::ConnectResponse message;
};

struct Effects {
  // Aborts: every millisecond counts and repeating them does no harm.
  std::vector<Outgoing> at_once;
  // Sent when everything below is on disk.
  std::vector<Outgoing> when_durable;

  bool job_changed = false;
  // JobRecord.spare_workers.
  bool spares_changed = false;
  // The newest attempt.
  bool attempt_changed = false;
  std::vector<v1::JobEvent> events;
  std::vector<v1::CheckpointInfo> checkpoints;
  std::vector<std::int64_t> dropped_checkpoints;
  std::vector<v1::LogEntry> logs;
  std::vector<v1::StepMetrics> metrics;
  std::vector<std::pair<std::string, std::string>> rendezvous;
  bool rendezvous_cleared = false;
  // For whoever called the verb: what it costs.
  std::vector<std::string> warnings;

  // Workers came free, or the job wants to be placed.
  bool reschedule = false;
  // For metrics.
  std::optional<v1::FailureCause> restart_cause;
  // Ranks more or less than its last epoch had.
  int rank_change = 0;
  bool straggler_excluded = false;
  std::optional<absl::Duration> detection;
  std::optional<absl::Duration> recovery;
  // From placement to the first step.
  std::optional<absl::Duration> start;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_LIFECYCLE_JOB_RUNTIME_H_
