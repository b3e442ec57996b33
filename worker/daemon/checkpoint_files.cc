#include "worker/daemon/checkpoint_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "worker/daemon/profile_files.h"

namespace fsdp::daemon {
namespace {

constexpr std::int64_t kMaxPieceBytes = std::int64_t{1} << 20;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// `prefix`, digits, `middle`, digits, `suffix`; an empty middle: one run of digits.
bool Matches(std::string_view text, std::string_view prefix, std::string_view middle,
             std::string_view suffix) {
  const auto take = [&text](std::string_view part) {
    const bool begins = text.starts_with(part);
    if (begins) text.remove_prefix(part.size());
    return begins;
  };
  const auto digits = [&text] {
    std::size_t count = 0;
    while (count < text.size() && std::isdigit(static_cast<unsigned char>(text[count])) != 0) {
      ++count;
    }
    text.remove_prefix(count);
    return count > 0;
  };
  return take(prefix) && digits() && (middle.empty() || (take(middle) && digits())) &&
         text == suffix;
}

bool IsCheckpointFile(std::string_view name) {
  return name == "manifest.json" || name == "config.json" ||
         Matches(name, "rank-", "", ".safetensors");
}

absl::Status CheckNames(const v1::ReadFilePiece& request) {
  const std::string& directory = request.directory();
  const std::string slashed = directory + "/";
  if (directory.empty() || directory[0] != '/' || slashed.find("/../") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("directory \"", directory, "\" is no absolute path without .."));
  }
  if (!Matches(request.folder(), "step-", ".e", "")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", request.folder(), "\" is no step's folder"));
  }
  if (!IsCheckpointFile(request.file())) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", request.file(), "\" is no file of a checkpoint"));
  }
  return absl::OkStatus();
}

absl::Status ReadFrom(int file, const std::string& path, const v1::ReadFilePiece& request,
                      v1::FilePiece* piece) {
  struct stat info{};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  }
  if (request.offset() < 0 || request.offset() > info.st_size) {
    return absl::InvalidArgumentError(absl::StrCat("offset ", request.offset(), " is beyond the ",
                                                   info.st_size, " bytes of ", path));
  }
  const std::int64_t wanted = request.max_bytes() > 0
                                  ? std::min<std::int64_t>(request.max_bytes(), kMaxPieceBytes)
                                  : kMaxPieceBytes;
  std::string& data = *piece->mutable_data();
  data.resize(
      static_cast<std::size_t>(std::min<std::int64_t>(wanted, info.st_size - request.offset())));
  for (std::size_t at = 0; at < data.size();) {
    const ssize_t got = ::pread(file, data.data() + at, data.size() - at,
                                static_cast<off_t>(request.offset()) + static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoToStatus(errno, absl::StrCat("pread(", path, ")"));
    if (got == 0) return absl::InternalError(absl::StrCat(path, " was cut while it was read"));
    at += static_cast<std::size_t>(got);
  }
  piece->set_crc32c(Crc32c(std::as_bytes(std::span(data))));
  piece->set_size_bytes(info.st_size);
  return absl::OkStatus();
}

absl::Status ReadCheckpointFile(const v1::ReadFilePiece& request, const PathRoots& roots,
                                v1::FilePiece* piece) {
  RETURN_IF_ERROR(CheckNames(request));
  RETURN_IF_ERROR(roots.CheckOnDisk({"spec.checkpoint.dir", request.directory()}));
  const std::string folder_path = absl::StrCat(request.directory(), "/", request.folder());
  const std::string path = absl::StrCat(folder_path, "/", request.file());
  const Descriptor directory(
      ::open(request.directory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0)
    return ErrnoToStatus(errno, absl::StrCat("open(", request.directory(), ")"));
  const Descriptor folder(::openat(directory.get(), request.folder().c_str(),
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) return ErrnoToStatus(errno, absl::StrCat("open(", folder_path, ")"));
  // O_NONBLOCK: a FIFO in the place of a file must not hang the open.
  const Descriptor file(::openat(folder.get(), request.file().c_str(),
                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  return ReadFrom(file.get(), path, request, piece);
}

absl::Status ReadProfileFile(const v1::ReadFilePiece& request, const std::string& directory,
                             v1::FilePiece* piece) {
  RETURN_IF_ERROR(CheckProfileName(request.profile()));
  const std::string path = ProfilePath(directory, request.profile());
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  return ReadFrom(file.get(), path, request, piece);
}

v1::FilePiece Refusal(const v1::ReadFilePiece& request, const absl::Status& status) {
  v1::FilePiece piece;
  piece.set_request(request.request());
  piece.set_code(static_cast<int>(status.code()));
  piece.set_message(std::string(status.message()));
  return piece;
}

}  // namespace

v1::FilePiece ReadPiece(const v1::ReadFilePiece& request, const std::string& profile_directory,
                        const PathRoots& roots) {
  v1::FilePiece piece;
  piece.set_request(request.request());
  const absl::Status status = request.profile().empty()
                                  ? ReadCheckpointFile(request, roots, &piece)
                                  : ReadProfileFile(request, profile_directory, &piece);
  return status.ok() ? piece : Refusal(request, status);
}

CheckpointFiles::CheckpointFiles(std::string profile_directory, PathRoots roots,
                                 std::function<void(v1::FilePiece)> answer)
    : profile_directory_(std::move(profile_directory)),
      roots_(std::move(roots)),
      answer_(std::move(answer)),
      thread_([this] { Loop(); }) {}

CheckpointFiles::~CheckpointFiles() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointFiles::Read(v1::ReadFilePiece request) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.size() < kMaxQueued) {
      queue_.push_back(std::move(request));
      changed_.notify_all();
      return;
    }
  }
  answer_(Refusal(request, absl::ResourceExhaustedError("too many reads at once")));
}

void CheckpointFiles::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const v1::ReadFilePiece request = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    answer_(ReadPiece(request, profile_directory_, roots_));
    lock.lock();
  }
}

}  // namespace fsdp::daemon
