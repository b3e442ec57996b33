#ifndef FSDPCTL_WORKER_TOKENIZE_PROGRESS_BAR_H_
#define FSDPCTL_WORKER_TOKENIZE_PROGRESS_BAR_H_

// How far a run is: a line that rewrites itself on a terminal, else one line per finished shard.
// Not thread-safe.

#include <functional>
#include <ostream>
#include <string>

#include "worker/tokenize/tokenize_run.h"

namespace fsdp {

// "━━━━╌╌╌╌  48%  1.2 of 2.5 GB  31.0 MB/s  3 shards  ETA 42s"
std::string ProgressBarText(const TokenizeProgress& progress, double bytes_per_second, int columns);

class ProgressBar {
 public:
  // `seconds` tells the time since any moment. `out` outlives the bar.
  ProgressBar(std::ostream* out, bool terminal, int columns, std::function<double()> seconds);
  void Show(const TokenizeProgress& progress);
  // Goes to the next line when a bar stands.
  void End();

 private:
  std::ostream& out_;
  const bool terminal_;
  const int columns_;
  const std::function<double()> seconds_;
  double began_;
  double shown_ = -1e9;
  // Where this process began.
  std::int64_t first_bytes_ = -1;
  std::size_t shards_ = 0;
  bool line_open_ = false;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_PROGRESS_BAR_H_
