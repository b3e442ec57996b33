#ifndef FSDPCTL_WORKER_DAEMON_PROFILE_FILES_H_
#define FSDPCTL_WORKER_DAEMON_PROFILE_FILES_H_

// The recordings of profiles that a worker keeps for the coordinator's callers.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/v1/worker_service.pb.h"

namespace fsdp::daemon {

// A profile's name is a file's name here: [a-z0-9-], 1 to 40.
//   INVALID_ARGUMENT  it is not
absl::Status CheckProfileName(std::string_view profile);

// "DIRECTORY/profile-NAME.pb".
std::string ProfilePath(const std::string& directory, const std::string& profile);

// Makes the directory and room for one more: the newest seven stay.
absl::Status PrepareProfileDirectory(const std::string& directory);

// What a trainer that has ended left of a recording, as the recording itself, with `note` in it;
// `name`, `key` and state are the caller's to fill in.
//   NOT_FOUND, DATA_LOSS  it left nothing
absl::StatusOr<fsdp::v1::ProfileUpdate> KeepRecording(const std::string& path,
                                                      const std::string& note);

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_PROFILE_FILES_H_
