#ifndef FSDPCTL_WORKER_DATA_TOKENIZE_PROCESS_H_
#define FSDPCTL_WORKER_DATA_TOKENIZE_PROCESS_H_

// One run of fsdp-tokenize as a child: a process of its own because libsentencepiece cannot live
// beside libprotobuf. The other end is worker/tokenize/job_mode.h.
//
// Thread rule: thread-safe (no state). The child dies with the thread that runs it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace fsdp {

struct TokenizeProgressReport {
  std::int64_t done_bytes = 0;
  std::int64_t total_bytes = 0;
  std::int64_t tokens = 0;
};

struct TokenizeProcess {
  std::string program;                 // path of fsdp-tokenize
  std::vector<std::string> arguments;  // without the program
  std::vector<std::string> sources;    // paths of the text
  // Told nothing new for as long, the child is killed.
  absl::Duration stall_limit = absl::Minutes(10);
  // Asked several times a second; true kills the child. May be null.
  std::function<bool()> stop_requested;
  // On the caller's thread, whenever the child tells. May be null.
  std::function<void(const TokenizeProgressReport&)> on_progress;
};

// Runs it to its end.
//   FAILED_PRECONDITION  the program cannot be run
//   CANCELLED            stop_requested
//   DEADLINE_EXCEEDED    stalled
//   ABORTED              it died by a signal, or ended without a word; says what it printed last
//   what it told         otherwise
absl::Status RunTokenizeProcess(const TokenizeProcess& process);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_TOKENIZE_PROCESS_H_
