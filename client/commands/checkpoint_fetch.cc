#include "client/commands/checkpoint_fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr char kManifest[] = "manifest.json";
// Of the model, beside the manifest since config.json is written; not in the manifest.
constexpr char kModelConfig[] = "config.json";
constexpr char kPartial[] = ".part";
// Manifests and configurations are kept in memory whole.
constexpr std::int64_t kMaxTextBytes = std::int64_t{256} << 20;
constexpr int kTries = 3;

struct RemoteFile {
  std::string name;
  std::int64_t size_bytes = 0;
  std::uint32_t crc32c = 0;
};

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

absl::Status Failed(const char* call, const std::string& path) {
  return ErrnoToStatus(errno, absl::StrCat(call, "(", path, ")"));
}

// The CRC-32C of a file here; its size in `size_bytes`.
absl::StatusOr<std::uint32_t> ChecksumOf(const std::string& path, std::int64_t* size_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("open", path);
  const absl::Cleanup close = [fd] { ::close(fd); };
  std::string chunk(std::size_t{1} << 20, '\0');
  std::uint32_t crc = 0;
  *size_bytes = 0;
  while (true) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    if (got == 0) return crc;
    crc = ExtendCrc32c(crc, BytesOf(chunk).first(static_cast<std::size_t>(got)));
    *size_bytes += got;
  }
}

absl::Status Append(int fd, const std::string& data, const std::string& path) {
  for (std::size_t at = 0; at < data.size();) {
    const ssize_t written = ::write(fd, data.data() + at, data.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path);
    at += static_cast<std::size_t>(written);
  }
  return absl::OkStatus();
}

class Fetch {
 public:
  Fetch(Client& client, const FetchRequest& request, const FetchProgress& progress)
      : client_(client), request_(request), progress_(progress) {}

  absl::StatusOr<std::string> Run() {
    const std::string& path = request_.checkpoint.path();
    directory_ = absl::StrCat(request_.root, "/", path.substr(path.rfind('/') + 1));
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("mkdir(", directory_, ")"));
    ASSIGN_OR_RETURN(const std::string manifest, Text(kManifest));
    const std::uint32_t admitted = request_.checkpoint.manifest_crc32c();
    if (const std::uint32_t crc = Crc32c(BytesOf(manifest)); admitted != 0 && crc != admitted) {
      return absl::DataLossError(
          absl::StrFormat("%s/%s: its CRC-32C is 0x%08x, the coordinator admitted 0x%08x", path,
                          kManifest, crc, admitted));
    }
    ASSIGN_OR_RETURN(const std::vector<RemoteFile> files, FilesOf(manifest));
    for (const RemoteFile& file : files) total_bytes_ += file.size_bytes;
    for (const RemoteFile& file : files) RETURN_IF_ERROR(Copy(file));
    const absl::StatusOr<std::string> config = Text(kModelConfig);
    if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
    if (config.ok()) RETURN_IF_ERROR(WriteText(kModelConfig, *config));
    RETURN_IF_ERROR(WriteText(kManifest, manifest));
    return directory_;
  }

 private:
  absl::StatusOr<v1::ReadCheckpointResponse> Piece(const std::string& file, std::int64_t offset) {
    v1::ReadCheckpointRequest request;
    request.set_name(request_.job);
    request.set_step(request_.checkpoint.step());
    request.set_file(file);
    request.set_offset(offset);
    absl::Status status;
    for (int i = 0; i < kTries; ++i) {
      absl::StatusOr<v1::ReadCheckpointResponse> piece = client_.ReadCheckpoint(request);
      if (!piece.ok()) return piece.status();
      if (Crc32c(BytesOf(piece->data())) == piece->crc32c()) return piece;
      status = absl::DataLossError(absl::StrFormat(
          "%s: the piece at byte %d arrived damaged %d times", file, offset, i + 1));
    }
    return status;
  }

  absl::StatusOr<std::string> Text(const std::string& file) {
    std::string text;
    while (true) {
      ASSIGN_OR_RETURN(const v1::ReadCheckpointResponse piece,
                       Piece(file, static_cast<std::int64_t>(text.size())));
      if (piece.size_bytes() > kMaxTextBytes) {
        return absl::DataLossError(absl::StrCat(file, " has ", piece.size_bytes(), " bytes"));
      }
      text += piece.data();
      if (static_cast<std::int64_t>(text.size()) >= piece.size_bytes()) return text;
      if (piece.data().empty()) return CutShort(file);
    }
  }

  static absl::Status CutShort(const std::string& file) {
    return absl::DataLossError(absl::StrCat(file, " ends early: it changed while it was copied"));
  }

  static absl::StatusOr<std::vector<RemoteFile>> FilesOf(const std::string& manifest) {
    const nlohmann::json json =
        nlohmann::json::parse(manifest, nullptr, /*allow_exceptions=*/false);
    std::vector<RemoteFile> files;
    if (json.is_object() && json.contains("files") && json["files"].is_array()) {
      for (const nlohmann::json& entry : json["files"]) {
        RemoteFile file;
        const bool whole = entry.is_object() && entry.contains("name") &&
                           entry["name"].is_string() && entry.contains("size_bytes") &&
                           entry["size_bytes"].is_number_unsigned() && entry.contains("crc32c") &&
                           entry["crc32c"].is_string();
        if (whole) file.name = entry["name"].get<std::string>();
        // It becomes a path here.
        if (!whole || file.name.empty() || file.name.find('/') != std::string::npos ||
            file.name == "." || file.name == ".." ||
            !absl::SimpleHexAtoi(entry["crc32c"].get<std::string>(), &file.crc32c)) {
          return absl::DataLossError(absl::StrCat(kManifest, ": a file is ", entry.dump()));
        }
        file.size_bytes = entry["size_bytes"].get<std::int64_t>();
        files.push_back(std::move(file));
      }
    }
    if (files.empty()) return absl::DataLossError(absl::StrCat(kManifest, " names no files"));
    return files;
  }

  absl::Status Copy(const RemoteFile& file) {
    const std::string path = absl::StrCat(directory_, "/", file.name);
    std::int64_t size_bytes = 0;
    const absl::StatusOr<std::uint32_t> there = ChecksumOf(path, &size_bytes);
    if (there.ok() && size_bytes == file.size_bytes && *there == file.crc32c) {
      Advance(size_bytes);
      return absl::OkStatus();
    }
    const std::string partial = path + kPartial;
    absl::Status status = CopyTo(file, partial);
    if (absl::IsDataLoss(status)) {
      // What an earlier copy left there may be of another checkpoint.
      ::unlink(partial.c_str());
      status = CopyTo(file, partial);
    }
    RETURN_IF_ERROR(status);
    if (::rename(partial.c_str(), path.c_str()) != 0) return Failed("rename", path);
    return absl::OkStatus();
  }

  // Goes on where `path` ends.
  absl::Status CopyTo(const RemoteFile& file, const std::string& path) {
    const std::int64_t before = done_bytes_;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return Failed("open", path);
    const absl::Cleanup close = [fd] { ::close(fd); };
    std::int64_t at = 0;
    ASSIGN_OR_RETURN(std::uint32_t crc, ChecksumOf(path, &at));
    Advance(at);
    while (at < file.size_bytes) {
      ASSIGN_OR_RETURN(const v1::ReadCheckpointResponse piece, Piece(file.name, at));
      if (piece.data().empty()) return CutShort(file.name);
      RETURN_IF_ERROR(Append(fd, piece.data(), path));
      crc = ExtendCrc32c(crc, BytesOf(piece.data()));
      at += static_cast<std::int64_t>(piece.data().size());
      Advance(static_cast<std::int64_t>(piece.data().size()));
    }
    if (at != file.size_bytes || crc != file.crc32c) {
      done_bytes_ = before;
      return absl::DataLossError(
          absl::StrFormat("%s: %d bytes with CRC-32C 0x%08x came, the manifest says %d with 0x%08x",
                          file.name, at, crc, file.size_bytes, file.crc32c));
    }
    return ::fsync(fd) == 0 ? absl::OkStatus() : Failed("fsync", path);
  }

  absl::Status WriteText(const char* name, const std::string& text) const {
    const std::string path = absl::StrCat(directory_, "/", name);
    const std::string partial = path + kPartial;
    const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return Failed("open", partial);
    const absl::Cleanup close = [fd] { ::close(fd); };
    RETURN_IF_ERROR(Append(fd, text, partial));
    if (::fsync(fd) != 0) return Failed("fsync", partial);
    if (::rename(partial.c_str(), path.c_str()) != 0) return Failed("rename", path);
    return absl::OkStatus();
  }

  void Advance(std::int64_t bytes) {
    done_bytes_ += bytes;
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  Client& client_;
  const FetchRequest& request_;
  const FetchProgress& progress_;
  std::string directory_;
  std::int64_t done_bytes_ = 0;
  std::int64_t total_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::string> FetchCheckpoint(Client& client, const FetchRequest& request,
                                            const FetchProgress& progress) {
  return Fetch(client, request, progress).Run();
}

}  // namespace fsdp
