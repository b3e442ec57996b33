#include "worker/train/trainer_setup.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"
#include "proto/support/spec.h"
#include "proto/support/status.h"
#include "worker/checkpoint/checkpoint_loader.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/device/ops.h"
#include "worker/train/engine.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

static_assert(kNoTarget == kIgnoreTarget, "what data leaves out, the loss must");

constexpr char kTokenFile[] = ".fsdp-directory-token";

// "jobs/llama-1a2b3c4d" -> "llama-1a2b3c4d".
std::string JobFolder(const std::string& job) {
  const std::size_t slash = job.rfind('/');
  return slash == std::string::npos ? job : job.substr(slash + 1);
}

std::int64_t CeilDivide(double numerator, double denominator) {
  return static_cast<std::int64_t>(std::ceil(numerator / denominator));
}

absl::StatusOr<std::int64_t> TotalSteps(const RankSetup& setup) {
  const v1::LimitSpec& limits = setup.spec().limits();
  if (limits.max_steps() > 0) return limits.max_steps();
  if (limits.max_tokens() > 0) {
    return CeilDivide(static_cast<double>(limits.max_tokens()),
                      static_cast<double>(setup.plan.tokens_per_step));
  }
  if (limits.max_passes() > 0) {
    const std::int64_t sequences = setup.data.train->num_sequences();
    if (sequences == 0) {
      return absl::InvalidArgumentError(
          "limits.maxPasses: synthetic data has no end; use limits.maxSteps or limits.maxTokens");
    }
    return std::max<std::int64_t>(1,
                                  CeilDivide(limits.max_passes() * static_cast<double>(sequences),
                                             static_cast<double>(setup.plan.input.global_batch)));
  }
  return absl::InvalidArgumentError(
      "limits: one of maxSteps, maxTokens and maxPasses must be above 0");
}

absl::Status SetUpData(const DataAccess& access, RankSetup* setup) {
  const std::int64_t vocab = setup->plan.input.model.vocab_size;
  ASSIGN_OR_RETURN(JobData data, OpenJobData(setup->spec(), vocab, access));
  setup->data = std::move(data.set);
  setup->bytes_per_token = data.bytes_per_token;
  if (setup->rank() != 0) return absl::OkStatus();
  // Of the split whose loss they are compared with.
  const bool validated = setup->data.validation != nullptr;
  ASSIGN_OR_RETURN(const std::optional<EntropyStats> stats,
                   SplitEntropy(validated ? *setup->data.validation : *setup->data.train));
  if (stats.has_value()) {
    setup->unigram_entropy = stats->unigram;
    setup->bigram_conditional_entropy = stats->bigram_conditional;
  }
  return absl::OkStatus();
}

//   DATA_LOSS  the folder is there without a manifest: the rank that was to write it ended before,
//              and waiting will not help. (One that is not there at all may only not be mounted.)
absl::Status CheckWritten(BlobStore& store, const std::string& directory) {
  const absl::Status opened = store.Open(absl::StrCat(directory, "/", kManifestName)).status();
  if (!absl::IsNotFound(opened) || !store.List(directory).ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(directory, " is no checkpoint: it has no ", kManifestName,
                                          ", so the rank that was to write it ended before"));
}

// Of the checkpoints that the coordinator admitted, leaves the newest that exists.
//   DATA_LOSS  none does, and the job may not begin without
absl::Status PassOverUnwritten(BlobStore& store, v1::StartRank* assignment) {
  for (const v1::CheckpointInfo& older : assignment->resume_before()) {
    const absl::Status written = CheckWritten(store, assignment->resume().path());
    if (!absl::IsDataLoss(written)) return absl::OkStatus();
    LOG_WARNING("%s", std::string(written.message()));
    *assignment->mutable_resume() = older;
  }
  const absl::Status written = CheckWritten(store, assignment->resume().path());
  if (absl::IsDataLoss(written) && assignment->resume_or_begin()) {
    LOG_WARNING("%s", std::string(written.message()));
    assignment->clear_resume();
    return absl::OkStatus();
  }
  return written;
}

// A job's folder is not taken for its newest checkpoint: ranks would choose at different moments.
absl::StatusOr<Manifest> ReadResumeManifest(BlobStore& store, const std::string& directory) {
  absl::StatusOr<Manifest> manifest = ReadManifest(store, directory);
  if (!absl::IsNotFound(manifest.status())) return manifest;
  const absl::StatusOr<CatalogEntry> newest = FindNewestCheckpoint(store, directory);
  if (!newest.ok()) return manifest;
  return absl::NotFoundError(absl::StrCat("spec.checkpoint.resumeFrom: ", directory,
                                          " holds a job's checkpoints, the newest is ",
                                          newest->path, ": name that one"));
}

absl::Status SetUpCheckpoints(RankSetup* setup) {
  const v1::CheckpointSpec& spec = setup->spec().checkpoint();
  setup->retention.keep_last = spec.has_keep_last() ? spec.keep_last() : 2;
  setup->retention.keep_every_steps = spec.keep_every_steps();
  setup->retention.keep_best = spec.keep_best();
  setup->retention.best_by = BestBySet(setup->spec());
  BlobStore& store = BlobStore::Posix();
  if (!spec.dir().empty()) {
    setup->checkpoint_root =
        absl::StrCat(spec.dir(), "/", JobFolder(setup->assignment.key().job()));
    const absl::Status made = store.CreateDirectory(setup->checkpoint_root);
    if (!made.ok()) return CheckpointNotWritten(made);
  }
  if (setup->assignment.has_resume()) {
    RETURN_IF_ERROR(PassOverUnwritten(store, &setup->assignment));
  }
  setup->resume_directory =
      setup->assignment.has_resume() ? setup->assignment.resume().path() : spec.resume_from();
  if (setup->resume_directory.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(setup->resume, ReadResumeManifest(store, setup->resume_directory));
  const v1::CheckpointInfo& info = setup->assignment.resume();
  const std::uint32_t crc = DescribeManifest(*setup->resume).crc32c;
  if (info.manifest_crc32c() != 0 && info.manifest_crc32c() != crc) {
    return absl::DataLossError(
        absl::StrFormat("%s: the manifest's CRC-32C is 0x%08x, the coordinator admitted 0x%08x",
                        setup->resume_directory, crc, info.manifest_crc32c()));
  }
  return absl::OkStatus();
}

std::string RandomToken() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

}  // namespace

std::string NothingToTrain(const RankSetup& setup, std::int64_t step) {
  const v1::LimitSpec& limits = setup.spec().limits();
  std::string limit = absl::StrCat("limits.maxSteps ", limits.max_steps());
  if (limits.max_tokens() > 0) limit = absl::StrCat("limits.maxTokens ", limits.max_tokens());
  if (limits.max_passes() > 0) limit = absl::StrCat("limits.maxPasses ", limits.max_passes());
  return absl::StrCat("nothing left to train: the checkpoint ", setup.resume_directory,
                      " is at step ", step, ", and ", limit, " ends the job at step ",
                      setup.total_steps, "; raise the limit to train on");
}

absl::StatusOr<RankSetup> SetUpRank(const v1::StartRank& assignment, Device& device,
                                    const DataAccess& access) {
  RankSetup setup;
  setup.assignment = assignment;
  if (setup.world_size() < 1 || setup.rank() < 0 || setup.rank() >= setup.world_size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rank %d is not one of %d", setup.rank(), setup.world_size()));
  }
  ASSIGN_OR_RETURN(const PlanInput input, PlanInputFromJob(assignment.job(), setup.world_size(),
                                                           assignment.device_memory_bytes()));
  ASSIGN_OR_RETURN(setup.plan, Engine::PlanFor(input, device));
  setup.optimizer = OptimizerFromSpec(setup.spec().optimizer());
  RETURN_IF_ERROR(WithCause(SetUpData(access, &setup), v1::FAILURE_CAUSE_DATA));
  ASSIGN_OR_RETURN(setup.total_steps, TotalSteps(setup));
  RETURN_IF_ERROR(WithCause(SetUpCheckpoints(&setup), v1::FAILURE_CAUSE_CHECKPOINT));
  return setup;
}

absl::StatusOr<std::string> DirectoryToken(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kTokenFile);
  if (::access(path.c_str(), F_OK) != 0) {
    const std::string token = RandomToken();
    const std::string temporary = absl::StrCat(path, ".", token);
    std::ofstream file(temporary);
    file << token;
    file.close();
    if (!file) {
      const int error = errno;
      ::unlink(temporary.c_str());
      return ErrnoToStatus(error, absl::StrCat("write(", temporary, ")"));
    }
    // link, unlike rename, fails when another rank was first.
    const int linked = ::link(temporary.c_str(), path.c_str());
    const int error = errno;
    ::unlink(temporary.c_str());
    if (linked != 0 && error != EEXIST) {
      return ErrnoToStatus(error, absl::StrCat("link(", path, ")"));
    }
  }
  std::ifstream file(path);
  std::ostringstream token;
  token << file.rdbuf();
  if (!file) return ErrnoToStatus(errno, absl::StrCat("read(", path, ")"));
  return token.str().substr(0, 64);
}

absl::StatusOr<v1::RankJoined> MakeJoined(const RankSetup& setup) {
  v1::RankJoined joined;
  const DataIdentity& identity = setup.data.train->identity();
  joined.set_plan_hash(setup.plan.schedule_hash);
  joined.set_data_fingerprint(identity.fingerprint);
  joined.set_data_path(identity.path);
  joined.set_data_bytes(identity.size_bytes);
  for (const DataPart& part : setup.data.parts) {
    v1::DataProof& proof = *joined.add_data_sources();
    proof.set_name(part.name);
    proof.set_path(part.identity.path);
    proof.set_bytes(part.identity.size_bytes);
    proof.set_fingerprint(part.identity.fingerprint);
  }
  joined.set_resume_step(setup.resume.has_value() ? setup.resume->step : 0);
  joined.set_memory_planned_bytes(setup.plan.total_bytes);
  joined.set_pid(::getpid());
  joined.set_total_steps(setup.total_steps);
  if (!setup.checkpoint_root.empty()) {
    absl::StatusOr<std::string> token = DirectoryToken(setup.spec().checkpoint().dir());
    if (!token.ok()) return CheckpointNotWritten(token.status());
    joined.set_checkpoint_dir_token(*token);
  }
  if (setup.unigram_entropy.has_value()) joined.set_unigram_entropy(*setup.unigram_entropy);
  if (setup.bigram_conditional_entropy.has_value()) {
    joined.set_bigram_conditional_entropy(*setup.bigram_conditional_entropy);
  }
  return joined;
}

}  // namespace fsdp
