#include "worker/profile/report/report_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::report {
namespace {

absl::Status WriteNewFile(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  const absl::Cleanup close = [fd] { ::close(fd); };
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return ErrnoToStatus(errno, absl::StrCat("write(", path, ")"));
    }
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, std::int64_t max_bytes) {
  // Not blocking: a FIFO is refused below, not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  const absl::Cleanup close = [fd] { ::close(fd); };
  struct stat facts{};
  if (::fstat(fd, &facts) != 0) return ErrnoToStatus(errno, absl::StrCat("fstat(", path, ")"));
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (facts.st_size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", facts.st_size, " bytes; at most ", max_bytes, " are read"));
  }
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(fd, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoToStatus(errno, absl::StrCat("read(", path, ")"));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

absl::Status ReplaceFile(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp";
  absl::Status status = WriteNewFile(temporary, bytes);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoToStatus(errno, absl::StrCat("rename(", temporary, ", ", path, ")"));
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", path, ")"));
  return absl::OkStatus();
}

}  // namespace fsdp::report
