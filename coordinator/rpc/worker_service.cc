#include "coordinator/rpc/worker_service.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/rpc/caller.h"
#include "coordinator/rpc/status_codec.h"
#include "proto/support/log.h"

namespace fsdp::coordinator {
namespace {

// A worker that reads nothing for this long a queue is cut off; it reconnects and says where it is.
constexpr size_t kMaxQueued = 20'000;

using Reactor = grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>;

// The outgoing half: outlives the stream, since the coordinator keeps it. One write at a time, in
// order.
class StreamSink : public WorkerSink {
 public:
  explicit StreamSink(Reactor* reactor) : reactor_(reactor) {}

  void Send(const v1::ConnectResponse& message) override {
    const std::lock_guard lock(mutex_);
    if (finished_ || closing_) return;
    if (queue_.size() >= kMaxQueued) {
      closing_ = WithInfo(absl::ResourceExhaustedError("the worker does not read its stream"),
                          "WORKER_TOO_SLOW");
      queue_.clear();
      return;
    }
    queue_.push_back(message);
    WriteNext();
  }

  // What was sent before is written first.
  void Close(absl::Status reason) override {
    const std::lock_guard lock(mutex_);
    if (finished_ || closing_) return;
    closing_ = std::move(reason);
    WriteNext();
  }

  void OnWriteDone(bool ok) {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok && !closing_)
      closing_ = WithInfo(absl::CancelledError("the worker is gone"), "STREAM_CANCELLED");
    if (!ok) queue_.clear();
    WriteNext();
  }

  // False: the stream is over, nothing is read any more.
  bool ReadNext(v1::ConnectRequest* request) {
    const std::lock_guard lock(mutex_);
    if (finished_) return false;
    reactor_->StartRead(request);
    return true;
  }

  // The reactor is about to be destroyed.
  absl::Status Detach() {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    return closing_.value_or(
        WithInfo(absl::CancelledError("cancelled by the worker"), "STREAM_CANCELLED"));
  }

 private:
  void WriteNext() {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      reactor_->StartWrite(&current_);
    } else if (closing_) {
      finished_ = true;
      reactor_->Finish(ToGrpcStatus(*closing_));
    }
  }

  std::mutex mutex_;
  // Valid until finished_.
  Reactor* const reactor_;
  std::deque<v1::ConnectResponse> queue_;
  v1::ConnectResponse current_;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<absl::Status> closing_;
};

class WorkerStream : public Reactor {
 public:
  WorkerStream(Coordinator& coordinator, Counters& counters, CallerIdentity caller)
      : coordinator_(coordinator),
        counters_(counters),
        caller_(std::move(caller)),
        sink_(std::make_shared<StreamSink>(this)) {
    sink_->ReadNext(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Disconnect();
      sink_->Close(absl::OkStatus());
      return;
    }
    absl::Status status = session_ ? coordinator_.OnMessage(*session_, request_) : Greet();
    if (!status.ok()) return sink_->Close(std::move(status));
    sink_->ReadNext(&request_);
  }

  void OnWriteDone(bool ok) override { sink_->OnWriteDone(ok); }

  void OnDone() override {
    Disconnect();
    counters_.Add("fsdp_rpc_total", "WorkerService.Connect", CodeName(sink_->Detach().code()));
    delete this;
  }

 private:
  absl::Status Greet() {
    if (!request_.has_hello()) {
      return WithInfo(
          absl::FailedPreconditionError("the first message of a worker must be its hello"),
          "HELLO_MISSING");
    }
    absl::StatusOr<Coordinator::Session> session = coordinator_.OnHello(request_.hello(), sink_);
    if (!session.ok()) {
      LOG_WARNING("worker '%s' at %s refused: %s", request_.hello().worker(), caller_.peer,
                  session.status().ToString());
      return session.status();
    }
    session_ = *session;
    return absl::OkStatus();
  }

  void Disconnect() {
    if (!session_ || disconnected_) return;
    disconnected_ = true;
    coordinator_.OnDisconnect(*session_);
  }

  Coordinator& coordinator_;
  Counters& counters_;
  const CallerIdentity caller_;
  const std::shared_ptr<StreamSink> sink_;
  v1::ConnectRequest request_;
  std::optional<Coordinator::Session> session_;
  bool disconnected_ = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* WorkerServiceImpl::Connect(
    grpc::CallbackServerContext* context) {
  return new WorkerStream(coordinator_, counters_, CallerOf(*context));
}

}  // namespace fsdp::coordinator
