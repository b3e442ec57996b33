#include "coordinator/rpc/worker_service.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/rpc/caller.h"
#include "coordinator/rpc/status_codec.h"
#include "coordinator/security/worker_identity.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

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

}  // namespace

// Thread-safe.
class UngreetedStreams {
 public:
  std::uint64_t Add(std::weak_ptr<WorkerSink> sink, MonotonicTime now) {
    const std::lock_guard lock(mutex_);
    streams_.emplace(++last_, Entry{std::move(sink), now});
    return last_;
  }
  void Remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    streams_.erase(number);
  }
  // Removes and returns those that were added before `time`.
  std::vector<std::shared_ptr<WorkerSink>> TakeBefore(MonotonicTime time) {
    std::vector<std::shared_ptr<WorkerSink>> taken;
    const std::lock_guard lock(mutex_);
    // In the order of their coming.
    while (!streams_.empty() && streams_.begin()->second.added < time) {
      if (auto sink = streams_.begin()->second.sink.lock()) taken.push_back(std::move(sink));
      streams_.erase(streams_.begin());
    }
    return taken;
  }

 private:
  struct Entry {
    std::weak_ptr<WorkerSink> sink;
    MonotonicTime added;
  };
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Entry> streams_;
};

namespace {

class WorkerStream : public Reactor {
 public:
  // `uris`: of its certificate, if it has shown one.
  WorkerStream(Coordinator& coordinator, std::shared_ptr<AdmittedCall> call,
               std::optional<std::vector<std::string>> uris,
               std::shared_ptr<UngreetedStreams> ungreeted, MonotonicTime now)
      : coordinator_(coordinator),
        call_(std::move(call)),
        uris_(std::move(uris)),
        ungreeted_(std::move(ungreeted)),
        sink_(std::make_shared<StreamSink>(this)),
        number_(ungreeted_->Add(sink_, now)) {
    sink_->ReadNext(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Disconnect();
      sink_->Close(absl::OkStatus());
      return;
    }
    absl::Status status = call_->Recheck();
    if (status.ok()) status = session_ ? coordinator_.OnMessage(*session_, request_) : Greet();
    if (!status.ok()) return sink_->Close(std::move(status));
    sink_->ReadNext(&request_);
  }

  void OnWriteDone(bool ok) override { sink_->OnWriteDone(ok); }

  void OnDone() override {
    Disconnect();
    ungreeted_->Remove(number_);
    call_->Done(sink_->Detach());
    delete this;
  }

 private:
  absl::Status Greet() {
    if (!request_.has_hello()) {
      return WithInfo(
          absl::FailedPreconditionError("the first message of a worker must be its hello"),
          "HELLO_MISSING");
    }
    absl::StatusOr<Coordinator::Session> session = Admit();
    if (!session.ok()) {
      LOG_WARNING("worker '%s' at %s refused: %s", request_.hello().worker(), call_->caller().peer,
                  session.status().ToString());
      return session.status();
    }
    session_ = *session;
    // From here on its heartbeats say that it is alive.
    ungreeted_->Remove(number_);
    call_->LeaveStreams();
    return absl::OkStatus();
  }

  absl::StatusOr<Coordinator::Session> Admit() {
    if (uris_) RETURN_IF_ERROR(CheckWorkerIdentity(*uris_, request_.hello().worker()));
    return coordinator_.OnHello(request_.hello(), sink_);
  }

  void Disconnect() {
    if (!session_ || disconnected_) return;
    disconnected_ = true;
    coordinator_.OnDisconnect(*session_);
  }

  Coordinator& coordinator_;
  const std::shared_ptr<AdmittedCall> call_;
  const std::optional<std::vector<std::string>> uris_;
  const std::shared_ptr<UngreetedStreams> ungreeted_;
  const std::shared_ptr<StreamSink> sink_;
  const std::uint64_t number_;
  v1::ConnectRequest request_;
  std::optional<Coordinator::Session> session_;
  bool disconnected_ = false;
};

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(Coordinator& coordinator, Gate& gate, const Clock& clock)
    : coordinator_(coordinator),
      gate_(gate),
      clock_(clock),
      ungreeted_(std::make_shared<UngreetedStreams>()) {}

WorkerServiceImpl::~WorkerServiceImpl() = default;

void WorkerServiceImpl::CloseSilent(absl::Duration timeout) {
  for (const auto& sink : ungreeted_->TakeBefore(clock_.Now() - timeout)) {
    sink->Close(WithInfo(absl::DeadlineExceededError(absl::StrCat("a worker must say hello within ",
                                                                  absl::FormatDuration(timeout),
                                                                  " of opening its stream")),
                         "HELLO_MISSING"));
  }
}

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* WorkerServiceImpl::Connect(
    grpc::CallbackServerContext* context) {
  auto call = gate_.Enter(*context, v1::ConnectRequest::default_instance());
  if (!call.ok()) return new Gate::Refused<Reactor>(call.status());
  return new WorkerStream(coordinator_, *std::move(call), CertificateUris(*context), ungreeted_,
                          clock_.Now());
}

}  // namespace fsdp::coordinator
