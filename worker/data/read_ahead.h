#ifndef FSDPCTL_WORKER_DATA_READ_AHEAD_H_
#define FSDPCTL_WORKER_DATA_READ_AHEAD_H_

// Reads the batch after the one that is trained on while that one computes, so that a step waits
// only for what a source needs longer than a step.
//
// Thread rule: one thread calls Take; the source is read on a thread of this object's own, and by
// nobody else. Costs the memory of two batches.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "worker/data/batch_source.h"

namespace fsdp {

class ReadAhead {
 public:
  // Batches of `num_sequences`, with where documents begin if asked for. `source` outlives it.
  ReadAhead(BatchSource& source, std::int64_t num_sequences, bool with_documents = false);
  // Waits for a read that is under way.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The batch at `position`, waiting for it where it is not read yet; then starts to read the one
  // at `next`, which is expected to be taken after it (nothing: none is).
  //   errors of BatchSource::Read; those of a batch that is never taken are nobody's
  absl::Status Take(std::int64_t position, std::optional<std::int64_t> next);
  // The batch that was taken last, [num_sequences, S]; valid until the next is taken.
  [[nodiscard]] const std::vector<std::int32_t>& tokens() const { return taken_.tokens; }
  [[nodiscard]] const std::vector<std::int32_t>& targets() const { return taken_.targets; }
  // As BatchSource::Read's; empty unless asked for.
  [[nodiscard]] const std::vector<std::int32_t>& document_begins() const {
    return taken_.document_begins;
  }

 private:
  struct Batch {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
    std::vector<std::int32_t> document_begins;
  };

  void Loop();
  void Ask(std::int64_t position);  // mutex_ held, nothing asked for

  BatchSource& source_;
  Batch taken_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // What is read or is being read; only the reader touches ahead_ until done_.
  std::optional<std::int64_t> asked_;
  bool done_ = false;
  absl::Status status_;
  Batch ahead_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_READ_AHEAD_H_
