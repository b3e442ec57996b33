#include "worker/daemon/profile_files.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/crc32c.h"
#include "proto/support/log.h"
#include "proto/support/recording_pieces.h"
#include "proto/support/status.h"
#include "worker/daemon/files.h"

namespace fsdp::daemon {
namespace {

constexpr std::size_t kMaxKept = 8;
constexpr std::size_t kMaxNameSize = 40;

}  // namespace

absl::Status CheckProfileName(std::string_view profile) {
  const bool chars_ok =
      profile.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
  if (chars_ok && !profile.empty() && profile.size() <= kMaxNameSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("profile \"", ToAbsl(profile.substr(0, 2 * kMaxNameSize)),
                   "\": a name has 1 to ", kMaxNameSize, " of [a-z0-9-]"));
}

std::string ProfilePath(const std::string& directory, const std::string& profile) {
  return absl::StrCat(directory, "/profile-", profile, ".pb");
}

absl::Status PrepareProfileDirectory(const std::string& directory) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    std::error_code gone;
    const fs::file_time_type time = entry.last_write_time(gone);
    if (!gone) files.emplace_back(time, entry.path());
  }
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("list(", directory, ")"));
  }
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i + kMaxKept <= files.size(); ++i) {
    fs::remove(files[i].second, error);
    if (error) LOG_WARNING("cannot remove %s: %s", files[i].second.string(), error.message());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ProfileUpdate> KeepRecording(const std::string& path, const std::string& note) {
  const std::string pieces = PiecesPath(path);
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(pieces));
  ASSIGN_OR_RETURN(v1::RankProfile recording, JoinRecordingPieces(bytes));
  if (recording.steps().empty()) return absl::DataLossError("no step was recorded");
  recording.add_notes(absl::StrCat(note, ": ", recording.steps_size(), " steps are recorded"));
  const std::string whole = recording.SerializeAsString();
  RETURN_IF_ERROR(WriteFileAtomically(path, whole));
  std::error_code ignored;
  std::filesystem::remove(pieces, ignored);
  v1::ProfileUpdate update;
  update.set_steps(recording.steps_size());
  update.set_size_bytes(static_cast<std::int64_t>(whole.size()));
  update.set_crc32c(Crc32c(std::as_bytes(std::span(whole))));
  return update;
}

}  // namespace fsdp::daemon
