#include "worker/train/bench_checkpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/support/clock.h"
#include "proto/support/status.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace fsdp {
namespace {

double SecondsSince(MonotonicTime begin) {
  return absl::ToDoubleSeconds(Clock::Real().Now() - begin);
}

}  // namespace

BenchCheckpoints::BenchCheckpoints(std::string directory, Engine& engine, LocalRank& rank,
                                   std::unique_ptr<RankExchange> exchange)
    : root_(std::move(directory)),
      rank_(rank),
      exchange_(std::move(exchange)),
      thread_(engine.plan().input.async_checkpoint ? std::make_unique<TaskThread>() : nullptr),
      saver_(BlobStore::Posix(), engine, rank.device, thread_.get()) {}

absl::StatusOr<std::unique_ptr<BenchCheckpoints>> BenchCheckpoints::Create(
    const std::string& directory, Engine& engine, LocalRank& rank) {
  RETURN_IF_ERROR(BlobStore::Posix().CreateDirectory(directory));
  ASSIGN_OR_RETURN(auto exchange, RankExchange::Create(engine, rank.device, rank.gather));
  return std::unique_ptr<BenchCheckpoints>(
      new BenchCheckpoints(directory, engine, rank, std::move(exchange)));
}

absl::Status BenchCheckpoints::Exchange() {
  ASSIGN_OR_RETURN(const auto all, exchange_->Gather(saver_.progress(), "checkpoint"));
  ASSIGN_OR_RETURN(const auto files, saver_.Take(all, 0));
  return files.has_value() ? Complete(*files) : absl::OkStatus();
}

absl::Status BenchCheckpoints::AfterStep(std::int64_t step, bool save) {
  RETURN_IF_ERROR(TakeDurable(/*wait=*/false));
  if (!save) return saver_.busy() ? Exchange() : absl::OkStatus();
  const MonotonicTime begin = Clock::Real().Now();
  if (saver_.busy()) {
    saver_.Wait();
    RETURN_IF_ERROR(Exchange());
  }
  step_ = step;
  begin_ = begin;
  RETURN_IF_ERROR(saver_.Begin(absl::StrCat(root_, "/", StepDirectoryName(step, /*epoch=*/1))));
  if (thread_ == nullptr) RETURN_IF_ERROR(Exchange());
  figures_.blocking_seconds.push_back(SecondsSince(begin));
  return absl::OkStatus();
}

absl::Status BenchCheckpoints::Complete(const std::vector<ManifestFile>& files) {
  if (rank_.rank != 0) return absl::OkStatus();
  Manifest header;
  header.job = "jobs/bench";
  header.epoch = 1;
  header.step = step_;
  header.model_hash = saver_.model_hash();
  header.created = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  figures_.size_bytes = 0;
  for (const ManifestFile& file : files) figures_.size_bytes += file.size_bytes;
  const auto publish = [root = root_, directory = saver_.directory(), header, files,
                        begin = begin_]() -> absl::StatusOr<double> {
    BlobStore& store = BlobStore::Posix();
    ASSIGN_OR_RETURN(const Manifest manifest, BuildManifest(store, directory, header, files));
    RETURN_IF_ERROR(PublishManifest(store, directory, manifest));
    const double seconds = SecondsSince(begin);
    RETURN_IF_ERROR(ApplyRetention(store, root, {.keep_last = 1}, {.epoch = 1}));
    return seconds;
  };
  if (thread_ != nullptr) {
    durable_.push_back(thread_->Run(publish));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const double seconds, publish());
  figures_.durable_seconds.push_back(seconds);
  return absl::OkStatus();
}

absl::Status BenchCheckpoints::TakeDurable(bool wait) {
  while (!durable_.empty() && (wait || IsReady(durable_.front()))) {
    ASSIGN_OR_RETURN(const double seconds, durable_.front().get());
    durable_.pop_front();
    figures_.durable_seconds.push_back(seconds);
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFigures> BenchCheckpoints::Finish() {
  if (saver_.busy()) {
    saver_.Wait();
    RETURN_IF_ERROR(Exchange());
  }
  RETURN_IF_ERROR(TakeDurable(/*wait=*/true));
  return figures_;
}

}  // namespace fsdp
