#ifndef FSDPCTL_WORKER_DEVICE_CPU_CPU_STREAM_H_
#define FSDPCTL_WORKER_DEVICE_CPU_CPU_STREAM_H_

// An ordered queue of host work: the CPU backend's Stream. Also used by the gloo and in_process
// communicators, which put their collectives into it.
//
// Two modes. kInline runs work at once on the calling thread (the compute stream); kThread hands it
// to one worker thread of the stream's own (gather, scatter, copy), in order, one at a time.
//
// Errors stick: after work returned an error, or after a Wait on an event of a failed stream, later
// work of this stream is skipped and Enqueue returns that first error, until Synchronize has
// returned it once. Marks (event records) run even then, so that nobody waits for ever.
//
// Thread rule: Enqueue, AddMark and Synchronize are called by one host thread; `work` runs on the
// stream's thread. Work must not call into its own stream.
// Lifetime: the destructor runs what is queued, then joins; work that can block for a peer must
// have been made to return first (Communicator::Abort).

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace fsdp {

class CpuStream final : public Stream {
 public:
  enum class Mode { kInline, kThread };

  // `name` (shown as the thread's name, 15 characters at most) such as "fsdp-gather".
  CpuStream(std::string name, Mode mode);
  ~CpuStream() override;
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  // Puts `work` into the queue (kInline: runs it now and returns its status).
  // Returns the stuck error, and drops `work`, when the stream has already failed.
  absl::Status Enqueue(std::function<absl::Status()> work);

  // Puts `mark` into the queue; it runs in order even when the stream has failed and gets the
  // stream's status at that point.
  void AddMark(std::function<void(const absl::Status& status)> mark);

  // Blocks until the queue is empty and idle. Returns the first error since the last Synchronize
  // and clears it.
  absl::Status Synchronize();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Mode mode() const { return mode_; }

 private:
  // Exactly one of the two is set.
  struct Item {
    std::function<absl::Status()> work;
    std::function<void(const absl::Status&)> mark;
  };
  void Loop();

  const std::string name_;
  const Mode mode_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;  // guarded by mutex_, as are the three below
  absl::Status status_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

// The CpuStream behind `stream`.
//   INVALID_ARGUMENT  the stream belongs to another backend.
absl::StatusOr<CpuStream*> AsCpuStream(Stream& stream);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DEVICE_CPU_CPU_STREAM_H_
