#ifndef FSDPCTL_WORKER_DAEMON_BUILD_VERSION_H_
#define FSDPCTL_WORKER_DAEMON_BUILD_VERSION_H_

namespace fsdp::daemon {

// Of the whole package; CMake gives it.
inline constexpr const char* kVersion = FSDP_VERSION;

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_BUILD_VERSION_H_
