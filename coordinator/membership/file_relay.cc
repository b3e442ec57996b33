#include "coordinator/membership/file_relay.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"

namespace fsdp::coordinator {
namespace {

absl::Status NoReader(const std::string& why) {
  return WithInfo(absl::UnavailableError(why), "CHECKPOINT_UNREACHABLE");
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
  pending.last = NoReader("no worker that can reach the checkpoint is connected");
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
    pending.last =
        WithInfo(absl::NotFoundError(absl::StrCat(worker.value(), ": ", piece.message())),
                 "CHECKPOINT_FILE_NOT_FOUND", {{"worker", worker.value()}});
    if (!AskNext(workers, pending, now)) pending_.erase(found);
    return;
  }
  const Done done = std::move(pending.done);
  pending_.erase(found);
  if (code != absl::StatusCode::kOk) {
    return done(WithInfo(absl::Status(code, absl::StrCat(worker.value(), ": ", piece.message())),
                         "CHECKPOINT_READ_FAILED", {{"worker", worker.value()}}));
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
    const Done done = std::move(entry->second.done);
    entry = pending_.erase(entry);
    done(NoReader(absl::StrCat("worker ", worker.value(), " left while it read")));
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
    const Done done = std::move(entry->second.done);
    entry = pending_.erase(entry);
    done(NoReader(absl::StrCat("worker ", worker, " did not read within ",
                               absl::ToInt64Seconds(kPatience), " s: its disk may hang")));
  }
}

}  // namespace fsdp::coordinator
