#ifndef FSDPCTL_WORKER_DAEMON_TIMESTAMPS_H_
#define FSDPCTL_WORKER_DAEMON_TIMESTAMPS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace fsdp::daemon {

inline google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  const std::int64_t nanos = absl::ToUnixNanos(time);
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(nanos / 1'000'000'000);
  timestamp.set_nanos(static_cast<std::int32_t>(nanos % 1'000'000'000));
  return timestamp;
}

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_TIMESTAMPS_H_
