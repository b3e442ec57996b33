#ifndef FSDPCTL_WORKER_DAEMON_CHECKPOINT_FILES_H_
#define FSDPCTL_WORKER_DAEMON_CHECKPOINT_FILES_H_

// Pieces of files for callers on other machines, of checkpoints and of recorded profiles, read on a
// thread of its own: a disk that is slow, or a mount that hangs, holds up nothing else.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "fsdp/v1/worker_service.pb.h"
#include "proto/support/spec_paths.h"

namespace fsdp::daemon {

// Reads what is asked for. Only regular files that a checkpoint consists of, in a step's folder
// directly below an absolute `directory` in `roots`, or a profile of this worker's
// `profile_directory`; links below that are not followed. The answer's code:
//   INVALID_ARGUMENT    a directory, folder or file name that cannot be; an offset beyond the end
//   NOT_FOUND, PERMISSION_DENIED, INTERNAL  the system call's
fsdp::v1::FilePiece ReadPiece(const fsdp::v1::ReadFilePiece& request,
                              const std::string& profile_directory, const PathRoots& roots = {});

// Thread-safe.
class CheckpointFiles {
 public:
  // `answer` runs on the thread.
  CheckpointFiles(std::string profile_directory, PathRoots roots,
                  std::function<void(fsdp::v1::FilePiece)> answer);
  // What is queued is dropped.
  ~CheckpointFiles();

  // Never waits; RESOURCE_EXHAUSTED is the answer to more than kMaxQueued at once.
  void Read(fsdp::v1::ReadFilePiece request);

 private:
  static constexpr std::size_t kMaxQueued = 32;
  void Loop();

  const std::string profile_directory_;
  const PathRoots roots_;
  const std::function<void(fsdp::v1::FilePiece)> answer_;
  std::mutex mutex_;  // guards the three below it
  std::condition_variable changed_;
  std::deque<fsdp::v1::ReadFilePiece> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_CHECKPOINT_FILES_H_
