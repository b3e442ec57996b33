#ifndef FSDPCTL_COORDINATOR_COORDINATOR_H_
#define FSDPCTL_COORDINATOR_COORDINATOR_H_

// The coordinator without a wire: jobs, workers and what happens between them.
//
// One lock guards all decisions; it is never held over disk or network. An event changes the state
// in memory, its records go to the store, and what others see of it (replies, commands to workers,
// watchers) follows when the records are durable. Aborts alone do not wait.
//
// Thread-safe. `Done` callbacks run on the store's thread: they must be short and must not call
// back.
//
// Errors of all verbs: NOT_FOUND no such job or worker; UNAVAILABLE the store failed.

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/admission/admission.h"
#include "coordinator/config/options.h"
#include "coordinator/events/job_directory.h"
#include "coordinator/lifecycle/job_controller.h"
#include "coordinator/lifecycle/job_runtime.h"
#include "coordinator/membership/file_relay.h"
#include "coordinator/membership/worker_registry.h"
#include "coordinator/metrics/counters.h"
#include "coordinator/profile/dump_requests.h"
#include "coordinator/profile/profile_sessions.h"
#include "coordinator/queue/job_array.h"
#include "coordinator/schedule/queue_scheduler.h"
#include "coordinator/store/job_store.h"
#include "fsdp/v1/cluster_service.pb.h"
#include "fsdp/v1/job_service.pb.h"
#include "proto/support/clock.h"

namespace fsdp::coordinator {

// Who calls. Given to every handler, by the gate (coordinator/rpc/gate.h).
struct CallerIdentity {
  // "anonymous" where nobody has to say who they are.
  std::string subject;
  // "ipv4:127.0.0.1:40312".
  std::string peer;
};

// Everything that metrics show at one moment.
struct CoordinatorStats {
  std::map<v1::JobState, std::int64_t> jobs;
  std::map<v1::AttemptState, std::int64_t> attempts;
  // By queue and why jobs wait in it: LabelOf(WaitKind), "backoff", "array_limit", "maintenance".
  std::map<std::pair<std::string, std::string>, std::int64_t> queue;
  struct UnfinishedJob {
    std::string id;
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    std::int32_t attempt = 0;
    std::int64_t epoch = 0;
    std::int64_t step = 0;
    // Of its newest durable checkpoint; absent: it saves none by steps.
    std::optional<std::int64_t> checkpoint_step;
    std::int64_t checkpoint_interval_steps = 0;
    struct Rank {
      double straggler_score = 0;  // 0: unknown
      double collective_skew_seconds = 0;
    };
    std::vector<Rank> ranks;  // of a job that trains
  };
  std::vector<UnfinishedJob> unfinished;
  std::map<v1::WorkerState, std::int64_t> workers;
  // By worker.
  std::map<std::string, double> heartbeat_age_seconds;
  double start_timestamp_seconds = 0;
  // Empty unless queues are configured.
  std::vector<v1::Queue> queues;
  v1::MaintenanceMode maintenance = v1::MAINTENANCE_MODE_UNSPECIFIED;
};

//   NOT_FOUND  QUEUE_NOT_FOUND: none is called so
absl::StatusOr<v1::Queue> FindQueue(std::vector<v1::Queue> queues, const std::string& name);

// Has spec.array: its tasks hold devices, it does not.
bool IsArray(const JobRuntime& job);

class Coordinator {
 public:
  // What a verb did, and what it costs that the caller may not expect.
  struct JobReply {
    v1::Job job;
    std::vector<std::string> warnings;
  };
  struct WorkerReply {
    v1::Worker worker;
    std::vector<std::string> warnings;
  };
  using JobDone = std::function<void(absl::StatusOr<JobReply>)>;
  using CreateDone = std::function<void(absl::StatusOr<v1::CreateJobResponse>)>;
  using WorkerDone = std::function<void(absl::StatusOr<WorkerReply>)>;

  struct Dependencies {
    Clock* clock = nullptr;
    JobStore* store = nullptr;
    const Admission* admission = nullptr;
    Counters* counters = nullptr;
    // The process cannot go on (the store failed). Called at most once, from any thread.
    std::function<void(absl::Status)> on_fatal;
  };

  // Loads the store. All pointers outlive the coordinator; the store must be flushed before the
  // coordinator is destroyed.
  //   DATA_LOSS, UNAVAILABLE  the store cannot be read
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(const Options& options,
                                                             Dependencies dependencies);

  // --- Jobs
  //   INVALID_ARGUMENT, ALREADY_EXISTS, RESOURCE_EXHAUSTED, FAILED_PRECONDITION  as in
  //   job_service.proto
  void CreateJob(const CallerIdentity& caller, const v1::CreateJobRequest& request,
                 CreateDone done);
  absl::StatusOr<v1::Plan> PlanJob(const CallerIdentity& caller, const v1::TrainingJob& job) const;
  //   FAILED_PRECONDITION  the job's state does not allow it
  void CancelJob(const CallerIdentity& caller, const JobId& job, const std::string& reason,
                 JobDone done);
  void SuspendJob(const CallerIdentity& caller, const JobId& job, const std::string& reason,
                  JobDone done);
  void ResumeJob(const CallerIdentity& caller, const JobId& job, JobDone done);
  void RestartJob(const CallerIdentity& caller, const JobId& job, const std::string& reason,
                  JobDone done);
  void DeleteJob(const CallerIdentity& caller, const JobId& job,
                 std::function<void(absl::Status)> done);

  // A piece of a file of the job's checkpoint, from a worker's disk.
  //   as JobService.ReadCheckpoint
  void ReadCheckpoint(const CallerIdentity& caller, const v1::ReadCheckpointRequest& request,
                      FileRelay::Done done);

  // --- Profiles. Errors as in job_service.proto.
  absl::StatusOr<v1::ProfileJobResponse> ProfileJob(const CallerIdentity& caller,
                                                    const v1::ProfileJobRequest& request);
  absl::StatusOr<v1::GetProfileResponse> GetProfile(const CallerIdentity& caller,
                                                    const v1::GetProfileRequest& request) const;
  void ReadProfile(const CallerIdentity& caller, const v1::ReadProfileRequest& request,
                   FileRelay::Done done);
  void DumpCollectives(const CallerIdentity& caller, const v1::DumpCollectivesRequest& request,
                       DumpRequests::Done done);

  // --- Workers, for people
  std::vector<v1::Worker> ListWorkers() const;
  absl::StatusOr<v1::Worker> GetWorker(const WorkerId& worker) const;
  void DrainWorker(const CallerIdentity& caller, const WorkerId& worker, bool stop_ranks,
                   const std::string& reason, WorkerDone done);
  void UncordonWorker(const CallerIdentity& caller, const WorkerId& worker, WorkerDone done);
  v1::GetClusterResponse Describe() const;

  // --- Queues. What the file of --queues says: with it jobs must name one of them.
  void SetQueues(const v1::QueueConfig& config);
  // The file has changed and is no good: what it said before holds.
  void RejectQueues(const absl::Status& error);
  struct QueueList {
    // By name.
    std::vector<v1::Queue> queues;
    bool configured = false;
    std::string config_error;
  };
  [[nodiscard]] QueueList ListQueues() const;

  // --- Maintenance
  //   INVALID_ARGUMENT  no mode, or a reason that is too long
  using MaintenanceDone = std::function<void(absl::StatusOr<v1::Maintenance>)>;
  void SetMaintenance(const CallerIdentity& caller, v1::MaintenanceMode mode,
                      const std::string& reason, MaintenanceDone done);

  // --- Workers, their streams
  struct Session {
    WorkerId worker;
    std::uint64_t number = 0;
  };
  // The welcome is sent through `sink`. Errors as WorkerService.Connect.
  absl::StatusOr<Session> OnHello(const v1::WorkerHello& hello, std::shared_ptr<WorkerSink> sink);
  //   ABORTED  another stream has taken the worker's place
  absl::Status OnMessage(const Session& session, const v1::ConnectRequest& message);
  void OnDisconnect(const Session& session);

  // --- Time
  // Looks at every deadline and places jobs; to be called every `timing.tick_period`.
  void Tick();
  // Blocks until there is a job to place, `period` is over, or Stop was called (false).
  bool WaitForWork(absl::Duration period);
  void Stop();
  // Takes nothing in any more (UNAVAILABLE) and closes the workers' streams; ranks go on. Ticks
  // must have stopped, or the closed streams would count as losses.
  void Drain();

  // --- Reading
  JobDirectory& directory() { return directory_; }
  JobStore& store() { return *store_; }
  [[nodiscard]] CoordinatorStats Stats() const;
  [[nodiscard]] const std::string& incarnation() const { return incarnation_; }

 private:
  // What goes to the store together with a job's changes.
  struct Extra {
    std::optional<records::WorkerRecord> worker;
    std::vector<std::pair<std::shared_ptr<WorkerSink>, v1::ConnectResponse>> messages;
    std::function<void(absl::Status)> done;
    JobSnapshot* snapshot = nullptr;
  };
  using Verb = std::function<absl::Status(JobController&)>;
  // A verb on all tasks of an array that it is meant for.
  struct ArrayVerb {
    // "cancelled"
    std::string name;
    Verb run;
    // Empty: it is meant for all.
    std::function<bool(v1::JobState)> wants;
  };

  Coordinator(const Options& options, Dependencies dependencies);
  absl::Status Load();
  void LoadJob(StoredJob stored, std::set<std::string>* expected_workers);
  [[nodiscard]] TimePoint Now() const;
  JobRuntime* Find(const JobId& job);
  // What every call that writes asks first.
  //   UNAVAILABLE  the coordinator is draining, or the store failed (STORE_FAILED)
  [[nodiscard]] absl::Status CheckServing() const;

  void RunVerb(const JobId& job, const ArrayVerb& verb, JobDone done);
  // Runs one event of a job and carries out its effects.
  void Apply(JobRuntime& job, const std::function<void(JobController&)>& event);
  void Apply(JobRuntime& job, const std::function<void(JobController&)>& event, Extra extra);
  void CarryOut(JobRuntime& job, Effects effects, Extra extra);
  void Count(const JobRuntime& job, const Effects& effects);
  StoreBatch BatchOf(JobRuntime& job, Effects& effects, const Extra& extra);
  void Persist(StoreBatch batch, std::function<void(absl::Status)> done);
  void SyncAssignments(const JobRuntime& job);
  std::shared_ptr<const v1::Job> Snapshot(JobRuntime& job);
  void Track(const JobRuntime& job);
  JobId NewJobId(const std::string& name);
  // Takes the lock.
  DeviceMemory KnownMemory(const v1::TrainingJob& job) const;
  std::vector<std::string> CapacityWarnings(const v1::TrainingJob& job) const;
  absl::Status EraseJob(const JobId& job, std::function<void(absl::Status)> done);
  //   FAILED_PRECONDITION  it is not finished, or is a task of an array
  absl::Status CheckErasable(const JobRuntime& job) const;

  // What a new job must have, besides a good spec: a queue that can take it, and room.
  //   INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED
  absl::Status CheckNew(const v1::CreateJobRequest& request, const v1::TrainingJob& job,
                        const std::vector<v1::TrainingJob>& tasks) const;

  // --- Arrays
  // The jobs of all tasks, checked.
  absl::StatusOr<std::vector<v1::TrainingJob>> AdmitTasks(const v1::TrainingJob& array,
                                                          const DeviceMemory& known) const;
  JobRuntime& AddTask(const JobRuntime& array, int index, v1::TrainingJob spec);
  void EnqueueArray(JobRuntime& array, std::vector<v1::TrainingJob> tasks, Extra extra);
  // After a change of a task.
  void SyncArray(JobRuntime& task);
  [[nodiscard]] ArraySummary Summary(const JobRuntime& array) const;
  void RunArrayVerb(JobRuntime& array, const ArrayVerb& verb, JobDone done);
  // The job, and its tasks if it is an array.
  [[nodiscard]] std::vector<JobId> WithTasks(const JobId& id) const;

  // --- Queues and maintenance
  [[nodiscard]] std::vector<v1::Queue> QueuesLocked() const;
  //   INVALID_ARGUMENT  no such queue, or more than it may ever hold
  absl::Status CheckQueue(const v1::TrainingJob& job) const;
  //   FAILED_PRECONDITION  submissions are closed
  absl::Status CheckOpen() const;
  [[nodiscard]] bool InMaintenance() const;
  [[nodiscard]] std::string MaintenanceText() const;

  void HandleHeartbeat(WorkerEntry& worker, const v1::Heartbeat& heartbeat);
  void HandleReport(WorkerEntry& worker, const v1::Report& report);
  void HandleDuplicate(WorkerEntry& worker, const v1::Report& report);
  void DispatchReport(WorkerEntry& worker, const v1::Report& report, JobController& controller);
  bool StoreLogs(JobRuntime& job, const v1::LogBatch& logs, Effects* effects);
  // Null when the key names no live epoch of a job with this worker in it.
  JobRuntime* LiveJob(const WorkerEntry& worker, const v1::EpochKey& key);
  // `kind` is the metric's label.
  void AnswerStale(WorkerEntry& worker, const v1::EpochKey& key, const char* kind);
  bool Adopt(WorkerEntry& worker, const v1::WorkerHello& hello);
  void LoseWorker(WorkerEntry& worker, const std::string& incarnation, const std::string& reason,
                  absl::Duration silent);
  void StopForeign(WorkerEntry& worker, const v1::EpochKey& key);
  // A worker's cordon has changed: to disk, to the caller, to the scheduler.
  void StoreCordon(const WorkerEntry& worker, std::vector<std::string> warnings, WorkerDone done);

  // If the process itself stood still since the last tick, nobody is to blame for what it did not
  // hear. Whatever comes first on waking, a tick or a message, notices.
  void NoticeOwnPause(TimePoint now);
  void CheckWorkers(TimePoint now);
  void ForgetWorkers(TimePoint now);
  // Does an epoch that is not over have it as a member?
  [[nodiscard]] bool InSomeEpoch(const WorkerId& worker) const;
  void CheckJobs(TimePoint now);
  void CheckProfiles();
  // The job's, whose ranks all train now.
  //   FAILED_PRECONDITION  they do not
  absl::StatusOr<JobRuntime*> RunningJob(const JobId& job);
  void DeleteExpired(TimePoint now);
  void Schedule(TimePoint now);
  // The jobs that wait or come back, in order of priority and submission.
  [[nodiscard]] std::vector<QueuedDemand> CollectQueue(TimePoint now) const;
  // Those that hold workers and do not wait.
  [[nodiscard]] std::vector<ActiveJob> ActiveJobs(const std::vector<QueuedDemand>& waiting,
                                                  TimePoint now) const;
  // Tasks that array.maxParallel holds back, with the reason.
  [[nodiscard]] std::map<JobId, std::string> HeldBackTasks(
      const std::vector<QueuedDemand>& queue) const;
  std::vector<QueueDecision> DecideQueue(std::vector<QueuedDemand> queue,
                                         std::vector<Preemption>* preemptions, TimePoint now);
  // Adds the types of devices that jobs go on waiting for to `wanted`.
  void PlaceQueue(TimePoint now, std::set<v1::DeviceType>* wanted);
  void PlaceJob(JobRuntime& job, const PlacementDecision& decision);
  void TellWait(JobRuntime& job, const std::string& reason, std::int32_t position, TimePoint now);
  void PreemptJob(const Preemption& preemption);
  void WantSchedule();

  // --- Elastic jobs and spares
  // What the job takes now: until its time for that is over no fewer ranks than it had.
  [[nodiscard]] Demand PlacementDemand(const JobRuntime& job, TimePoint now) const;
  // "; starts with 2 ranks in 8s, should no more workers come free (resources.minRanks)"; empty: it
  // does not.
  [[nodiscard]] std::string FewerRanksText(const JobRuntime& job, TimePoint now) const;
  // After a pass: how far running jobs may grow and which workers are their spares, of what nobody
  // of the `wanted` types of devices waits for. Spares that are lost or drained are given up.
  void ReviseHoldings(TimePoint now, const std::set<v1::DeviceType>& wanted);
  // `view` is what is left for the jobs after it.
  void ReviseJob(JobRuntime& job, bool may_take, TimePoint now, ClusterView* view);
  // Of a job that runs: ranks and spares that its queue lets it hold.
  [[nodiscard]] int MostDevices(const JobRuntime& job, TimePoint now) const;
  // Spares that have changed: to the workers.
  void SyncSpares(const JobRuntime& job);

  const Options options_;
  Clock& clock_;
  JobStore* const store_;
  const Admission& admission_;
  Counters& counters_;
  const std::function<void(absl::Status)> on_fatal_;
  const std::string incarnation_;
  const absl::Time start_time_;

  JobDirectory directory_;

  // Of its own: whoever learns of the failure may hold mutex_ or not.
  mutable std::mutex failure_mutex_;
  absl::Status store_failure_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool schedule_wanted_ = false;
  bool draining_ = false;
  std::map<JobId, std::unique_ptr<JobRuntime>> jobs_;
  // Not finished; what ticks and scheduling look at.
  std::set<JobId> unfinished_;
  // By owner and request id: nobody learns of another's job by guessing.
  std::map<std::pair<std::string, std::string>, JobId> request_ids_;
  // The tasks of each array, by index.
  std::map<JobId, std::vector<JobId>> arrays_;
  // A verb goes over an array's tasks: the array changes once, at its end.
  bool arrays_deferred_ = false;
  v1::QueueConfig queue_config_;
  QueuePolicies queue_policies_;
  std::string queues_error_;
  v1::Maintenance maintenance_;
  std::map<std::pair<std::string, std::string>, std::int64_t> wait_kinds_;
  WorkerRegistry workers_;
  FileRelay files_;
  ProfileSessions profiles_;
  DumpRequests dumps_;
  std::int64_t last_position_ = 0;
  std::mt19937_64 random_;
  std::optional<MonotonicTime> last_tick_;
  MonotonicTime last_wait_reasons_;
  MonotonicTime next_schedule_;
  // Of jobs and of lost workers.
  MonotonicTime last_expiry_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_COORDINATOR_H_
