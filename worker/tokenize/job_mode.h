#ifndef FSDPCTL_WORKER_TOKENIZE_JOB_MODE_H_
#define FSDPCTL_WORKER_TOKENIZE_JOB_MODE_H_

// fsdp-tokenize as a trainer runs it (--for-job; worker/data/tokenize_process.h is the other end):
// the names of the sources come from standard input, each followed by a NUL; what is done, and why
// it failed, goes to standard output, a JSON object on a line; errors name the job's fields.
//
// Thread rule: one thread.

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/tokenize/documents.h"
#include "worker/tokenize/tokenize_run.h"

namespace fsdp {

//   INVALID_ARGUMENT  a name without its NUL: the list was cut
absl::StatusOr<std::vector<std::string>> ReadNames(std::istream& in);

// Errors name what the job's user may change.
void UseWordsOfJobs(DocumentOptions* documents);

class JobReporter {
 public:
  explicit JobReporter(std::ostream* out) : out_(out) {}

  // {"doneBytes": N, "totalBytes": N, "tokens": N}; a few times a second.
  void Progress(const TokenizeProgress& progress);
  // {"error": {"code": N, "message": "..."}}, the code as absl::StatusCode.
  void Failed(const absl::Status& status);

 private:
  std::ostream* out_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_JOB_MODE_H_
