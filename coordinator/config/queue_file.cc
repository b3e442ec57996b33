#include "coordinator/config/queue_file.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/queue_config.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {

bool QueueFile::Version::operator==(const Version& other) const {
  return exists == other.exists && inode == other.inode && size == other.size &&
         changed.tv_sec == other.changed.tv_sec && changed.tv_nsec == other.changed.tv_nsec;
}

QueueFile::Version QueueFile::Look() const {
  struct stat info{};
  if (::stat(path_.c_str(), &info) != 0) return {};
  return {.exists = true, .inode = info.st_ino, .size = info.st_size, .changed = info.st_mtim};
}

absl::StatusOr<v1::QueueConfig> QueueFile::Read() {
  // Before the contents: a change while they are read is seen the next time.
  read_ = Look();
  errno = 0;
  std::ifstream file(path_, std::ios::binary);
  if (!file) return ErrnoToStatus(errno == 0 ? EIO : errno, absl::StrCat("open(", path_, ")"));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return ErrnoToStatus(EIO, absl::StrCat("read(", path_, ")"));
  QueueConfigResult result = LoadQueueConfig(text);
  if (result.ok()) return std::move(result.config);
  return absl::InvalidArgumentError(absl::StripSuffix(FormatIssues(result.issues, path_), "\n"));
}

std::optional<absl::StatusOr<v1::QueueConfig>> QueueFile::ReadIfChanged() {
  if (Look() == read_) return std::nullopt;
  return Read();
}

}  // namespace fsdp::coordinator
