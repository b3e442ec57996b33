#ifndef FSDPCTL_COORDINATOR_CONFIG_QUEUE_FILE_H_
#define FSDPCTL_COORDINATOR_CONFIG_QUEUE_FILE_H_

// The file of --queues: read at the start, and again when it has changed. One thread's.

#include <sys/stat.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "fsdp/v1/queue.pb.h"

namespace fsdp::coordinator {

class QueueFile {
 public:
  explicit QueueFile(std::string path) : path_(std::move(path)) {}

  // Errors name the file, and each finding its line and column.
  //   NOT_FOUND, PERMISSION_DENIED, ...  it cannot be read
  //   INVALID_ARGUMENT                   it is no queue configuration
  absl::StatusOr<v1::QueueConfig> Read();
  // As Read, if the file is not the one that was read last (another inode, size or time); a file
  // that is gone is told once.
  std::optional<absl::StatusOr<v1::QueueConfig>> ReadIfChanged();

 private:
  struct Version {
    bool exists = false;
    ino_t inode = 0;
    off_t size = 0;
    timespec changed{};
    bool operator==(const Version& other) const;
  };
  [[nodiscard]] Version Look() const;

  const std::string path_;
  Version read_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_CONFIG_QUEUE_FILE_H_
