#ifndef FSDPCTL_COORDINATOR_RPC_STREAM_PUMP_H_
#define FSDPCTL_COORDINATOR_RPC_STREAM_PUMP_H_

// Server streams that pull: each holds a cursor, reads the next piece when there is something new
// and the last write is done, and keeps nothing else. So a slow reader costs one message, and
// blocks nobody.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/events/job_directory.h"
#include "coordinator/rpc/status_codec.h"
#include "grpcpp/support/server_callback.h"

namespace fsdp::coordinator {

// A few threads that read the store for streams. Thread-safe.
class StreamPump {
 public:
  explicit StreamPump(int num_threads);
  // Runs what is queued, then ends.
  ~StreamPump();
  void Post(std::function<void()> task);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

enum class PullStep {
  // `response` was filled.
  kMessage,
  // Nothing now; a wake will come.
  kWait,
  // The stream ends with `status`.
  kDone,
};

// Keeps itself alive until gRPC is done with it and no task runs.
template <typename Response>
class PullStream : public grpc::ServerWriteReactor<Response>,
                   public std::enable_shared_from_this<PullStream<Response>> {
 public:
  using OnEnd = std::function<void(const absl::Status&)>;

  PullStream(StreamPump& pump, const std::atomic<bool>& draining,
             std::function<absl::Status()> recheck, OnEnd on_end)
      : pump_(pump),
        draining_(draining),
        recheck_(std::move(recheck)),
        on_end_(std::move(on_end)) {}

  // Subscribes, then reads for the first time. Call once, on a shared pointer.
  void Begin(JobDirectory& directory, const JobId& job) {
    self_ = this->shared_from_this();
    subscription_ = directory.Subscribe(job, [weak = std::weak_ptr<PullStream>(self_)] {
      if (auto stream = weak.lock()) stream->Wake();
    });
    Wake();
  }

  void Wake() {
    {
      const std::lock_guard lock(mutex_);
      if (finished_) return;
      if (busy_) {
        again_ = true;
        return;
      }
      busy_ = true;
    }
    Schedule();
  }

  void OnWriteDone(bool ok) override {
    HandOver();
    if (!ok) return End(WithInfo(absl::CancelledError("the reader is gone"), "STREAM_CANCELLED"));
    Schedule();
  }

  void OnCancel() override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      // Whoever is busy will see it.
      if (busy_) return;
      busy_ = true;
    }
    End(WithInfo(absl::CancelledError("cancelled by the reader"), "STREAM_CANCELLED"));
  }

  void OnDone() override {
    subscription_->Cancel();
    // Last: this may destroy the stream.
    const std::shared_ptr<PullStream> last = std::move(self_);
  }

 protected:
  // On a pump thread, never twice at once.
  virtual PullStep Next(Response* response, absl::Status* status) = 0;

 private:
  void Schedule() {
    pump_.Post([stream = this->shared_from_this()] { stream->Pull(); });
  }

  void Pull() {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        again_ = false;
        if (finished_) return;
      }
      if (Cancelled())
        return End(WithInfo(absl::CancelledError("cancelled by the reader"), "STREAM_CANCELLED"));
      if (draining_) return End(Draining());
      absl::Status status = recheck_();
      if (!status.ok()) return End(status);
      response_.Clear();
      switch (Next(&response_, &status)) {
        case PullStep::kMessage:
          HandOver();
          this->StartWrite(&response_);
          return;
        case PullStep::kDone:
          return End(status);
        case PullStep::kWait:
          break;
      }
      const std::lock_guard lock(mutex_);
      if (again_ || cancelled_) continue;
      busy_ = false;
      return;
    }
  }

  // `response_` passes from a pump thread through gRPC to the next one. gRPC orders that; the lock
  // says so to the thread sanitizer, which cannot look into Debian's gRPC.
  void HandOver() { const std::lock_guard lock(mutex_); }

  bool Cancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  void End(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (finished_) return;
      finished_ = true;
    }
    on_end_(status);
    this->Finish(ToGrpcStatus(status));
  }

  StreamPump& pump_;
  const std::atomic<bool>& draining_;
  const std::function<absl::Status()> recheck_;
  const OnEnd on_end_;
  std::shared_ptr<PullStream> self_;
  std::shared_ptr<JobDirectory::Subscription> subscription_;
  Response response_;

  std::mutex mutex_;
  // A read or a write is under way.
  bool busy_ = false;
  bool again_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_RPC_STREAM_PUMP_H_
