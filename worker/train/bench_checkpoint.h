#ifndef FSDPCTL_WORKER_TRAIN_BENCH_CHECKPOINT_H_
#define FSDPCTL_WORKER_TRAIN_BENCH_CHECKPOINT_H_

// Checkpoints of a benchmark: what saving costs the steps, and how long until it is durable. As a
// job saves, without a coordinator between; the newest checkpoint stays.

#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/support/clock.h"
#include "worker/checkpoint/task_thread.h"
#include "worker/train/engine.h"
#include "worker/train/local_ranks.h"
#include "worker/train/shard_saver.h"
#include "worker/train/trainer_exchange.h"

namespace fsdp {

// Of rank 0.
struct CheckpointFigures {
  std::vector<double> blocking_seconds;  // of each save: how long no step could run
  std::vector<double> durable_seconds;   // from a save's begin to its manifest on disk
  std::uint64_t size_bytes = 0;          // of one checkpoint, all ranks
};

class BenchCheckpoints {
 public:
  // Engine and rank outlive it. Asynchronous when the engine's plan is.
  static absl::StatusOr<std::unique_ptr<BenchCheckpoints>> Create(const std::string& directory,
                                                                  Engine& engine, LocalRank& rank);

  // On every rank, after each step; `save`: that step is saved.
  absl::Status AfterStep(std::int64_t step, bool save);
  // On every rank: waits for what is being written.
  absl::StatusOr<CheckpointFigures> Finish();

 private:
  BenchCheckpoints(std::string directory, Engine& engine, LocalRank& rank,
                   std::unique_ptr<RankExchange> exchange);
  absl::Status Exchange();
  absl::Status Complete(const std::vector<ManifestFile>& files);
  absl::Status TakeDurable(bool wait);

  const std::string root_;
  LocalRank& rank_;
  const std::unique_ptr<RankExchange> exchange_;
  const std::unique_ptr<TaskThread> thread_;  // null: synchronous
  ShardSaver saver_;
  std::int64_t step_ = 0;  // of the newest save
  MonotonicTime begin_;    // of that
  std::deque<std::future<absl::StatusOr<double>>> durable_;
  CheckpointFigures figures_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_BENCH_CHECKPOINT_H_
