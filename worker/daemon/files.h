#ifndef FSDPCTL_WORKER_DAEMON_FILES_H_
#define FSDPCTL_WORKER_DAEMON_FILES_H_

// The few file operations that the daemon needs. Thread-safe; errors as ErrnoToStatus gives them.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp::daemon {

// As mkdir -p, mode 0700.
absl::Status MakeDirectories(const std::string& path);

absl::StatusOr<std::string> ReadFile(const std::string& path);

// After a crash the file is either as before or whole: temporary file, fsync, rename, directory
// fsync.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// A new or removed name in `path` is durable.
absl::Status SyncDirectory(const std::string& path);

// Takes an exclusive lock on `path` (created when absent) that ends with the process. The
// descriptor stays open for the life of the process.
//   ALREADY_EXISTS  another process holds it
absl::Status LockFile(const std::string& path);

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_FILES_H_
