#include "worker/daemon/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::daemon {

absl::Status MakeDirectories(const std::string& path) {
  std::string made;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    made = made.empty() ? part.string() : (std::filesystem::path(made) / part).string();
    if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) {
      return ErrnoToStatus(errno, absl::StrCat("mkdir(", made, ")"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  const absl::Cleanup close = [fd] { ::close(fd); };
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got == 0) return bytes;
    if (got < 0 && errno != EINTR) return ErrnoToStatus(errno, absl::StrCat("read(", path, ")"));
    if (got > 0) bytes.append(buffer, static_cast<std::size_t>(got));
  }
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", temporary, ")"));
  absl::Cleanup close = [fd] { ::close(fd); };
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return ErrnoToStatus(errno, absl::StrCat("write(", temporary, ")"));
    }
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(fd) != 0) return ErrnoToStatus(errno, absl::StrCat("fsync(", temporary, ")"));
  std::move(close).Invoke();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename(", temporary, ", ", path, ")"));
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  const absl::Cleanup close = [fd] { ::close(fd); };
  // Some file systems cannot sync directories; their renames are as durable as they get.
  if (::fsync(fd) != 0 && errno != EINVAL) {
    return ErrnoToStatus(errno, absl::StrCat("fsync(", path, ")"));
  }
  return absl::OkStatus();
}

absl::Status LockFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  const int error = errno;
  ::close(fd);
  if (error == EWOULDBLOCK) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is locked by another process"));
  }
  return ErrnoToStatus(error, absl::StrCat("flock(", path, ")"));
}

}  // namespace fsdp::daemon
