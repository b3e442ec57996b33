#include "coordinator/store/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

std::string ThisHost() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateLock>> StateLock::Acquire(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kFileName);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  auto lock = std::unique_ptr<StateLock>(new StateLock(fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 300> holder{};
    const ssize_t size = pread(fd, holder.data(), holder.size() - 1, 0);
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": another coordinator (", size > 0 ? holder.data() : "of unknown pid",
                     ") uses this state directory; stop it or give --state-dir another value"));
  }
  const std::string holder = absl::StrCat("pid ", getpid(), " on ", ThisHost());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, holder.data(), holder.size(), 0) < 0) {
    return ErrnoToStatus(errno, absl::StrCat("write(", path, ")"));
  }
  return lock;
}

StateLock::~StateLock() { close(fd_); }

}  // namespace fsdp::coordinator
