#ifndef FSDPCTL_WORKER_TRAIN_SHARD_SAVER_H_
#define FSDPCTL_WORKER_TRAIN_SHARD_SAVER_H_

// A rank's part in a save: its shard, written while the step waits or, with a plan of
// async_checkpoint, from a snapshot on a thread of its own; and the agreement that all ranks have
// written theirs.
//
//   Begin -> [exchange progress() between ranks -> Take]... -> the files of all ranks
//
// Thread rule: the step thread.

#include <array>
#include <atomic>
#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/task_thread.h"
#include "worker/train/engine.h"

namespace fsdp {

class ShardSaver {
 public:
  // What a rank tells the others: whether it has written (0: not yet, 1: yes, 2: it failed), and
  // the file's size (exact in a double up to 8 PiB) and CRC-32C.
  using Progress = std::array<double, 3>;

  // All outlive it. `thread`: null writes in Begin.
  ShardSaver(BlobStore& store, Engine& engine, Device& device, TaskThread* thread)
      : store_(store), engine_(engine), device_(device), thread_(thread) {}
  // Gives up what is being written.
  ~ShardSaver();
  ShardSaver(const ShardSaver&) = delete;
  ShardSaver& operator=(const ShardSaver&) = delete;

  // Not while busy. Errors of the store come from Take; those of the engine from here.
  absl::Status Begin(const std::string& directory);
  // Between Begin and the end of Take.
  [[nodiscard]] bool busy() const { return busy_; }
  // Blocks until this rank's shard is written or has failed.
  void Wait();
  [[nodiscard]] Progress progress();
  // This rank's file, once progress() has said that it is written.
  [[nodiscard]] const ManifestFile& mine() const { return **mine_; }
  // Why this rank's shard could not be written; OK: it is, or will be.
  [[nodiscard]] absl::Status mine_status() const {
    return mine_.has_value() ? mine_->status() : absl::OkStatus();
  }
  // The first rank whose progress says that it failed.
  static std::optional<int> FailedRank(std::span<const std::vector<double>> all, std::size_t first);
  // `all`: what every rank says, its progress from `first` on. Nothing: not all have written. An
  // error, on all ranks alike, when one could not.
  //   ABORTED  another rank's; its own rank says why
  absl::StatusOr<std::optional<std::vector<ManifestFile>>> Take(
      std::span<const std::vector<double>> all, std::size_t first);
  // Of the newest Begin.
  [[nodiscard]] std::uint64_t model_hash() const { return model_hash_; }
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  BlobStore& store_;
  Engine& engine_;
  Device& device_;
  TaskThread* const thread_;
  std::string directory_;
  std::uint64_t model_hash_ = 0;
  bool busy_ = false;
  std::atomic<bool> cancelled_{false};
  std::future<absl::StatusOr<ManifestFile>> written_;  // valid while the thread has it
  std::optional<absl::StatusOr<ManifestFile>> mine_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_SHARD_SAVER_H_
