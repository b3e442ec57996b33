// Checkpoints' files, for callers on other machines.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/store/resource_names.h"

namespace fsdp::coordinator {
namespace {

// Beyond the job's own workers, this many others may see the same disk.
constexpr std::size_t kMaxOthers = 8;

}  // namespace

void Coordinator::ReadCheckpoint(const CallerIdentity& /*caller*/,
                                 const v1::ReadCheckpointRequest& request, FileRelay::Done done) {
  const std::lock_guard lock(mutex_);
  if (absl::Status status = CheckServing(); !status.ok()) return done(status);
  const JobId id = JobIdFromName(request.name());
  const JobRuntime* job = Find(id);
  if (job == nullptr) return done(NoSuchJob(id.value()));
  const auto found = std::find_if(
      job->checkpoints.begin(), job->checkpoints.end(),
      [&](const v1::CheckpointInfo& checkpoint) { return checkpoint.step() == request.step(); });
  if (found == job->checkpoints.end()) {
    return done(WithInfo(absl::NotFoundError(absl::StrCat(
                             JobName(id), " has no checkpoint of step ", request.step())),
                         "CHECKPOINT_NOT_FOUND",
                         {{"job", JobName(id)}, {"step", absl::StrCat(request.step())}}));
  }
  if (request.file().empty() || request.file().find('/') != std::string::npos) {
    return done(BadField("file", request.file(), "must be a file's name without a folder"));
  }
  if (request.offset() < 0) {
    return done(BadField("offset", absl::StrCat(request.offset()), "must not be negative"));
  }
  const std::string& path = found->path();
  const std::size_t slash = path.rfind('/');
  v1::ReadFilePiece piece;
  piece.set_directory(path.substr(0, slash));
  piece.set_folder(path.substr(slash + 1));
  piece.set_file(request.file());
  piece.set_offset(request.offset());
  piece.set_max_bytes(request.max_bytes() > 0
                          ? std::min(request.max_bytes(), FileRelay::kMaxPieceBytes)
                          : FileRelay::kMaxPieceBytes);
  std::vector<WorkerId> candidates;
  for (const auto& member : job->record.members()) candidates.emplace_back(member.worker());
  const std::set<WorkerId> members(candidates.begin(), candidates.end());
  const std::size_t limit = candidates.size() + kMaxOthers;
  for (const auto& [worker, entry] : workers_.entries()) {
    if (candidates.size() == limit) break;
    if (entry.sink != nullptr && !members.contains(worker)) candidates.push_back(worker);
  }
  files_.Ask(workers_, std::move(candidates), std::move(piece), clock_.Now(), std::move(done));
}

}  // namespace fsdp::coordinator
