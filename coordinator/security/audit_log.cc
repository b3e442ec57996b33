#include "coordinator/security/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

// Six characters each at worst (\u0000), of all texts together less than kMaxAuditLineBytes.
constexpr std::size_t kMaxTextChars = 150;
constexpr std::size_t kMaxShortChars = 64;
// Asked for at a time, so that most calls ask for nothing.
constexpr std::int64_t kRoomAhead = 16 << 10;
// Denied calls wait for nobody: beyond this their lines are dropped, and counted.
constexpr std::size_t kMaxKept = 10'000;

std::string Cut(const std::string& text, std::size_t most) { return text.substr(0, most); }

std::int64_t SizeOf(int fd) {
  struct stat info{};
  return ::fstat(fd, &info) == 0 ? info.st_size : 0;
}

}  // namespace

std::string RenderAuditLine(const AuditLine& line) {
  nlohmann::ordered_json json;
  json["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", line.time, absl::UTCTimeZone());
  json["id"] = Cut(line.id, kMaxShortChars);
  if (!line.request_id.empty()) json["request_id"] = Cut(line.request_id, kMaxShortChars);
  json["subject"] = Cut(line.subject, kMaxTextChars);
  json["method"] = Cut(line.method, kMaxShortChars);
  if (!line.resource.empty()) json["resource"] = Cut(line.resource, kMaxTextChars);
  json["peer"] = Cut(line.peer, kMaxShortChars);
  json["code"] = Cut(line.code, kMaxShortChars);
  if (!line.reason.empty()) json["reason"] = Cut(line.reason, kMaxShortChars);
  json["latency_seconds"] = absl::ToDoubleSeconds(line.latency);
  if (line.suppressed > 0) json["suppressed"] = line.suppressed;
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

AuditLog::AuditLog(std::string path, Counters& counters)
    : path_(std::move(path)), counters_(counters) {}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(std::string path, Counters& counters) {
  auto log = std::unique_ptr<AuditLog>(new AuditLog(std::move(path), counters));
  const std::lock_guard lock(log->mutex_);
  RETURN_IF_ERROR(log->OpenLocked());
  return log;
}

AuditLog::~AuditLog() {
  const std::lock_guard lock(mutex_);
  WriteKeptLocked().IgnoreError();
  CloseLocked();
}

absl::Status AuditLog::OpenLocked() {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("cannot open the audit log ", path_));
  CloseLocked();
  fd_ = fd;
  room_end_ = 0;
  no_room_ = false;
  return absl::OkStatus();
}

void AuditLog::CloseLocked() {
  if (fd_ < 0) return;
  // To the length that it has: drops the room behind.
  if (::ftruncate(fd_, SizeOf(fd_)) != 0) {
    LOG_WARNING("the room set aside behind %s was not given back: errno %d", path_, errno);
  }
  ::close(fd_);
  fd_ = -1;
}

absl::Status AuditLog::SetRoomAsideLocked(std::int64_t lines) {
  if (no_room_) return absl::OkStatus();
  const std::int64_t size = SizeOf(fd_);
  const std::int64_t wanted = lines * kMaxAuditLineBytes;
  if (size + wanted <= room_end_) return absl::OkStatus();
  for (const std::int64_t ahead : {kRoomAhead, std::int64_t{0}}) {
    if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, size, wanted + ahead) == 0) {
      room_end_ = size + wanted + ahead;
      return absl::OkStatus();
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == ENODEV) {
      no_room_ = true;
      return absl::OkStatus();
    }
  }
  return ErrnoToStatus(errno, absl::StrCat("no room for a line in the audit log ", path_));
}

absl::Status AuditLog::AppendLocked(const std::string& text) {
  const std::int64_t size = SizeOf(fd_);
  const ssize_t written = ::write(fd_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  const int error = written < 0 ? errno : ENOSPC;
  // Half a line would spoil the next one too.
  if (written > 0 && ::ftruncate(fd_, size) != 0) {
    LOG_ERROR("half a line stays at the end of %s", path_);
  }
  return ErrnoToStatus(error, absl::StrCat("cannot write to the audit log ", path_));
}

absl::Status AuditLog::WriteKeptLocked() {
  while (!kept_.empty()) {
    RETURN_IF_ERROR(AppendLocked(kept_.front()));
    kept_.pop_front();
  }
  if (!logged_.empty()) LOG_INFO("the audit log %s takes lines again", path_);
  logged_.clear();
  return absl::OkStatus();
}

void AuditLog::FailedLocked(const absl::Status& status) {
  counters_.Add("fsdp_audit_errors_total");
  std::string text(status.message());
  if (text == logged_) return;
  LOG_ERROR("%s; calls that change something are refused until it can be written", text);
  logged_ = std::move(text);
}

absl::Status AuditLog::Reserve() {
  const std::lock_guard lock(mutex_);
  absl::Status status = WriteKeptLocked();
  if (status.ok()) status = SetRoomAsideLocked(reserved_ + 1);
  if (status.ok()) {
    ++reserved_;
    return absl::OkStatus();
  }
  FailedLocked(status);
  return WithInfo(
      absl::UnavailableError(absl::StrCat(std::string(status.message()),
                                          ": the coordinator changes nothing that it cannot "
                                          "record; make room on that disk")),
      "AUDIT_FAILED", {{"audit_log", path_}});
}

void AuditLog::Write(const AuditLine& line, bool reserved) {
  const std::string text = RenderAuditLine(line) + "\n";
  const std::lock_guard lock(mutex_);
  if (reserved) --reserved_;
  absl::Status status = WriteKeptLocked();
  if (status.ok()) status = AppendLocked(text);
  if (status.ok()) return;
  FailedLocked(status);
  if (reserved || kept_.size() < kMaxKept) kept_.push_back(text);
}

void AuditLog::Release() {
  const std::lock_guard lock(mutex_);
  --reserved_;
}

void AuditLog::Reopen() {
  const std::lock_guard lock(mutex_);
  absl::Status status = WriteKeptLocked();
  if (absl::Status opened = OpenLocked(); !opened.ok()) status = opened;
  // Calls under way were promised a line.
  if (status.ok() && reserved_ > 0) status = SetRoomAsideLocked(reserved_);
  if (!status.ok()) FailedLocked(status);
}

void AuditLog::ReopenIfMoved() {
  struct stat named{};
  struct stat open{};
  {
    const std::lock_guard lock(mutex_);
    const bool same = ::fstat(fd_, &open) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                      open.st_dev == named.st_dev && open.st_ino == named.st_ino;
    if (same) return;
  }
  Reopen();
}

}  // namespace fsdp::coordinator
