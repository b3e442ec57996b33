#include "worker/train/trainer_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/checkpoint_loader.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/weight_reader.h"
#include "worker/train/model_files.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

absl::Status Checkpoint(const absl::Status& status) {
  return WithCause(status, v1::FAILURE_CAUSE_CHECKPOINT);
}

}  // namespace

CheckpointManager::CheckpointManager(const RankSetup& setup, Engine& engine, Device& device,
                                     RankExchange& exchange, TrainerLink& link,
                                     const CheckpointOptions& options)
    : setup_(setup),
      engine_(engine),
      device_(device),
      exchange_(exchange),
      link_(link),
      options_(options),
      store_(*options.store),
      thread_(engine.plan().input.async_checkpoint ? std::make_unique<TaskThread>() : nullptr),
      saver_(store_, engine, device, thread_.get()) {}

absl::StatusOr<TrainingPosition> CheckpointManager::Restore() {
  return Load(setup_.resume_directory);
}

absl::StatusOr<TrainingPosition> CheckpointManager::RollBack() {
  RETURN_IF_ERROR(FinishShards());
  RETURN_IF_ERROR(ProposeBuilt(/*wait=*/true));
  // Rank 0 may wait for verdicts as long as no coordinator answers; no collective is pending for
  // longer than one of its looks.
  for (bool waiting = true; waiting;) {
    RETURN_IF_ERROR(Settle(absl::Seconds(1)));
    if (proposals_.empty()) RETURN_IF_ERROR(CheckPublished(/*wait=*/true));
    const double mine[] = {static_cast<double>(proposals_.size())};
    ASSIGN_OR_RETURN(const auto all, exchange_.Gather(mine, "rollback"));
    waiting = all.front().front() > 0;
  }
  last_step_ = 0;
  return Load(finite_directory_.empty() ? setup_.resume_directory : finite_directory_);
}

absl::StatusOr<TrainingPosition> CheckpointManager::Load(const std::string& directory) {
  TrainingPosition at;
  const std::string& init_from = setup_.spec().model().init_from();
  if (!directory.empty()) {
    ASSIGN_OR_RETURN(const std::vector<ShardTensor> tensors, engine_.OpenWeights());
    absl::StatusOr<Manifest> manifest = LoadCheckpoint(store_, directory, tensors, device_);
    if (!manifest.ok()) return Checkpoint(manifest.status());
    WarnOnOtherData(*manifest);
    at = {manifest->step,       manifest->position,        manifest->tokens,
          manifest->train_loss, manifest->validation_loss, manifest->evaluation_losses,
          manifest->numerics};
    last_step_ = manifest->step;
    RETURN_IF_ERROR(engine_.WeightsChanged());
    return at;
  }
  // Moments start at zero either way.
  RETURN_IF_ERROR(engine_.InitializeWeights(setup_.spec().train().seed()));
  if (init_from.empty()) return at;
  ASSIGN_OR_RETURN(const std::vector<ShardTensor> tensors, engine_.OpenWeights());
  RETURN_IF_ERROR(
      Checkpoint(Annotate(LoadWeights(store_, init_from, tensors, device_), "model.initFrom")));
  RETURN_IF_ERROR(engine_.WeightsChanged());
  return at;
}

void CheckpointManager::WarnOnOtherData(const Manifest& manifest) {
  const std::uint64_t now = setup_.data.train->identity().fingerprint;
  if (setup_.rank() != 0 || manifest.data_fingerprint == now) return;
  v1::TrainerToDaemon message;
  v1::RankNotice& notice = *message.mutable_notice();
  notice.set_type("DATA_CHANGED");
  notice.set_severity(v1::EVENT_SEVERITY_WARNING);
  notice.set_step(manifest.step);
  notice.set_message(absl::StrFormat(
      "the data (or its split or order) is not what the checkpoint of step %d was trained on: "
      "fingerprint 0x%016x, then 0x%016x; positions mean other sequences now",
      manifest.step, now, manifest.data_fingerprint));
  LOG_WARNING("%s", notice.message());
  link_.Send(message).IgnoreError();
}

// Whichever rank is heard first, its report has the reason of the one that failed: the others may
// be killed before theirs is read.
absl::Status CheckpointManager::ShareFailure(const absl::Status& mine, int failed_rank) {
  const absl::Status told = mine.ok() ? absl::OkStatus() : CheckpointNotWritten(mine);
  const std::string text(told.message());
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   exchange_.GatherTexts(text, "checkpoint failure"));
  if (!told.ok()) return told;
  return Checkpoint(
      WithPeer(absl::AbortedError(texts[static_cast<std::size_t>(failed_rank)]), failed_rank));
}

absl::Status CheckpointManager::Save(const TrainingPosition& at) {
  if (saving_.has_value()) {
    if (setup_.rank() == 0) {
      LOG_WARNING("step %d waits for the checkpoint of step %d, which is still being written",
                  at.step, saving_->at.step);
    }
    RETURN_IF_ERROR(FinishShards());
  }
  const std::int64_t epoch = setup_.assignment.key().epoch();
  RETURN_IF_ERROR(
      saver_.Begin(absl::StrCat(setup_.checkpoint_root, "/", StepDirectoryName(at.step, epoch))));
  saving_ = Saving{at};
  last_step_ = at.step;
  if (at.train_loss.has_value() && std::isfinite(*at.train_loss)) {
    finite_directory_ = saver_.directory();
  }
  if (thread_ != nullptr) return absl::OkStatus();
  // A coordinator that has not answered the last proposal keeps no further step waiting.
  const bool silent = !proposals_.empty();
  RETURN_IF_ERROR(FinishShards());
  return Settle(silent ? absl::ZeroDuration() : options_.verdict_wait);
}

ShardSaver::Progress CheckpointManager::progress() {
  const ShardSaver::Progress progress = saver_.progress();
  if (saving_.has_value() && !saving_->told && progress[0] == 1) {
    const ManifestFile& mine = saver_.mine();
    v1::TrainerToDaemon message;
    v1::CheckpointShardWritten& written = *message.mutable_shard_written();
    written.set_step(saving_->at.step);
    written.set_path(absl::StrCat(saver_.directory(), "/", mine.name));
    written.set_bytes(static_cast<std::int64_t>(mine.size_bytes));
    written.set_crc32c(mine.crc32c);
    // A daemon that is gone ends the rank by itself.
    link_.Send(message).IgnoreError();
    saving_->told = true;
  }
  return progress;
}

absl::Status CheckpointManager::OnProgress(std::span<const std::vector<double>> all,
                                           std::size_t first) {
  if (!saving_.has_value()) return absl::OkStatus();
  if (const std::optional<int> failed = ShardSaver::FailedRank(all, first)) {
    return ShareFailure(saver_.mine_status(), *failed);
  }
  ASSIGN_OR_RETURN(const auto files, saver_.Take(all, first));
  return files.has_value() ? Complete(*files) : absl::OkStatus();
}

absl::Status CheckpointManager::FinishShards() {
  if (!saving_.has_value()) return absl::OkStatus();
  saver_.Wait();
  ASSIGN_OR_RETURN(const auto all, exchange_.Gather(progress(), "checkpoint"));
  return OnProgress(all, 0);
}

absl::Status CheckpointManager::Complete(const std::vector<ManifestFile>& files) {
  const TrainingPosition at = std::exchange(saving_, std::nullopt)->at;
  if (setup_.rank() != 0) return absl::OkStatus();
  Manifest header;
  header.job = setup_.assignment.key().job();
  header.epoch = setup_.assignment.key().epoch();
  header.step = at.step;
  header.position = at.position;
  header.tokens = at.tokens;
  header.seed = setup_.spec().train().seed();
  header.model_hash = saver_.model_hash();
  header.data_fingerprint = setup_.data.train->identity().fingerprint;
  header.created = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  header.train_loss = at.train_loss;
  header.validation_loss = at.validation_loss;
  header.evaluation_losses = at.evaluation_losses;
  header.numerics = at.numerics;
  const auto build = [this, header, files,
                      directory = saver_.directory()]() -> absl::StatusOr<Proposal> {
    RETURN_IF_ERROR(Checkpoint(WriteModelConfig(store_, directory, setup_.plan.input.model,
                                                setup_.plan.input.sequence_length)));
    absl::StatusOr<Manifest> manifest = BuildManifest(store_, directory, header, files);
    if (!manifest.ok()) return CheckpointNotWritten(manifest.status());
    return Proposal{directory, *std::move(manifest)};
  };
  if (thread_ != nullptr) {
    built_.push_back(thread_->Run(build));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Proposal built, build());
  return Propose(built);
}

absl::Status CheckpointManager::Propose(const Proposal& built) {
  const Manifest& manifest = built.manifest;
  const PublishedManifest described = DescribeManifest(manifest);
  v1::TrainerToDaemon message;
  v1::CheckpointInfo& info = *message.mutable_manifest()->mutable_checkpoint();
  info.set_step(manifest.step);
  info.set_epoch(manifest.epoch);
  info.set_path(built.directory);
  info.set_world_size(manifest.world_size);
  info.set_size_bytes(static_cast<std::int64_t>(described.size_bytes));
  info.set_manifest_crc32c(described.crc32c);
  if (manifest.train_loss.has_value()) info.set_train_loss(*manifest.train_loss);
  if (manifest.validation_loss.has_value()) info.set_validation_loss(*manifest.validation_loss);
  for (const auto& [set, loss] : manifest.evaluation_losses) {
    v1::EvaluationLoss& told = *info.add_evaluations();
    told.set_name(set);
    told.set_loss(loss.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  info.mutable_create_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  proposals_[manifest.step] = built;
  return link_.Send(message);
}

absl::Status CheckpointManager::ProposeBuilt(bool wait) {
  while (!built_.empty() && (wait || IsReady(built_.front()))) {
    const absl::StatusOr<Proposal> built = built_.front().get();
    built_.pop_front();
    RETURN_IF_ERROR(built.status());
    RETURN_IF_ERROR(Propose(*built));
  }
  return absl::OkStatus();
}

absl::Status CheckpointManager::CheckPublished(bool wait) {
  while (!published_.empty() && (wait || IsReady(published_.front()))) {
    const absl::Status published = published_.front().get();
    published_.pop_front();
    if (!published.ok()) return CheckpointNotWritten(published);
  }
  return absl::OkStatus();
}

// In the order of steps: a later manifest is never published before an earlier one.
absl::Status CheckpointManager::Settle(absl::Duration wait) {
  while (!proposals_.empty()) {
    const auto first = proposals_.begin();
    const std::optional<v1::ManifestVerdict> verdict = link_.TakeVerdict(first->first, wait);
    if (!verdict.has_value()) return absl::OkStatus();
    const Proposal proposal = std::move(first->second);
    proposals_.erase(first);
    if (!verdict->admitted()) {
      return Checkpoint(absl::AbortedError(
          absl::StrFormat("the coordinator refused the checkpoint of step %d: %s", verdict->step(),
                          verdict->reason())));
    }
    if (thread_ != nullptr) {
      published_.push_back(thread_->Run([this, proposal] { return Publish(proposal); }));
      continue;
    }
    if (absl::Status published = Publish(proposal); !published.ok())
      return CheckpointNotWritten(published);
  }
  return absl::OkStatus();
}

absl::Status CheckpointManager::Publish(const Proposal& proposal) {
  RETURN_IF_ERROR(PublishManifest(store_, proposal.directory, proposal.manifest));
  LOG_INFO("checkpoint of step %d published: %s", proposal.manifest.step, proposal.directory);
  v1::TrainerToDaemon message;
  message.mutable_published()->set_step(proposal.manifest.step);
  RETURN_IF_ERROR(link_.Send(message));
  const absl::Status retained =
      ApplyRetention(store_, setup_.checkpoint_root, setup_.retention,
                     {.epoch = proposal.manifest.epoch,
                      .resume_step = setup_.assignment.has_resume() ? setup_.resume->step : 0});
  // What could not be removed costs disk, not the job.
  if (!retained.ok()) LOG_WARNING("old checkpoints stay: %s", std::string(retained.message()));
  return absl::OkStatus();
}

absl::Status CheckpointManager::Poll() {
  RETURN_IF_ERROR(ProposeBuilt(/*wait=*/false));
  RETURN_IF_ERROR(CheckPublished(/*wait=*/false));
  return proposals_.empty() ? absl::OkStatus() : Settle(absl::ZeroDuration());
}

absl::Status CheckpointManager::Finish() {
  RETURN_IF_ERROR(FinishShards());
  RETURN_IF_ERROR(ProposeBuilt(/*wait=*/true));
  while (!proposals_.empty()) RETURN_IF_ERROR(Settle(absl::Seconds(1)));
  return CheckPublished(/*wait=*/true);
}

}  // namespace fsdp
