#include "worker/train/local_launch.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/train/signal_dump.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_report.h"

namespace fsdp {
namespace {

// Nobody to report to and nobody to wait for.
class LocalLink final : public TrainerLink, private RendezvousStore {
 public:
  explicit LocalLink(const LocalRunOptions& options, int rank)
      : profile_after_steps_(options.profile_after_steps) {
    if (!options.profile.has_value()) return;
    profile_.emplace();
    profile_->set_profile("local");
    *profile_->mutable_options() = *options.profile;
    profile_->set_path(RankProfilePath(options.profile_folder, rank));
    const auto& ranks = options.profile->ranks();
    const bool asked = ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    if (!asked) profile_.reset();
  }

  absl::Status Send(const v1::TrainerToDaemon& message) override {
    if (message.has_step()) ++num_steps_;
    const v1::ProfileState profile = message.profile().state();
    if (profile == v1::PROFILE_STATE_FAILED) {
      LOG_ERROR("the profile failed: %s", message.profile().message());
    }
    profiled_ =
        profiled_ || profile == v1::PROFILE_STATE_FAILED || profile == v1::PROFILE_STATE_DONE;
    if (!message.has_manifest()) return absl::OkStatus();
    v1::ManifestVerdict verdict;
    verdict.set_step(message.manifest().checkpoint().step());
    verdict.set_admitted(true);
    const std::lock_guard<std::mutex> lock(mutex_);
    verdicts_[verdict.step()] = verdict;
    return absl::OkStatus();
  }
  absl::StatusOr<v1::CommitEpoch> WaitCommit() override { return v1::CommitEpoch(); }
  std::optional<v1::ManifestVerdict> TakeVerdict(std::int64_t step,
                                                 absl::Duration /*wait*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = verdicts_.find(step);
    if (found == verdicts_.end()) return std::nullopt;
    v1::ManifestVerdict verdict = found->second;
    verdicts_.erase(found);
    return verdict;
  }
  // A profile is all that was asked for.
  std::optional<v1::TrainerStop> stop() override {
    if (!profiled_) return std::nullopt;
    v1::TrainerStop stop;
    stop.set_mode(v1::STOP_MODE_DRAIN);
    stop.set_reason("the profile is done");
    return stop;
  }
  // Asked before the step's own report is sent.
  std::optional<v1::TrainerProfile> TakeProfile() override {
    if (num_steps_ + 1 < profile_after_steps_) return std::nullopt;
    return std::exchange(profile_, std::nullopt);
  }
  RendezvousStore& rendezvous() override { return *this; }
  void OnDump(std::function<void()> /*handler*/) override {}

 private:
  // The communicators come connected.
  absl::Status Put(const std::string& /*name*/, const std::string& /*value*/) override {
    return absl::UnimplementedError("a local run has no rendezvous");
  }
  absl::StatusOr<std::string> Get(const std::string& /*name*/, absl::Duration /*wait*/) override {
    return absl::UnimplementedError("a local run has no rendezvous");
  }

  const std::int64_t profile_after_steps_;
  std::atomic<std::int64_t> num_steps_ = 0;
  std::atomic<bool> profiled_ = false;
  std::optional<v1::TrainerProfile> profile_;  // of the step thread
  std::mutex mutex_;
  std::map<std::int64_t, v1::ManifestVerdict> verdicts_;
};

// Another rank's communicator, passed on without its ownership.
class Borrowed final : public Communicator {
 public:
  explicit Borrowed(Communicator& inner) : inner_(inner) {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int world_size() const override { return inner_.world_size(); }
  [[nodiscard]] std::string kind() const override { return inner_.kind(); }
  absl::Status AllGather(const Vector& shard, const Vector& unit, Stream& stream) override {
    return inner_.AllGather(shard, unit, stream);
  }
  absl::Status ReduceScatter(const Vector& unit, const Vector& shard, Stream& stream) override {
    return inner_.ReduceScatter(unit, shard, stream);
  }
  absl::Status AllReduce(const Vector& data, Stream& stream) override {
    return inner_.AllReduce(data, stream);
  }
  absl::Status Broadcast(const Vector& data, int root, Stream& stream) override {
    return inner_.Broadcast(data, root, stream);
  }
  absl::Status Barrier(Stream& stream) override { return inner_.Barrier(stream); }
  [[nodiscard]] bool wants_registration() const override { return inner_.wants_registration(); }
  absl::Status Register(const DeviceBuffer& buffer) override { return inner_.Register(buffer); }
  void Deregister(const DeviceBuffer& buffer) override { inner_.Deregister(buffer); }
  void SetLabel(std::string_view label) override { inner_.SetLabel(label); }
  void Abort(const std::string& reason) override { inner_.Abort(reason); }
  [[nodiscard]] absl::Status Health() const override { return inner_.Health(); }

 private:
  Communicator& inner_;
};

// A folder of its own for each run: checkpoints of an earlier run are never written over.
std::string LocalJobName(const v1::TrainingJob& job) {
  return absl::StrFormat("jobs/%s-local-%s-%d", job.metadata().name(),
                         absl::FormatTime("%Y%m%d%H%M%S", absl::Now(), absl::UTCTimeZone()),
                         ::getpid());
}

void Print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace

std::string RankProfilePath(const std::string& folder, int rank) {
  return absl::StrFormat("%s/rank-%05d.pb", folder, rank);
}

std::string DescribeResult(const v1::JobResult& result) {
  std::string text = absl::StrFormat("%d steps, %d tokens in %.1f s: train loss ", result.steps(),
                                     result.tokens(), result.run_seconds());
  if (std::isnan(result.train_loss())) {
    absl::StrAppend(&text, "not known");
  } else {
    absl::StrAppendFormat(&text, "%.4f", result.train_loss());
  }
  if (result.has_validation_loss()) {
    absl::StrAppend(&text, ", validation loss ", FormatLoss(result.validation_loss()));
    if (result.has_bytes_per_token()) {
      absl::StrAppend(
          &text, " (",
          FormatLoss(result.validation_loss() / std::numbers::ln2 / result.bytes_per_token()),
          " bits per byte)");
    }
  }
  if (result.has_unigram_entropy()) {
    absl::StrAppendFormat(&text, "; unigram entropy %.4f", result.unigram_entropy());
  }
  if (result.has_bigram_conditional_entropy()) {
    absl::StrAppendFormat(&text, ", bigram conditional entropy %.4f",
                          result.bigram_conditional_entropy());
  }
  return text;
}

absl::StatusOr<v1::TrainerDone> RunLocalJob(const LocalRunOptions& options,
                                            const TrainerBackend& backend) {
  v1::StartRank assignment;
  *assignment.mutable_job() = options.job;
  assignment.mutable_key()->set_job(LocalJobName(options.job));
  assignment.mutable_key()->set_attempt(1);
  assignment.mutable_key()->set_epoch(1);
  assignment.set_world_size(options.local_ranks);
  assignment.set_local_world_size(options.local_ranks);
  LocalRanksOptions ranks;
  ranks.world_size = options.local_ranks;
  ranks.communicator = options.communicator;
  ranks.deterministic = options.job.spec().train().deterministic();
  const v1::ShardingSpec& sharding = options.job.spec().sharding();
  ranks.num_communicators = sharding.has_communicators() ? sharding.communicators() : 2;

  std::optional<absl::StatusOr<v1::TrainerDone>> of_rank_0;
  const absl::Status status = RunLocalRanks(ranks, backend.local, [&](LocalRank& local) {
    TrainerRun run;
    *run.start.mutable_assignment() = assignment;
    run.start.mutable_assignment()->mutable_key()->set_rank(local.rank);
    run.start.mutable_assignment()->set_local_rank(local.rank);
    // Devices of one machine are alike.
    if (backend.local.memory_bytes) {
      run.start.mutable_assignment()->set_device_memory_bytes(
          backend.local.memory_bytes(local.device));
    }
    run.print = Print;
    run.data.cache.program = TokenizeProgram();
    run.data.cache.directory = TokenCacheDirectory("");
    run.measure_ceilings = backend.measure_ceilings;
    run.marker = backend.marker;
    run.counters = backend.counters;
    run.on_recorder = DumpOnSignal;
    run.memory_in_use_bytes = backend.memory_in_use_bytes;
    run.connect = [&local](const v1::CommitEpoch&) -> absl::StatusOr<RankCommunicators> {
      RankCommunicators communicators;
      if (local.gather != nullptr) communicators.gather = std::make_unique<Borrowed>(*local.gather);
      if (local.scatter != nullptr && local.scatter != local.gather) {
        communicators.scatter = std::make_unique<Borrowed>(*local.scatter);
      }
      return communicators;
    };
    // For the ceilings, which the first rank measures for all.
    if (options.profile.has_value()) run.start.set_cache_dir(options.profile_folder);
    LocalLink link(options, local.rank);
    absl::StatusOr<v1::TrainerDone> done = RunRank(run, link, local.device);
    const absl::Status result = done.status();
    if (local.rank == 0) of_rank_0 = std::move(done);
    return result;
  });
  if (of_rank_0.has_value() && !of_rank_0->ok()) return *of_rank_0;
  RETURN_IF_ERROR(status);
  return *of_rank_0;
}

}  // namespace fsdp
