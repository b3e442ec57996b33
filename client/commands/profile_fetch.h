#ifndef FSDPCTL_CLIENT_COMMANDS_PROFILE_FETCH_H_
#define FSDPCTL_CLIENT_COMMANDS_PROFILE_FETCH_H_

// A profile of a running job, from asking for it to all ranks' recordings in one message.

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "fsdp/v1/profile.pb.h"

namespace fsdp {

struct ProfileFetch {
  std::string job;
  v1::ProfileOptions options;
  // Fetches this one, which was asked for before, instead of asking for another.
  std::string profile;
  // Told whenever the ranks' states have changed; may be null.
  std::function<void(const v1::GetProfileResponse&)> on_progress;
  // Waits; true: it was interrupted.
  std::function<bool(absl::Duration)> wait;
  // Told once, in words, when no rank has come further for a while; may be null.
  std::function<void(const std::string&)> on_standstill;
};

// Ranks without a recording are in JobProfile.missing with the reason.
//   errors of ProfileJob, GetProfile and ReadProfile
//   DATA_LOSS           a recording arrives damaged, or is none
//   FAILED_PRECONDITION no rank has a recording; says why
//   CANCELLED           interrupted
absl::StatusOr<v1::JobProfile> FetchProfile(Client& client, const ProfileFetch& fetch);

// "rank 0 3/5, rank 1 waits": one line.
std::string ProfileProgressText(const v1::GetProfileResponse& progress, int steps);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_PROFILE_FETCH_H_
