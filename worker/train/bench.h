#ifndef FSDPCTL_WORKER_TRAIN_BENCH_H_
#define FSDPCTL_WORKER_TRAIN_BENCH_H_

// Measures training steps on random tokens: `fsdp-trainer bench`. The fields of its line are those
// of the PyTorch peer's, so that the two can be laid side by side.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "worker/device/dtype.h"
#include "worker/device/ops.h"
#include "worker/plan/model_config.h"
#include "worker/profile/family_recorder.h"
#include "worker/train/bench_checkpoint.h"
#include "worker/train/bench_floor.h"
#include "worker/train/local_ranks.h"

namespace fsdp {

struct BenchOptions {
  ModelConfig model;
  std::int64_t batch = 8;  // sequences of one micro-batch of one rank
  std::int64_t sequence_length = 1024;
  std::int64_t steps = 20;
  std::int64_t warmup = 5;
  std::int64_t accumulate = 1;  // micro-batches per step
  DType parameter_dtype = DType::kBf16;
  DType reduce_dtype = DType::kF32;
  v1::RecomputePolicy recompute = v1::RECOMPUTE_POLICY_AUTO;
  int prefetch = 1;
  std::int64_t device_memory_gb = 0;  // 10^9 bytes that a rank may take; 0: the device's own
  // MiB of logits at a time; 0: the plan's default.
  std::int64_t logits_chunk_mib = 0;
  int num_communicators = 2;
  bool reshard_after_forward = true;
  int world_size = 1;
  CommunicatorKind communicator = CommunicatorKind::kInProcess;
  BufferRegistration registration = kDefaultRegistration;  // nccl
  // False lets the host run ahead of the device.
  bool synchronous = true;
  // Seconds by kernel family on any device, at the price of slower steps (EngineOptions).
  bool time_families = false;
  bool graphs = true;  // device graphs (EngineOptions)
  // Afterwards, what the step could not go below (bench_floor.h); world size 1.
  bool floor = false;
  bool deterministic = false;
  // Checkpoints after every so many measured steps, to this folder; empty: none.
  std::string checkpoint_directory;
  std::int64_t checkpoint_every = 0;
  bool checkpoint_async = false;
  bool checksum = false;   // of the weights after the last step (weights_checksum.h)
  std::uint64_t seed = 0;  // of weights and tokens; below 2^31
};

// Figures of rank 0.
struct BenchReport {
  BenchOptions options;
  std::int64_t parameters = 0;
  double model_flops_per_rank_step = 0;
  std::vector<double> step_seconds;  // of the measured steps
  std::vector<double> losses;        // of all steps
  // Of the measured steps from the first's begin to the last's end, with what lies between them.
  double wall_seconds = 0;
  double first_step_seconds = 0;
  // From the start of the process to the end of the first step.
  double start_to_first_step_seconds = 0;
  std::int64_t peak_bytes = 0;     // allocated on the device
  std::int64_t planned_bytes = 0;  // by the plan, context included
  double predicted_seconds = 0;    // of a step, by the plan; 0: it does not know the device
  std::int64_t device_bytes = 0;   // as the device or the operating system counts them
  AttentionKernels attention;      // what attended
  v1::StepPhases phases;           // mean of the measured steps
  FamilyTable families{};          // of the measured steps
  double launch_gap_seconds = 0;   // mean of the measured steps, with time_families
  std::optional<std::uint32_t> checksum;
  std::optional<StepFloor> floor;
  std::optional<CheckpointFigures> checkpoints;

  [[nodiscard]] double MedianSeconds() const;
  // One line.
  [[nodiscard]] std::string ToJson() const;
};

absl::StatusOr<BenchReport> RunBench(const BenchOptions& options, const LocalBackend& backend);

// One rank's part, on a device and communicators that the caller made (options.world_size ranks).
absl::StatusOr<BenchReport> RunBenchRank(const BenchOptions& options, const LocalBackend& backend,
                                         LocalRank& rank);

//   INVALID_ARGUMENT  names flag, value and what it may be
absl::StatusOr<BenchOptions> ParseBenchOptions(std::span<const std::string> arguments,
                                               const LocalBackend& backend);

// What `fsdp-trainer bench --help` prints.
extern const char kBenchUsage[];

// `fsdp-trainer bench ARGUMENTS`: prints the line; returns the exit code (0, 1 failed, 2 usage).
int BenchMain(std::span<const std::string> arguments, const LocalBackend& backend);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_BENCH_H_
