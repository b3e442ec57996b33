#ifndef FSDPCTL_CLIENT_RENDER_PROGRESS_H_
#define FSDPCTL_CLIENT_RENDER_PROGRESS_H_

// Follows one job on a stream: a line that rewrites itself on a terminal, else a line at each
// change of state and every few seconds. Not thread-safe.

#include <iosfwd>
#include <string>

#include "absl/time/time.h"
#include "client/render/style.h"
#include "fsdp/v1/job_record.pb.h"
#include "proto/support/clock.h"

namespace fsdp {

// "step 120/400  loss 2.3144  val 2.4011  31.2K tok/s  MFU 41.0%  ETA 1m20s"; what is unknown is
// left out.
std::string ProgressText(const v1::Progress& progress);

class ProgressLine {
 public:
  struct Options {
    bool terminal = false;
    int columns = 80;
    Style style{};
    // Between plain lines while the state stays.
    absl::Duration plain_interval = absl::Seconds(5);
  };
  // `out` and `clock` outlive the line.
  ProgressLine(std::ostream* out, Clock* clock, Options options)
      : out_(*out), clock_(*clock), options_(options) {}

  void Show(const v1::Job& job);
  // A line of its own above the progress line.
  void Note(const std::string& text);
  // Leaves the last state of the line standing and goes to the next line. Idempotent.
  void End();

 private:
  void ShowPlain(const v1::Job& job);
  void ShowOnTerminal(const v1::Job& job);

  std::ostream& out_;
  Clock& clock_;
  const Options options_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string reason_;
  std::int64_t epoch_ = 0;
  std::int64_t step_ = -1;
  MonotonicTime last_plain_;
  bool line_open_ = false;
};

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_PROGRESS_H_
