#include "worker/train/shard_saver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace fsdp {
namespace {

enum class State : int { kWriting = 0, kWritten = 1, kFailed = 2 };

State StateOf(double told) { return static_cast<State>(static_cast<int>(told)); }

}  // namespace

ShardSaver::~ShardSaver() {
  cancelled_ = true;
  if (written_.valid()) written_.wait();
}

absl::Status ShardSaver::Begin(const std::string& directory) {
  directory_ = directory;
  mine_.reset();
  const int rank = engine_.rank();
  if (thread_ == nullptr) {
    ASSIGN_OR_RETURN(const std::vector<ShardTensor> tensors, engine_.OpenWeights());
    model_hash_ = ModelHash(tensors);
    mine_ = WriteShard(store_, directory, rank, tensors, device_);
    busy_ = true;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Snapshot snapshot, engine_.TakeSnapshot());
  model_hash_ = ModelHash(snapshot.tensors);
  written_ = thread_->Run(
      [this, directory, rank, snapshot = std::move(snapshot)]() -> absl::StatusOr<ManifestFile> {
        RETURN_IF_ERROR(device_.Synchronize(*snapshot.copied));
        return WriteSnapshot(store_, directory, rank, snapshot.tensors, cancelled_);
      });
  busy_ = true;
  return absl::OkStatus();
}

void ShardSaver::Wait() {
  if (written_.valid()) mine_ = written_.get();
}

ShardSaver::Progress ShardSaver::progress() {
  if (written_.valid() && IsReady(written_)) Wait();
  if (!busy_ || !mine_.has_value()) return {static_cast<double>(State::kWriting), 0, 0};
  if (!mine_->ok()) return {static_cast<double>(State::kFailed), 0, 0};
  return {static_cast<double>(State::kWritten), static_cast<double>((*mine_)->size_bytes),
          static_cast<double>((*mine_)->crc32c)};
}

std::optional<int> ShardSaver::FailedRank(std::span<const std::vector<double>> all,
                                          std::size_t first) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (StateOf(all[rank][first]) == State::kFailed) return static_cast<int>(rank);
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<std::vector<ManifestFile>>> ShardSaver::Take(
    std::span<const std::vector<double>> all, std::size_t first) {
  if (const std::optional<int> failed = FailedRank(all, first)) {
    RETURN_IF_ERROR(mine_status());
    return absl::AbortedError(
        absl::StrCat("rank ", *failed, " could not write its shard to ", directory_));
  }
  std::vector<ManifestFile> files;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (StateOf(all[rank][first]) != State::kWritten) return std::nullopt;
    files.push_back({ShardFileName(static_cast<int>(rank)),
                     static_cast<std::uint64_t>(all[rank][first + 1]),
                     static_cast<std::uint32_t>(all[rank][first + 2])});
  }
  busy_ = false;
  return files;
}

}  // namespace fsdp
