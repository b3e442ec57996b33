#include "proto/support/tls/authority_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::tls {
namespace {

std::string In(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

absl::Status CheckAbsent(const std::string& path, const char* remedy) {
  struct stat found{};
  if (lstat(path.c_str(), &found) != 0) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(path, " exists: ", remedy));
}

absl::Status WriteAll(int fd, const std::string& path, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t size = write(fd, text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoToStatus(errno, absl::StrCat("write(", path, ")"));
    done += static_cast<std::size_t>(size);
  }
  if (fsync(fd) != 0) return ErrnoToStatus(errno, absl::StrCat("fsync(", path, ")"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.is_open() && !file.bad()) return text;
  return ErrnoToStatus(errno == 0 ? EIO : errno, absl::StrCat("cannot read ", path));
}

absl::Status WriteTextFile(const std::string& path, const std::string& text, unsigned mode) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                      static_cast<mode_t>(mode));
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  absl::Status status = WriteAll(fd, temporary, text);
  close(fd);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoToStatus(errno, absl::StrCat("rename(", path, ")"));
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status WritePair(const std::string& certificate_path, const std::string& key_path,
                       const KeyPair& pair) {
  constexpr char kRemedy[] = "name another --out or NAME, or move it away";
  RETURN_IF_ERROR(CheckAbsent(certificate_path, kRemedy));
  RETURN_IF_ERROR(CheckAbsent(key_path, kRemedy));
  // The key first: a certificate without its key is of no use.
  RETURN_IF_ERROR(WriteTextFile(key_path, pair.key, 0600));
  return WriteTextFile(certificate_path, pair.certificate, 0644);
}

absl::Status InitAuthority(const std::string& folder, const std::string& common_name,
                           absl::Time now, absl::Duration validity) {
  constexpr char kRemedy[] = "an authority lives there already; name another --dir";
  RETURN_IF_ERROR(CheckAbsent(In(folder, kAuthorityKey), kRemedy));
  RETURN_IF_ERROR(CheckAbsent(In(folder, kAuthorityCertificate), kRemedy));
  ASSIGN_OR_RETURN(const KeyPair pair,
                   Authority::New(common_name, now - kClockSlack, now + validity));
  std::error_code error;
  const bool made = std::filesystem::create_directories(folder, error);
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", folder, ")"));
  if (made) chmod(folder.c_str(), 0700);
  return WritePair(In(folder, kAuthorityCertificate), In(folder, kAuthorityKey), pair);
}

absl::StatusOr<std::unique_ptr<Authority>> OpenAuthority(const std::string& folder) {
  const std::string certificate = In(folder, kAuthorityCertificate);
  const std::string key = In(folder, kAuthorityKey);
  struct stat status{};
  if (stat(key.c_str(), &status) != 0) {
    const absl::Status failed = ErrnoToStatus(errno, absl::StrCat("cannot read ", key));
    if (!absl::IsNotFound(failed)) return failed;
    return absl::NotFoundError(absl::StrCat(folder, " holds no authority (", kAuthorityKey,
                                            "): make one with fsdpctl ca init --dir ", folder));
  }
  if ((status.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(key, ": others on this machine can use the authority's key: chmod 600 ", key));
  }
  KeyPair pair;
  ASSIGN_OR_RETURN(pair.certificate, ReadTextFile(certificate));
  ASSIGN_OR_RETURN(pair.key, ReadTextFile(key));
  auto authority = Authority::Create(pair);
  if (!authority.ok()) return Annotate(authority.status(), folder);
  return authority;
}

}  // namespace fsdp::tls
