#ifndef FSDPCTL_COORDINATOR_STORE_STATE_LOCK_H_
#define FSDPCTL_COORDINATOR_STORE_STATE_LOCK_H_

// One process at a time uses a state directory: an exclusive flock on DIRECTORY/coordinator.lock
// that ends with its holder, who has written its pid and host into it. Network file systems without
// locks across hosts do not keep a second host out.

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace fsdp::coordinator {

class StateLock {
 public:
  //   FAILED_PRECONDITION  another process holds it; its pid and host are named
  //   what open(2) and write(2) say
  static absl::StatusOr<std::unique_ptr<StateLock>> Acquire(const std::string& directory);
  ~StateLock();
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;

  static constexpr char kFileName[] = "coordinator.lock";

 private:
  explicit StateLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_STATE_LOCK_H_
