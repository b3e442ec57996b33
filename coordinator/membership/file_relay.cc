#include "coordinator/membership/file_relay.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"

namespace fsdp::coordinator {
namespace {

const char* KindOf(const v1::ReadFilePiece& piece) {
  return piece.profile().empty() ? "CHECKPOINT" : "PROFILE";
}

absl::Status NoReader(const v1::ReadFilePiece& piece, const std::string& why) {
  return WithInfo(absl::UnavailableError(why), absl::StrCat(KindOf(piece), "_UNREACHABLE"));
}

}  // namespace

void FileRelay::Ask(WorkerRegistry& workers, std::vector<WorkerId> candidates,
                    v1::ReadFilePiece piece, MonotonicTime now, Done done) {
  if (pending_.size() >= kMaxPieces) {
    return done(WithInfo(absl::ResourceExhaustedError(
                             absl::StrCat(kMaxPieces, " pieces of files are under way; try again")),
                         "TOO_MANY_READS"));
  }
  Pending pending;
  piece.set_request(++last_request_);
  pending.piece = std::move(piece);
  pending.candidates = std::move(candidates);
  pending.last =
      NoReader(pending.piece, pending.piece.profile().empty()
                                  ? "no worker that can reach the checkpoint is connected"
                                  : "the worker that keeps the recording is not connected");
  pending.done = std::move(done);
  if (AskNext(workers, pending, now)) pending_.emplace(last_request_, std::move(pending));
}

bool FileRelay::AskNext(WorkerRegistry& workers, Pending& pending, MonotonicTime now) {
  while (!pending.candidates.empty()) {
    pending.worker = pending.candidates.front();
    pending.candidates.erase(pending.candidates.begin());
    const WorkerEntry* worker = workers.Find(pending.worker);
    if (worker == nullptr || worker->sink == nullptr) continue;
    pending.asked = now;
    v1::ConnectResponse message;
    *message.mutable_read_file_piece() = pending.piece;
    worker->sink->Send(message);
    return true;
  }
  pending.done(pending.last);
  return false;
}

void FileRelay::OnPiece(WorkerRegistry& workers, const WorkerId& worker, const v1::FilePiece& piece,
                        MonotonicTime now) {
  const auto found = pending_.find(piece.request());
  // Late, or not for this worker to answer.
  if (found == pending_.end() || found->second.worker != worker) return;
  Pending& pending = found->second;
  const auto code = static_cast<absl::StatusCode>(piece.code());
  if (code == absl::StatusCode::kNotFound) {
    pending.last = WithInfo(
        absl::NotFoundError(absl::StrCat(worker.value(), ": ", piece.message())),
        absl::StrCat(KindOf(pending.piece), "_FILE_NOT_FOUND"), {{"worker", worker.value()}});
    if (!AskNext(workers, pending, now)) pending_.erase(found);
    return;
  }
  const Done done = std::move(pending.done);
  const std::string kind = KindOf(pending.piece);
  pending_.erase(found);
  if (code != absl::StatusCode::kOk) {
    return done(WithInfo(absl::Status(code, absl::StrCat(worker.value(), ": ", piece.message())),
                         absl::StrCat(kind, "_READ_FAILED"), {{"worker", worker.value()}}));
  }
  v1::ReadCheckpointResponse response;
  response.set_data(piece.data());
  response.set_crc32c(piece.crc32c());
  response.set_size_bytes(piece.size_bytes());
  done(std::move(response));
}

void FileRelay::OnDisconnect(const WorkerId& worker) {
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    if (entry->second.worker != worker) {
      ++entry;
      continue;
    }
    const Pending pending = std::move(entry->second);
    entry = pending_.erase(entry);
    pending.done(
        NoReader(pending.piece, absl::StrCat("worker ", worker.value(), " left while it read")));
  }
}

void FileRelay::EndAll(const absl::Status& why) {
  for (const auto& [request, pending] : std::exchange(pending_, {})) pending.done(why);
}

void FileRelay::Expire(MonotonicTime now) {
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    if (now - entry->second.asked < kPatience) {
      ++entry;
      continue;
    }
    const std::string worker = entry->second.worker.value();
    const Pending pending = std::move(entry->second);
    entry = pending_.erase(entry);
    pending.done(NoReader(pending.piece,
                          absl::StrCat("worker ", worker, " did not read within ",
                                       absl::ToInt64Seconds(kPatience), " s: its disk may hang")));
  }
}

}  // namespace fsdp::coordinator
