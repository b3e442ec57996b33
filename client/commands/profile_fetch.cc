#include "client/commands/profile_fetch.h"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr int kTries = 3;
constexpr absl::Duration kPoll = absl::Milliseconds(200);
// Without any rank coming further: longer than most steps.
constexpr int kStandstillPolls = 75;

std::uint32_t CrcOf(const std::string& bytes) { return Crc32c(std::as_bytes(std::span(bytes))); }

absl::StatusOr<v1::ReadProfileResponse> Piece(Client& client,
                                              const v1::ReadProfileRequest& request) {
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(v1::ReadProfileResponse piece, client.ReadProfile(request));
    if (CrcOf(piece.data()) == piece.crc32c()) return piece;
    status = absl::DataLossError(
        absl::StrFormat("rank %d's recording: the piece at byte %d arrived damaged %d times",
                        request.rank(), request.offset(), i + 1));
  }
  return status;
}

absl::StatusOr<v1::RankProfile> Recording(Client& client, const std::string& job,
                                          const std::string& profile,
                                          const v1::RankProfileStatus& rank) {
  v1::ReadProfileRequest request;
  request.set_name(Client::JobName(job));
  request.set_profile(profile);
  request.set_rank(rank.rank());
  std::string bytes;
  while (static_cast<std::int64_t>(bytes.size()) < rank.size_bytes()) {
    request.set_offset(static_cast<std::int64_t>(bytes.size()));
    ASSIGN_OR_RETURN(const v1::ReadProfileResponse piece, Piece(client, request));
    if (piece.data().empty()) break;
    bytes += piece.data();
  }
  v1::RankProfile recording;
  if (static_cast<std::int64_t>(bytes.size()) != rank.size_bytes() ||
      CrcOf(bytes) != rank.crc32c() || !recording.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrFormat(
        "rank %d's recording is damaged: %d bytes with CRC-32C 0x%08x, the trainer wrote %d with "
        "0x%08x",
        rank.rank(), bytes.size(), CrcOf(bytes), rank.size_bytes(), rank.crc32c()));
  }
  // Trainers that run alone do not know these.
  recording.set_worker(rank.worker());
  return recording;
}

absl::StatusOr<v1::GetProfileResponse> WaitForRanks(Client& client, const ProfileFetch& fetch,
                                                    const std::string& profile) {
  std::string shown;
  int same = 0;
  while (true) {
    ASSIGN_OR_RETURN(v1::GetProfileResponse progress, client.GetProfile(fetch.job, profile));
    std::string text = ProfileProgressText(progress, fetch.options.steps());
    same = text == shown ? same + 1 : 0;
    if (fetch.on_progress && same == 0) fetch.on_progress(progress);
    shown = std::move(text);
    if (progress.finished()) return progress;
    if (fetch.on_standstill && same == kStandstillPolls) {
      fetch.on_standstill(absl::StrCat(
          "no rank has come further for ", absl::ToInt64Seconds(kStandstillPolls * kPoll),
          " s: a rank may stand still, see fsdpctl collectives ", fetch.job));
    }
    if (fetch.wait(kPoll)) {
      return absl::CancelledError(
          absl::StrCat("interrupted: the ranks go on recording; fsdpctl profile ", fetch.job,
                       " --fetch ", profile, " gets what they record"));
    }
  }
}

}  // namespace

std::string ProfileProgressText(const v1::GetProfileResponse& progress, int steps) {
  std::vector<std::string> parts;
  for (const v1::RankProfileStatus& rank : progress.ranks()) {
    std::string state;
    switch (rank.state()) {
      case v1::PROFILE_STATE_RECORDING:
        state = steps > 0 ? absl::StrCat(rank.steps(), "/", steps)
                          : absl::StrCat(rank.steps(), " steps");
        break;
      case v1::PROFILE_STATE_DONE:
        state = "done";
        break;
      case v1::PROFILE_STATE_FAILED:
        state = "failed";
        break;
      default:
        state = "waits";
    }
    parts.push_back(absl::StrCat("rank ", rank.rank(), " ", state));
  }
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<v1::JobProfile> FetchProfile(Client& client, const ProfileFetch& fetch) {
  std::string name = fetch.profile;
  if (name.empty()) {
    v1::ProfileJobRequest request;
    request.set_name(Client::JobName(fetch.job));
    *request.mutable_options() = fetch.options;
    ASSIGN_OR_RETURN(const v1::ProfileJobResponse started, client.ProfileJob(request));
    name = started.profile();
  }
  ASSIGN_OR_RETURN(const v1::GetProfileResponse progress, WaitForRanks(client, fetch, name));
  v1::JobProfile profile;
  profile.set_job(Client::JobName(fetch.job));
  profile.set_profile(name);
  for (const v1::RankProfileStatus& rank : progress.ranks()) {
    if (rank.state() != v1::PROFILE_STATE_DONE) {
      profile.add_missing(absl::StrCat("rank ", rank.rank(), ": ", rank.message()));
      continue;
    }
    ASSIGN_OR_RETURN(*profile.add_ranks(), Recording(client, fetch.job, name, rank));
    *profile.add_clocks() = rank.clock();
  }
  if (profile.ranks().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no rank was recorded: ", absl::StrJoin(profile.missing(), "; ")));
  }
  return profile;
}

}  // namespace fsdp
