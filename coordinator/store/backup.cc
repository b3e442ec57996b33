#include "coordinator/store/backup.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/state_lock.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {
namespace {

std::string ChecksumPath(const std::string& file) { return file + ".sha256"; }

absl::StatusOr<std::string> Sha256Of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  bool good = EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::array<char, 1 << 16> buffer{};
  while (good && in.read(buffer.data(), buffer.size()).gcount() > 0) {
    good = EVP_DigestUpdate(context.get(), buffer.data(), in.gcount()) == 1;
  }
  if (in.bad()) return absl::InternalError(absl::StrCat("read(", path, ") failed"));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  good = good && EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1;
  if (!good) return absl::InternalError("SHA-256 failed");
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), size});
}

// A file or a folder.
absl::Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return synced ? absl::OkStatus() : ErrnoToStatus(error, absl::StrCat("fsync(", path, ")"));
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// On disk under its final name, or an error.
absl::Status Publish(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(Sync(from));
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename(", to, ")"));
  }
  return Sync(FolderOf(to));
}

// Ours, and whole.
absl::Status CheckDatabase(const std::string& path) {
  ASSIGN_OR_RETURN(SqliteConnection database, SqliteConnection::Open(path, /*read_only=*/true));
  RETURN_IF_ERROR(SqliteStore::CheckSchema(database));
  ASSIGN_OR_RETURN(const std::string verdict, database.QueryText("PRAGMA integrity_check(1)"));
  if (verdict == "ok") return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("damaged: ", verdict));
}

// Removed unless it was published.
class Unfinished {
 public:
  explicit Unfinished(std::string path) : path_(std::move(path)) {}
  ~Unfinished() {
    for (const char* suffix : {"", "-journal", "-wal", "-shm"}) unlink((path_ + suffix).c_str());
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

absl::Status CopyPages(const std::string& from, const std::string& to) {
  // Nobody else may read what jobs hold.
  const int fd = open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", to, ")"));
  close(fd);
  ASSIGN_OR_RETURN(SqliteConnection source, SqliteConnection::Open(from, /*read_only=*/true));
  RETURN_IF_ERROR(SqliteStore::CheckSchema(source));
  ASSIGN_OR_RETURN(SqliteConnection copy, SqliteConnection::Open(to, /*read_only=*/false));
  RETURN_IF_ERROR(source.CopyTo(copy));
  // One file, without a log beside it.
  return copy.Execute("PRAGMA journal_mode=DELETE");
}

absl::StatusOr<std::string> ExpectedChecksum(const std::string& file) {
  const std::string path = ChecksumPath(file);
  std::ifstream in(path);
  std::string hex;
  if (!in) {
    return absl::NotFoundError(absl::StrCat(
        path, " is not there: a backup is checked by it; put it beside the backup (sha256sum ",
        file, " > ", path, " makes one of a file that is known to be whole)"));
  }
  in >> hex;
  return hex;
}

}  // namespace

absl::Status BackUpStore(const std::string& directory, const std::string& file) {
  const std::string database = SqliteStore::DatabasePath(directory);
  if (access(database.c_str(), F_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(database, " is not there: give the coordinator's --state-dir"));
  }
  for (const std::string& path : {file, ChecksumPath(file)}) {
    if (access(path.c_str(), F_OK) == 0) {
      return absl::AlreadyExistsError(absl::StrCat(path, " exists: give a new name"));
    }
  }
  const Unfinished copy(file + ".tmp");
  const Unfinished checksum(ChecksumPath(file) + ".tmp");
  if (absl::Status copied = CopyPages(database, copy.path()); !copied.ok()) {
    return Annotate(copied, database);
  }
  if (absl::Status good = CheckDatabase(copy.path()); !good.ok()) {
    return Annotate(good, absl::StrCat("the copy of ", database));
  }
  ASSIGN_OR_RETURN(const std::string hex, Sha256Of(copy.path()));
  {
    std::ofstream out(checksum.path(), std::ios::trunc);
    out << hex << "  " << std::filesystem::path(file).filename().string() << "\n";
    out.flush();
    if (!out) return ErrnoToStatus(errno, absl::StrCat("write(", checksum.path(), ")"));
  }
  // The checksum first: a backup that is there can be checked.
  RETURN_IF_ERROR(Publish(checksum.path(), ChecksumPath(file)));
  return Publish(copy.path(), file);
}

absl::Status RestoreStore(const std::string& file, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string actual, Sha256Of(file));
  ASSIGN_OR_RETURN(const std::string expected, ExpectedChecksum(file));
  if (actual != expected) {
    return absl::DataLossError(absl::StrCat(file, " is not what was backed up: its SHA-256 is ",
                                            actual, ", ", ChecksumPath(file), " says ", expected,
                                            "; use another backup"));
  }
  if (absl::Status good = CheckDatabase(file); !good.ok()) return Annotate(good, file);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", directory, ")"));
  ASSIGN_OR_RETURN(const auto lock, StateLock::Acquire(directory));
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().filename() == StateLock::kFileName) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " holds ", entry.path().filename().string(),
                     ": restore into an empty directory, and move what is there away first"));
  }
  const Unfinished copy(SqliteStore::DatabasePath(directory) + ".restoring");
  RETURN_IF_ERROR(CopyPages(file, copy.path()));
  return Publish(copy.path(), SqliteStore::DatabasePath(directory));
}

}  // namespace fsdp::coordinator
