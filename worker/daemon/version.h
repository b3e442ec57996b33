#ifndef FSDPCTL_WORKER_DAEMON_VERSION_H_
#define FSDPCTL_WORKER_DAEMON_VERSION_H_

namespace fsdp::daemon {

// Of worker_service.proto's conversation. Coordinators accept a difference of one.
inline constexpr int kWorkerProtocolVersion = 1;

// Of trainer.proto's conversation; daemon and trainer come from one package, so it must be equal.
inline constexpr int kTrainerProtocolVersion = 1;

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_VERSION_H_
