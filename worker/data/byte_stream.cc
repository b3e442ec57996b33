#include "worker/data/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

std::int64_t ModifiedNs(const struct stat& info) {
  return static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ByteStream>> ByteStream::Open(
    const std::string& path, const std::vector<std::string>& files) {
  std::shared_ptr<ByteStream> stream(new ByteStream);
  stream->path_ = path;
  for (const std::string& file : files) RETURN_IF_ERROR(stream->AddFile(file));
  return stream;
}

ByteStream::~ByteStream() {
  for (const File& file : files_) ::close(file.fd);
}

absl::Status ByteStream::AddFile(const std::string& path) {
  // O_NONBLOCK: a FIFO in the place of a file must not hang the open.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  struct stat info{};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular) {
    ::close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  files_.push_back({path, fd, 0, size_bytes_, info.st_size, ModifiedNs(info)});
  size_bytes_ += info.st_size;
  return absl::OkStatus();
}

void ByteStream::SkipHeaders(std::span<const std::int64_t> header_bytes) {
  size_bytes_ = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    files_[i].header_bytes = header_bytes[i];
    files_[i].size_bytes -= header_bytes[i];
    files_[i].begin = size_bytes_;
    size_bytes_ += files_[i].size_bytes;
  }
}

const ByteStream::File& ByteStream::FileAt(std::int64_t offset) const {
  const auto after =
      std::upper_bound(files_.begin(), files_.end(), offset,
                       [](std::int64_t at, const File& file) { return at < file.begin; });
  return *(after - 1);
}

std::string ByteStream::Describe(std::int64_t offset) const {
  const File& file = FileAt(offset);
  return absl::StrFormat("%s, byte %d", file.path, file.header_bytes + offset - file.begin);
}

absl::Status ByteStream::ReadAt(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const File& file = FileAt(offset);
    const std::int64_t in_file = offset - file.begin;
    const auto wanted =
        std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(file.size_bytes - in_file));
    const ssize_t got = ::pread(file.fd, bytes.data(), wanted, file.header_bytes + in_file);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return absl::DataLossError(
          absl::StrFormat("%s: %s; it had %d bytes when training began", Describe(offset),
                          got == 0 ? "the file ends here now" : std::strerror(errno),
                          file.header_bytes + file.size_bytes));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

absl::Status ByteStream::CheckUnchanged() const {
  for (const File& file : files_) {
    struct stat info{};
    if (::fstat(file.fd, &info) != 0) return ErrnoToStatus(errno, "fstat(" + file.path + ")");
    const std::int64_t size_bytes = file.header_bytes + file.size_bytes;
    if (info.st_size != size_bytes || ModifiedNs(info) != file.modified_ns) {
      return absl::DataLossError(absl::StrFormat(
          "%s changed while training runs (%d bytes at the start, %d now): restart the job with "
          "the data left alone",
          file.path, size_bytes, info.st_size));
    }
  }
  return absl::OkStatus();
}

}  // namespace fsdp
