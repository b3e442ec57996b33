#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/checkpoint/blob_store.h"

namespace fsdp {
namespace {

constexpr char kTemporaryMark[] = ".tmp.";
// Of one file, between two hints to the disk.
constexpr off_t kWritebackBytes = off_t{32} << 20;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status Failed(const char* call, const std::string& path) {
  return ErrnoToStatus(errno, absl::StrCat(call, "(", path, ")"));
}

class PosixWriter : public BlobWriter {
 public:
  PosixWriter(int fd, std::string path, std::string temporary)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  ~PosixWriter() override {
    if (!published_) ::unlink(temporary_.c_str());
  }

  absl::Status Append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return Failed("write", path_);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      written_bytes_ += written;
    }
    StartWriteback();
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return ::fsync(fd_.get()) == 0 ? absl::OkStatus() : Failed("fsync", path_);
  }

  absl::Status Publish() override {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return Failed("rename", path_);
    published_ = true;
    return absl::OkStatus();
  }

 private:
  // The disk begins while more is written, so that Sync finds little left to do. A hint: what it
  // cannot do is left to Sync.
  void StartWriteback() {
    if (written_bytes_ - started_bytes_ < kWritebackBytes) return;
    ::sync_file_range(fd_.get(), started_bytes_, written_bytes_ - started_bytes_,
                      SYNC_FILE_RANGE_WRITE);
    started_bytes_ = written_bytes_;
  }

  FileDescriptor fd_;
  std::string path_;
  std::string temporary_;
  off_t written_bytes_ = 0;
  off_t started_bytes_ = 0;
  bool published_ = false;
};

class PosixReader : public BlobReader {
 public:
  PosixReader(int fd, std::string path, std::uint64_t size_bytes)
      : fd_(fd), path_(std::move(path)), size_bytes_(size_bytes) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return size_bytes_; }

  absl::Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t got =
          ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        return Failed("pread", path_);
      }
      if (got == 0) {
        return absl::DataLossError(
            absl::StrFormat("%s ends at byte %d; %d more were expected (it was cut while in use)",
                            path_, offset, bytes.size()));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return absl::OkStatus();
  }

 private:
  FileDescriptor fd_;
  std::string path_;
  std::uint64_t size_bytes_;
};

class PosixBlobStore : public BlobStore {
 public:
  absl::StatusOr<std::unique_ptr<BlobWriter>> Create(const std::string& path) override {
    static std::atomic<int> counter{0};
    std::string temporary = absl::StrCat(path, kTemporaryMark, ::getpid(), ".", counter++);
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return Failed("open", temporary);
    return std::make_unique<PosixWriter>(fd, path, std::move(temporary));
  }

  absl::StatusOr<std::unique_ptr<BlobReader>> Open(const std::string& path) override {
    // O_NONBLOCK: a FIFO in the place of a file must not hang the open.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return Failed("open", path);
    struct stat info{};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd);
      return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
    }
    return std::make_unique<PosixReader>(fd, path, static_cast<std::uint64_t>(info.st_size));
  }

  absl::Status CreateDirectory(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", path, ")"));
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) return Failed("open", path);
    return ::fsync(fd.get()) == 0 ? absl::OkStatus() : Failed("fsync", path);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
         it.increment(error)) {
      std::string name = it->path().filename().string();
      if (name.find(kTemporaryMark) == std::string::npos) names.push_back(std::move(name));
    }
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("opendir(", path, ")"));
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status Remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? absl::OkStatus() : Failed("unlink", path);
  }

  absl::Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("remove(", path, ")"));
    return absl::OkStatus();
  }
};

}  // namespace

BlobStore& BlobStore::Posix() {
  static auto* const store = new PosixBlobStore;
  return *store;
}

}  // namespace fsdp
