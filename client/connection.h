#ifndef FSDPCTL_CLIENT_CONNECTION_H_
#define FSDPCTL_CLIENT_CONNECTION_H_

// gRPC channels to a coordinator's addresses, with the client's rules for connecting, retrying and
// resuming. One of them is in use; the next one takes its place when it does not answer, or says
// that another coordinator leads. Thread-safe.

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "client/error.h"

namespace fsdp {

// A service's stubs, one for each address of a Connection.
template <typename Stub>
using Stubs = std::vector<std::unique_ptr<Stub>>;

class Connection {
 public:
  Connection(ClientOptions options, std::shared_ptr<grpc::ChannelCredentials> credentials);

  [[nodiscard]] const ClientOptions& options() const { return options_; }
  // Of `Service`, such as v1::JobService.
  template <typename Service>
  [[nodiscard]] Stubs<typename Service::StubInterface> MakeStubs() const {
    Stubs<typename Service::StubInterface> stubs;
    for (const Target& target : targets_) stubs.push_back(Service::NewStub(target.channel));
    return stubs;
  }

  // OK when connected before `until`; else UNAVAILABLE, UNAUTHENTICATED when certificates are the
  // reason, or CANCELLED by the interrupt.
  absl::Status WaitUntilConnected(absl::Time until);

  // One unary call. UNAVAILABLE is retried within retry_window, after the call was sent only when
  // `repeatable`, or when a coordinator that does not lead has refused it.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(const Stubs<Stub>& stubs,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, bool repeatable);

  // Opens `method` with `make_request()` and hands every message to `on_response` until it returns
  // false or the server ends the stream with OK. After a lost connection it opens again: the
  // request must then say where to resume.
  template <typename Stub, typename Request, typename Response, typename MakeRequest,
            typename OnResponse>
  absl::Status Stream(const Stubs<Stub>& stubs,
                      std::unique_ptr<grpc::ClientReaderInterface<Response>> (Stub::*method)(
                          grpc::ClientContext*, const Request&),
                      const StreamOptions& options, MakeRequest make_request,
                      OnResponse on_response);

  // Waits before the try after `failed_tries` failures; true when interrupted.
  bool Backoff(int failed_tries);

 private:
  struct Target {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
  };
  enum class StreamEnd { kDone, kRetry };
  [[nodiscard]] std::size_t current() const { return current_.load() % targets_.size(); }
  // After `error` at the address `used`: the next one, or the one that it says leads.
  void Leave(std::size_t used, const absl::Status& error);
  // Nothing has happened: another coordinator is to be asked.
  static bool IsNotLeader(const absl::Status& error);
  absl::Status AddToken(grpc::ClientContext* context) const;
  // What a stream's end means; `error` is filled unless it was good.
  StreamEnd Judge(const grpc::Status& status, absl::Time deadline, absl::Status* error) const;
  // Unreachable, or on its way out, and perhaps soon back.
  static bool MayPass(const absl::Status& error);
  // FromGrpcStatus; with a hint where a peer answers that is no coordinator of this release, and a
  // broken connection as UNAVAILABLE.
  [[nodiscard]] absl::Status ToStatus(const grpc::Status& status) const;
  // A stream's `error` once reconnect_window is over.
  [[nodiscard]] absl::Status Lost(const absl::Status& error) const;
  // UNAUTHENTICATED: certificates stand in the way.
  [[nodiscard]] absl::Status CheckTls() const;
  // Why it cannot be reached.
  [[nodiscard]] absl::Status Unreachable() const;
  [[nodiscard]] absl::Status Interrupted() const;
  [[nodiscard]] bool interrupted() const;

  const ClientOptions options_;
  // At least one.
  const std::vector<Target> targets_;
  // Index of the one in use.
  std::atomic<std::size_t> current_{0};
};

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Connection::Call(const Stubs<Stub>& stubs,
                                          grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Response*),
                                          const Request& request, bool repeatable) {
  const absl::Time start = absl::Now();
  const absl::Time deadline = start + options_.call_timeout;
  const absl::Time retry_until = std::min(deadline, start + options_.retry_window);
  absl::Status refused;
  for (int failed_tries = 0;; ++failed_tries) {
    if (absl::Status connected = WaitUntilConnected(retry_until); !connected.ok()) return connected;
    grpc::ClientContext context;
    if (absl::Status status = AddToken(&context); !status.ok()) return status;
    context.set_deadline(absl::ToChronoTime(deadline));
    const Interrupt::Scope scope(options_.interrupt, [&context] { context.TryCancel(); });
    Response response;
    const std::size_t used = current();
    const grpc::Status status = ((*stubs[used]).*method)(&context, request, &response);
    if (status.ok()) return response;
    if (interrupted()) return Interrupted();
    absl::Status error = ToStatus(status);
    // That the time is over says less than what it was spent on.
    if (absl::IsDeadlineExceeded(error) && !refused.ok()) return refused;
    if (IsNotLeader(error)) refused = error;
    Leave(used, error);
    const bool again = IsNotLeader(error) || (repeatable && MayPass(error));
    if (!again || absl::Now() >= retry_until) return error;
    if (Backoff(failed_tries)) return Interrupted();
  }
}

template <typename Stub, typename Request, typename Response, typename MakeRequest,
          typename OnResponse>
absl::Status Connection::Stream(const Stubs<Stub>& stubs,
                                std::unique_ptr<grpc::ClientReaderInterface<Response>> (
                                    Stub::*method)(grpc::ClientContext*, const Request&),
                                const StreamOptions& options, MakeRequest make_request,
                                OnResponse on_response) {
  absl::Time connect_until = absl::Now() + options_.retry_window;
  for (int failed_tries = 0;; ++failed_tries) {
    if (absl::Status status = WaitUntilConnected(std::min(connect_until, options.deadline));
        !status.ok()) {
      if (status.code() == absl::StatusCode::kUnavailable && absl::Now() >= options.deadline) {
        return absl::DeadlineExceededError(status.message());
      }
      return failed_tries == 0 ? status : Lost(status);
    }
    grpc::ClientContext context;
    if (absl::Status status = AddToken(&context); !status.ok()) return status;
    if (options.deadline != absl::InfiniteFuture()) {
      context.set_deadline(absl::ToChronoTime(options.deadline));
    }
    const Interrupt::Scope scope(options_.interrupt, [&context] { context.TryCancel(); });
    const Request request = make_request();
    const std::size_t used = current();
    auto reader = ((*stubs[used]).*method)(&context, request);
    bool got_message = false;
    bool stopped = false;
    Response response;
    while (!stopped && reader->Read(&response)) {
      got_message = true;
      stopped = !on_response(response);
    }
    if (stopped) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (stopped) return absl::OkStatus();
    absl::Status error;
    if (Judge(status, options.deadline, &error) == StreamEnd::kDone) return error;
    Leave(used, error);
    // A connection that delivered starts a new window; one that only opens and closes does not.
    if (got_message || failed_tries == 0) {
      if (got_message) failed_tries = 0;
      connect_until = absl::Now() + options_.reconnect_window;
      if (options.on_reconnect) options.on_reconnect(error);
    }
    if (absl::Now() >= connect_until) return Lost(error);
    if (Backoff(failed_tries)) return Interrupted();
  }
}

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_CONNECTION_H_
