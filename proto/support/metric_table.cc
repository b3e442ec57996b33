#include "proto/support/metric_table.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

using enum MetricType;
using enum MetricOwner;
using Labels = std::string_view[];

constexpr std::string_view kAllLabels[] = {"job_id", "rank", "kernel_family", "bound", "source",
                                           "phase", "collective", "kind", "reason", "cause",
                                           "state", "queue", "worker", "device", "method", "code",
                                           // Of fsdp_build_info alone.
                                           "version"};

constexpr Labels kByRank = {"job_id", "rank"};
constexpr Labels kByRankKind = {"job_id", "rank", "kind"};
constexpr Labels kByRankPhase = {"job_id", "rank", "phase"};
constexpr Labels kByRankState = {"job_id", "rank", "state"};
constexpr Labels kByRankCollective = {"job_id", "rank", "collective"};
constexpr Labels kByRankReason = {"job_id", "rank", "reason"};
constexpr Labels kByRankFamily = {"job_id", "rank", "kernel_family"};
constexpr Labels kByRankFamilyBound = {"job_id", "rank", "kernel_family", "bound", "source"};
constexpr Labels kByWorker = {"worker"};
constexpr Labels kByWorkerKind = {"worker", "kind"};
constexpr Labels kByWorkerReason = {"worker", "reason"};
constexpr Labels kByWorkerDevice = {"worker", "device"};
constexpr Labels kByWorkerDeviceKind = {"worker", "device", "kind"};
constexpr Labels kByWorkerDeviceReason = {"worker", "device", "reason"};
constexpr Labels kByState = {"state"};
constexpr Labels kByQueueReason = {"queue", "reason"};
constexpr Labels kByQueueDevice = {"queue", "device"};
constexpr Labels kByJob = {"job_id"};
constexpr Labels kByJobState = {"job_id", "state"};
constexpr Labels kByCause = {"cause"};
constexpr Labels kByCode = {"code"};
constexpr Labels kByKind = {"kind"};
constexpr Labels kByReason = {"reason"};
constexpr Labels kByMethodCode = {"method", "code"};
constexpr Labels kByVersion = {"version"};

// From a fast SSD's fsync to an overloaded disk.
constexpr double kShortSeconds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                    0.025,  0.05,    0.1,    0.25,  0.5,    1,     2.5};
// From a socket's FIN to the end of all patience.
constexpr double kLongSeconds[] = {0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600};

constexpr MetricDescriptor kTable[] = {
    // Ranks: training.
    {"fsdp_loss", kGauge, kWorker, "nats per token", kByRank,
     "Training loss of the last step, over all ranks' valid tokens; equal on every rank."},
    {"fsdp_validation_loss", kGauge, kWorker, "nats per token", kByRank,
     "Loss of the last validation; absent before the first."},
    {"fsdp_evaluation_loss", kGauge, kWorker, "nats per token", kByRankKind,
     "Loss of the last evaluation of each of data.evaluationSets; kind is the set's name."},
    {"fsdp_grad_norm", kGauge, kWorker, "", kByRank,
     "Global gradient norm of the last step before clipping; a spike precedes divergence."},
    {"fsdp_learning_rate", kGauge, kWorker, "", kByRank, "Learning rate of the last step."},
    {"fsdp_step", kGauge, kWorker, "steps", kByRank,
     "The last finished optimizer step; ranks of one job differ by at most one."},
    {"fsdp_step_seconds", kGauge, kWorker, "seconds", kByRank, "Wall time of the last step."},
    {"fsdp_step_phase_seconds_total", kCounter, kWorker, "seconds", kByRankPhase,
     "Wall time of steps by phase: where a step's time goes. Phases data, compute, exposed_gather, "
     "exposed_scatter, optimizer, checkpoint, evaluate, other and unattributed add up to the "
     "steps' "
     "time; the others (overlapped_gather, overlapped_scatter, launch_gap, host_idle) lie within "
     "them."},
    {"fsdp_steps_total", kCounter, kWorker, "steps", kByRank,
     "Steps reported by this rank since its worker first ran it, skipped ones included."},
    {"fsdp_steps_skipped_total", kCounter, kWorker, "steps", kByRank,
     "Steps whose update was left out: no valid token, figures that are not finite, or a spike."},
    {"fsdp_rollbacks_total", kCounter, kWorker, "", kByRank,
     "Steps after which all ranks went back to a checkpoint (train.onNonFinite or onSpike: "
     "rollback); "
     "take the maximum over ranks, not the sum."},
    {"fsdp_tokens_total", kCounter, kWorker, "tokens", kByRank,
     "Tokens of the whole job's steps as this rank saw them; take the maximum over ranks, not the "
     "sum."},
    {"fsdp_flops_total", kCounter, kWorker, "floating-point operations", kByRank,
     "Model FLOPs of the whole job's steps (recomputation left out), as the plan counts them; take "
     "the "
     "maximum over ranks, not the sum."},
    {"fsdp_mfu_ratio", kGauge, kWorker, "ratio", kByRank,
     "Model FLOPs per second of the last step over the device's peak, 0 to 1: the datasheet's "
     "where "
     "the device is known, else its measured matmul rate; absent before that is measured."},
    {"fsdp_hfu_ratio", kGauge, kWorker, "ratio", kByRank,
     "As fsdp_mfu_ratio with all FLOPs of the rank, recomputation included; absent where no peak "
     "is "
     "known."},
    {"fsdp_last_step_timestamp_seconds", kGauge, kWorker, "seconds", kByRank,
     "Unix time of the last step report; time() minus this is how long the rank has made no "
     "progress."},
    {"fsdp_rank_state", kGauge, kWorker, "", kByRankState,
     "1 for the state that the rank is in (assigned, starting, joined, running, stopping, "
     "exited)."},
    // Ranks: memory.
    {"fsdp_memory_peak_bytes", kGauge, kWorker, "bytes", kByRank,
     "Highest memory use of the rank since its trainer started; near the device's size means that "
     "the next larger batch does not fit."},
    {"fsdp_memory_bytes", kGauge, kWorker, "bytes", kByRankKind,
     "Memory in use now, by kind (weights, gradients, optimizer, activations, ...)."},
    {"fsdp_memory_kind_peak_bytes", kGauge, kWorker, "bytes", kByRankKind,
     "Highest use by kind; kinds peak at different moments, so they do not add up to "
     "fsdp_memory_peak_bytes."},
    // Ranks: collectives.
    {"fsdp_collectives_total", kCounter, kWorker, "collectives", kByRankCollective,
     "Collectives by operation (all_gather, reduce_scatter, all_reduce, broadcast, barrier)."},
    {"fsdp_collective_bytes_total", kCounter, kWorker, "bytes", kByRankCollective,
     "Bytes of collectives by operation, as each rank contributes or receives them."},
    {"fsdp_collective_seconds_total", kCounter, kWorker, "seconds", kByRankCollective,
     "Time from a collective's start on the device to its end, waiting for peers included."},
    // Ranks: what bounds the kernels.
    {"fsdp_kernel_seconds_total", kCounter, kWorker, "seconds", kByRankFamilyBound,
     "Time in each kernel family by what bounded it (compute, memory, communication, latency, "
     "balanced; unspecified before the ceilings are measured) and where the verdict comes from; "
     "the largest share is what to improve."},
    {"fsdp_kernel_launches_total", kCounter, kWorker, "launches", kByRankFamily,
     "Launches by kernel family."},
    {"fsdp_kernel_flops_total", kCounter, kWorker, "floating-point operations", kByRankFamily,
     "Counted FLOPs by kernel family, recomputation included."},
    {"fsdp_kernel_bytes_total", kCounter, kWorker, "bytes", kByRankFamily,
     "Counted memory traffic by kernel family; of communication families, bytes on the wire."},
    {"fsdp_kernel_compute_ratio", kGauge, kWorker, "ratio", kByRankFamily,
     "Achieved share of the measured compute ceiling, 0 to 1, since the trainer started."},
    {"fsdp_kernel_memory_ratio", kGauge, kWorker, "ratio", kByRankFamily,
     "Achieved share of the measured memory (or link) ceiling, 0 to 1, since the trainer started."},
    {"fsdp_kernel_tensor_ratio", kGauge, kWorker, "ratio", kByRankFamily,
     "Share of cycles in which the tensor pipes are active, 0 to 1; absent without PM sampling."},
    {"fsdp_kernel_savable_seconds", kGauge, kWorker, "seconds", kByRankFamily,
     "What reaching the nearer of its roofs would save of a step; of communication families, what "
     "the step waits for them."},
    {"fsdp_profiler_state", kGauge, kWorker, "", kByRankState,
     "1 for how hardware counters are read: sampling, idle (between windows), analytic (the device "
     "has none), denied, busy (another tool holds them), unavailable."},
    {"fsdp_profiler_windows_total", kCounter, kWorker, "windows", kByRank,
     "Windows in which counters were sampled."},
    {"fsdp_profiler_samples_total", kCounter, kWorker, "samples", kByRank,
     "Counter samples that were credited to a family."},
    {"fsdp_profiler_dropped_total", kCounter, kWorker, "", kByRankReason,
     "Samples and records of the profiler that were dropped, by reason (overflow, edge, "
     "invalid, unassigned, span_limit, late)."},
    {"fsdp_profiler_overhead_seconds_total", kCounter, kWorker, "seconds", kByRankKind,
     "Time that the host spent on profiling, by kind (enable, decode, evaluate, write)."},
    {"fsdp_ceiling_flops_per_second", kGauge, kWorker, "flops per second", kByRankKind,
     "Matmul rate measured at the trainer's start, by kind: fp32, bf16 and fp8 alone (the roof "
     "that "
     "verdicts are given against), and with _sustained back to back, at the power limit."},
    {"fsdp_ceiling_bytes_per_second", kGauge, kWorker, "bytes per second", kByRankKind,
     "Bandwidth measured at the trainer's start, by kind (memory, collective)."},
    // Workers.
    {"fsdp_worker_connected", kGauge, kWorker, "", kByWorker,
     "1 while the worker's stream to the coordinator is open and welcomed, else 0."},
    {"fsdp_worker_connects_total", kCounter, kWorker, "", kByWorker,
     "Connections welcomed by a coordinator since the worker process started; growth means "
     "flapping."},
    {"fsdp_worker_stale_commands_total", kCounter, kWorker, "", kByWorker,
     "Commands of an older epoch that the worker refused."},
    {"fsdp_worker_rank_active", kGauge, kWorker, "", kByWorker,
     "1 while the worker has a trainer process, else 0."},
    {"fsdp_trainer_exits_total", kCounter, kWorker, "", kByWorkerReason,
     "Ends of trainer processes: finished, stopped, failed (exit code), signal, spawn_failed."},
    {"fsdp_device_memory_bytes", kGauge, kWorker, "bytes", kByWorkerDevice,
     "Memory of the worker's device (of the host, for a CPU slot)."},
    {"fsdp_device_memory_used_bytes", kGauge, kWorker, "bytes", kByWorkerDevice,
     "Memory in use on the worker's device by anybody, where the driver tells."},
    {"fsdp_device_power_watts", kGauge, kWorker, "watts", kByWorkerDevice,
     "Power draw; absent where the driver does not tell, as are the next ones."},
    {"fsdp_device_temperature_celsius", kGauge, kWorker, "degrees Celsius", kByWorkerDevice,
     "Temperature of the chip."},
    {"fsdp_device_sm_clock_hertz", kGauge, kWorker, "hertz", kByWorkerDevice,
     "Clock of the multiprocessors now; falls under a power or thermal limit."},
    {"fsdp_device_throttled_seconds_total", kCounter, kWorker, "seconds", kByWorkerDeviceReason,
     "Time with clocks held down, by reason (power, thermal, hardware, other), as sampled once a "
     "second."},
    {"fsdp_device_ecc_errors_total", kCounter, kWorker, "", kByWorkerDeviceKind,
     "Memory errors since the driver was loaded, by kind (corrected, uncorrected)."},
    {"fsdp_device_link_bytes_total", kCounter, kWorker, "bytes", kByWorkerDeviceKind,
     "Bytes over the device's links since the worker started, by kind (nvlink_rx, nvlink_tx, "
     "pcie_rx, pcie_tx)."},
    {"fsdp_spool_bytes", kGauge, kWorker, "bytes", kByWorker,
     "Reports on the worker's disk that the coordinator has not acknowledged; grows while the "
     "coordinator is away."},
    {"fsdp_spool_reports", kGauge, kWorker, "reports", kByWorker,
     "Number of unacknowledged reports."},
    {"fsdp_spool_dropped_total", kCounter, kWorker, "reports", kByWorkerKind,
     "Reports given up because the spool was full (kind step or logs; exits, joins and manifests "
     "are "
     "never dropped)."},
    {"fsdp_spool_corrupt_total", kCounter, kWorker, "", kByWorker,
     "Damaged stretches found when the spool was opened; 1 after a power loss is a torn tail."},
    {"fsdp_spool_write_errors_total", kCounter, kWorker, "", kByWorker,
     "Failed writes to the spool (disk full); reports are kept in memory meanwhile."},
    {"fsdp_worker_child_restarts_total", kCounter, kWorker, "", kByWorker,
     "Restarts of this device's daemon by the supervising process."},
    // Coordinator: jobs.
    {"fsdp_jobs", kGauge, kCoordinator, "jobs", kByState,
     "Stored jobs by state (queued, starting, running, recovering, suspended, cancelling, "
     "succeeded, "
     "failed, cancelled)."},
    {"fsdp_job_state", kGauge, kCoordinator, "", kByJobState,
     "1 for the state of each job that is not finished."},
    {"fsdp_attempts", kGauge, kCoordinator, "attempts", kByState,
     "Attempts of unfinished jobs by state (running, succeeded, failed, stopped)."},
    {"fsdp_job_attempt", kGauge, kCoordinator, "", kByJob,
     "Number of the current attempt of each unfinished job."},
    {"fsdp_job_epoch", kGauge, kCoordinator, "", kByJob,
     "Live epoch of each unfinished job; every (re)start of its ranks adds one."},
    {"fsdp_job_step", kGauge, kCoordinator, "steps", kByJob, "The last step of each running job."},
    {"fsdp_checkpoint_step", kGauge, kCoordinator, "steps", kByJob,
     "Step of the newest durable checkpoint of each unfinished job that saves; 0 before the "
     "first."},
    {"fsdp_checkpoint_interval_steps", kGauge, kCoordinator, "steps", kByJob,
     "checkpoint.everySteps of each unfinished job that saves by steps: fsdp_job_step minus "
     "fsdp_checkpoint_step is normally below it."},
    {"fsdp_straggler_score_ratio", kGauge, kCoordinator, "ratio", kByRank,
     "Own step time of the fastest rank over that of this rank, without waiting for peers, means "
     "of the last 16 steps without the longest: 1 is as fast as the fastest."},
    {"fsdp_collective_skew_seconds", kGauge, kCoordinator, "seconds", kByRank,
     "How much later than the first this rank comes to the collectives of a step, in all: what the "
     "others wait for."},
    {"fsdp_queue_depth", kGauge, kCoordinator, "jobs", kByQueueReason,
     "Queued jobs by why they wait (insufficient_devices, beyond_capacity, behind_others, quota, "
     "yielding, unknown_queue, array_limit, maintenance, backoff)."},
    {"fsdp_queue_quota_devices", kGauge, kCoordinator, "devices", kByQueueDevice,
     "Devices that a configured queue can count on (device cuda or cpu)."},
    {"fsdp_queue_max_devices", kGauge, kCoordinator, "devices", kByQueueDevice,
     "The most that a configured queue ever holds; no series without a limit."},
    {"fsdp_queue_used_devices", kGauge, kCoordinator, "devices", kByQueueDevice,
     "Devices held by a configured queue's jobs, those that are being stopped left out."},
    {"fsdp_queue_borrowed_devices", kGauge, kCoordinator, "devices", kByQueueDevice,
     "Of fsdp_queue_used_devices, those beyond the quota: others may take them back."},
    {"fsdp_queue_waiting_devices", kGauge, kCoordinator, "devices", kByQueueDevice,
     "Devices that a configured queue's waiting jobs ask for."},
    {"fsdp_queue_share_ratio", kGauge, kCoordinator, "ratio", kByQueueDevice,
     "What a configured queue uses over its fair part of the cluster by weight, among the queues "
     "that use or want devices: 1 is exactly that part."},
    {"fsdp_preemptions_total", kCounter, kCoordinator, "", kByQueueReason,
     "Jobs of a queue told to save and yield to another (reason reclaim: devices beyond the quota; "
     "priority: a higher one of the same queue)."},
    {"fsdp_queue_config_errors_total",
     kCounter,
     kCoordinator,
     "",
     {},
     "Changes of the queues' file that were not taken, as it had errors."},
    {"fsdp_maintenance", kGauge, kCoordinator, "", kByState,
     "1 while there is maintenance (state hold: nothing is placed; closed: no jobs are taken "
     "either)."},
    {"fsdp_coordinator_leader",
     kGauge,
     kCoordinator,
     "",
     {},
     "1 on the coordinator that leads, 0 on one that stands by (docs/high_availability.md)."},
    {"fsdp_queue_wait_seconds",
     kHistogram,
     kCoordinator,
     "seconds",
     {},
     "Time from a job's submission to its first placement.",
     kLongSeconds},
    {"fsdp_submit_seconds",
     kHistogram,
     kCoordinator,
     "seconds",
     {},
     "CreateJob from receipt to durable reply.",
     kShortSeconds},
    {"fsdp_store_fsync_seconds",
     kHistogram,
     kCoordinator,
     "seconds",
     {},
     "Durable commits of the job store; a slow disk shows here first.",
     kShortSeconds},
    {"fsdp_store_errors_total", kCounter, kCoordinator, "", {}, "Failed store commits."},
    {"fsdp_job_start_seconds",
     kHistogram,
     kCoordinator,
     "seconds",
     {},
     "Time from placement to the first step of an epoch.",
     kLongSeconds},
    {"fsdp_job_restarts_total", kCounter, kCoordinator, "", kByCause,
     "Restarts of jobs by cause (rank_died, rank_failed, worker_lost, hang, ...)."},
    {"fsdp_job_rank_changes_total", kCounter, kCoordinator, "", kByKind,
     "Epochs of elastic jobs with more (grown) or fewer (shrunk) ranks than the one before."},
    {"fsdp_stragglers_excluded_total",
     kCounter,
     kCoordinator,
     "",
     {},
     "Workers that a job gave up for a spare because their rank was too slow."},
    {"fsdp_jobs_finished_total", kCounter, kCoordinator, "jobs", kByState,
     "Jobs that reached a terminal state since the coordinator started."},
    {"fsdp_failure_detection_seconds", kHistogram, kCoordinator, "seconds", kByCause,
     "Time from the last sign of life to the decision that a rank or worker failed.", kLongSeconds},
    {"fsdp_recovery_seconds", kHistogram, kCoordinator, "seconds", kByCause,
     "Time from the decision that an epoch failed to the first step of the next.", kLongSeconds},
    {"fsdp_checkpoints_published_total",
     kCounter,
     kCoordinator,
     "checkpoints",
     {},
     "Checkpoint manifests admitted."},
    {"fsdp_stale_messages_total", kCounter, kCoordinator, "", kByKind,
     "Messages of an older epoch or incarnation that were refused, by kind (report, manifest, "
     "hello, "
     "rendezvous)."},
    // Coordinator: workers and service.
    {"fsdp_workers", kGauge, kCoordinator, "workers", kByState,
     "Known workers by state (ready, busy, suspect, lost, unplaceable, left)."},
    {"fsdp_worker_heartbeat_age_seconds", kGauge, kCoordinator, "seconds", kByWorker,
     "Time since the worker's last heartbeat; suspect at 5 s, lost at 10 s."},
    {"fsdp_worker_losses_total", kCounter, kCoordinator, "", kByReason,
     "Workers lost, by evidence (stream_closed, silent)."},
    {"fsdp_rpc_total", kCounter, kCoordinator, "", kByMethodCode,
     "Finished RPCs by method and code."},
    {"fsdp_rpc_denied_total", kCounter, kCoordinator, "", kByReason,
     "RPCs that were denied before they did anything, by why: who called is not known or may not, "
     "or asks for too much."},
    {"fsdp_audit_errors_total",
     kCounter,
     kCoordinator,
     "",
     {},
     "Tries to set room aside for, or to write, a line of the audit log that failed; calls that "
     "change something are refused meanwhile."},
    {"fsdp_access_reload_errors_total",
     kCounter,
     kCoordinator,
     "",
     {},
     "Changed access files that were not taken; the one before stays in force."},
    {"fsdp_reports_total", kCounter, kCoordinator, "reports", kByKind,
     "Worker reports made durable, by kind."},
    {"fsdp_admission_refused_total", kCounter, kCoordinator, "", kByCode,
     "Submissions refused, by gRPC code."},
    // Both.
    {"fsdp_tls_certificate_expiry_timestamp_seconds", kGauge, kBoth, "seconds", kByKind,
     "Unix time at which a certificate in use ends, by kind: server, server_ca, metrics, "
     "metrics_ca, "
     "worker, worker_ca; of authorities the first to end."},
    {"fsdp_tls_files_unusable", kGauge, kBoth, "", kByKind,
     "1 while the certificate files on disk cannot be used and what was read before them is in "
     "use, "
     "else 0; by kind."},
    {"fsdp_build_info", kGauge, kBoth, "", kByVersion, "Always 1; the version is in the label."},
    {"fsdp_start_timestamp_seconds",
     kGauge,
     kBoth,
     "seconds",
     {},
     "Unix time at which the process started."},
};

void AppendSection(std::string* page, MetricOwner owner, std::string_view title,
                   std::string_view text) {
  absl::StrAppend(page, "\n## ", ToAbsl(title), "\n\n", ToAbsl(text), "\n\n",
                  "| name | type | unit | labels | what it tells you |\n|---|---|---|---|---|\n");
  for (const MetricDescriptor& metric : kTable) {
    if (metric.owner != owner) continue;
    std::string labels;
    for (const std::string_view label : metric.labels) {
      absl::StrAppend(&labels, labels.empty() ? "" : ", ", "`", ToAbsl(label), "`");
    }
    absl::StrAppend(page, "| `", ToAbsl(metric.name), "` | ", ToAbsl(MetricTypeName(metric.type)),
                    " | ", ToAbsl(metric.unit), " | ", labels, " | ", ToAbsl(metric.help), " |\n");
  }
}

}  // namespace

std::span<const MetricDescriptor> MetricTable() { return kTable; }

std::span<const std::string_view> MetricLabelNames() { return kAllLabels; }

const MetricDescriptor* FindMetric(std::string_view name) {
  const auto* const found = std::ranges::find(kTable, name, &MetricDescriptor::name);
  return found == std::end(kTable) ? nullptr : found;
}

const MetricDescriptor& GetMetric(std::string_view name) {
  const MetricDescriptor* const found = FindMetric(name);
  FSDP_CHECK(found != nullptr, "no metric is named ", ToAbsl(name));
  return *found;
}

std::string_view MetricTypeName(MetricType type) {
  switch (type) {
    case kCounter:
      return "counter";
    case kGauge:
      return "gauge";
    case kHistogram:
      return "histogram";
  }
  return "";
}

std::string MetricLabelValue(std::string_view enum_name, std::string_view prefix) {
  if (enum_name.starts_with(prefix)) enum_name.remove_prefix(prefix.size());
  std::string value(enum_name);
  std::ranges::transform(value, value.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return value;
}

std::string MetricJobId(std::string_view job) {
  constexpr std::string_view kPrefix = "jobs/";
  if (job.starts_with(kPrefix)) job.remove_prefix(kPrefix.size());
  return std::string(job);
}

std::string MetricsMarkdown() {
  std::string page =
      "# Metrics\n\n"
      "<!-- Written by fsdp-metrics-doc from proto/support/metric_table.cc. Change the table, then "
      "run\n"
      "     `fsdp-metrics-doc > docs/metrics.md`. -->\n\n"
      "The coordinator and every worker host serve Prometheus text at `/metrics` "
      "(`--metrics-listen`).\n"
      "`fsdp-worker --devices=all` serves one endpoint for all devices of its host. Units are base "
      "units; ratios\n"
      "run from 0 to 1. Label values that name a state or cause are in lower case without the "
      "enum's prefix.\n"
      "The series of a job go away when it ends (workers keep them for `--metrics-linger`, 60 s, "
      "so "
      "that the\n"
      "last scrape sees them).\n";
  AppendSection(
      &page, kWorker, "Workers and ranks",
      "`job_id` is the job's id without `jobs/`. `rank` is the rank in the current epoch.");
  AppendSection(&page, kCoordinator, "Coordinator",
                "Of the process since it started. Counters stand at 0 from the start for every "
                "value that their label may\n"
                "have. Of `fsdp_rpc_total` that holds for code `OK` alone, and a histogram by "
                "cause begins with its cause's\n"
                "first failure.");
  AppendSection(&page, kBoth, "Both", "");
  absl::StrAppend(
      &page,
      "\n## Of the endpoint itself\n\n"
      "The library that serves `/metrics` (prometheus-cpp) adds three families of its own, without "
      "the prefix and\n"
      "in its own units; nothing of ours reads them.\n\n"
      "| name | type | unit | labels | what it tells you |\n|---|---|---|---|---|\n"
      "| `exposer_scrapes_total` | counter |  |  | Scrapes served. |\n"
      "| `exposer_transferred_bytes_total` | counter | bytes |  | Bytes sent in answer to "
      "scrapes. |\n"
      "| `exposer_request_latencies` | summary | microseconds | `quantile` | Time to answer a "
      "scrape. |\n");
  return page;
}

}  // namespace fsdp
