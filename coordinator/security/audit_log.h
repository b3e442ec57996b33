#ifndef FSDPCTL_COORDINATOR_SECURITY_AUDIT_LOG_H_
#define FSDPCTL_COORDINATOR_SECURITY_AUDIT_LOG_H_

// Who did what, when, from where, and how it ended: one JSON object a line, appended to a file.
//
// A call that changes something is let in only once room for its line is set aside on the disk, so
// that its outcome can be written even if the disk fills up meanwhile. Where the file system cannot
// set room aside, a line that was not written is kept, and no such call is let in until it is.
// Lines are handed to the system at once; they survive the process, not a power failure.
//
// Thread-safe.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/metrics/counters.h"

namespace fsdp::coordinator {

struct AuditLine {
  absl::Time time;
  // Of this call; also in the error that the caller gets.
  std::string id;
  // The caller's, where the request has one.
  std::string request_id;
  std::string subject;
  // "JobService.CancelJob".
  std::string method;
  // "jobs/x-1"; empty: none.
  std::string resource;
  std::string peer;
  // "OK", "PERMISSION_DENIED", ...
  std::string code;
  // Of an error: "NOT_OWNER".
  std::string reason;
  absl::Duration latency;
  // Lines like this one that were left out before it.
  std::int64_t suppressed = 0;
};

// Without the newline; at most kMaxAuditLineBytes, longer texts are cut.
std::string RenderAuditLine(const AuditLine& line);
inline constexpr std::int64_t kMaxAuditLineBytes = 4096;

class AuditLog {
 public:
  // Creates the file, readable for its owner and group, or goes on behind what is there.
  //   as ErrnoToStatus  the file cannot be opened
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(std::string path, Counters& counters);
  // Gives back the room that no line took.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Before a call that changes something; Write with `reserved` ends it.
  //   UNAVAILABLE  AUDIT_FAILED: no room for its line
  absl::Status Reserve();
  void Write(const AuditLine& line, bool reserved);
  // Instead of Write: the call ends without a line.
  void Release();

  // After the file was moved away: the next line goes into a new one under the same name.
  void Reopen();
  // As Reopen, if another file has the name, or none.
  void ReopenIfMoved();

 private:
  AuditLog(std::string path, Counters& counters);
  absl::Status OpenLocked();
  void CloseLocked();
  absl::Status SetRoomAsideLocked(std::int64_t lines);
  // What earlier writes could not.
  absl::Status WriteKeptLocked();
  absl::Status AppendLocked(const std::string& text);
  void FailedLocked(const absl::Status& status);

  const std::string path_;
  Counters& counters_;

  std::mutex mutex_;
  int fd_ = -1;
  // Room is set aside up to here.
  std::int64_t room_end_ = 0;
  // The file system does not do that.
  bool no_room_ = false;
  std::int64_t reserved_ = 0;
  std::deque<std::string> kept_;
  // The failure that was last logged, so that a full disk is logged once.
  std::string logged_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_SECURITY_AUDIT_LOG_H_
