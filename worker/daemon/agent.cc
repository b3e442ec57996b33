#include "worker/daemon/agent.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/v1/worker_service.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "proto/support/access_token.h"
#include "proto/support/address_list.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "proto/support/tls/grpc_credentials.h"
#include "proto/support/tls/tls_probe.h"
#include "worker/daemon/build_version.h"
#include "worker/daemon/grpc_status.h"
#include "worker/daemon/timestamps.h"
#include "worker/daemon/version.h"

namespace fsdp::daemon {
namespace {

std::chrono::nanoseconds ToChrono(absl::Duration duration) {
  return absl::ToChronoNanoseconds(duration);
}

// A channel of its own for each dial: gRPC's shared one would add its own backoff to ours.
std::shared_ptr<grpc::Channel> MakeChannel(
    const Agent::Options& options, const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  SetServerName(options.tls_server_name, &arguments);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Of one TCP connect; a host that swallows packets must not hold the dialler for gRPC's 20 s.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // Notices a dead peer that sent no FIN. Coordinators allow pings this frequent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace

absl::Duration Backoff::Next() {
  const absl::Duration delay = next_ * std::uniform_real_distribution<>(0.5, 1.0)(random_);
  next_ = std::min(next_ * 2, max_);
  return delay;
}

struct Agent::Connection {
  // Certificates that cannot be read: it fails when it is opened, like a coordinator that cannot be
  // reached.
  Connection(const Options& options, std::string dialled) : address(std::move(dialled)) {
    auto credentials = ChannelCredentialsFrom(options.tls, TlsFileNames(), absl::Now());
    if (credentials.ok()) {
      stub = v1::WorkerService::NewStub(MakeChannel(options, address, *credentials));
    } else {
      no_credentials = credentials.status();
    }
  }

  // Waits for the TCP connection, unless context.TryCancel is called.
  void Open() {
    auto opened = stub->Connect(&context);
    const std::lock_guard<std::mutex> lock(write_mutex);
    stream = std::move(opened);
    closed = false;
  }

  // False: the stream is broken.
  bool Write(const v1::ConnectRequest& request) {
    const std::lock_guard<std::mutex> lock(write_mutex);
    return !closed && stream->Write(request);
  }

  // No Write after this; Finish may run.
  void Close(bool say_done) {
    const std::lock_guard<std::mutex> lock(write_mutex);
    if (say_done && !closed) stream->WritesDone();
    closed = true;
  }

  const std::string address;
  absl::Status no_credentials;
  grpc::ClientContext context;
  // Null without credentials.
  std::unique_ptr<v1::WorkerService::Stub> stub;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream;
  const MonotonicTime start = Clock::Real().Now();

  std::mutex write_mutex;
  // Guarded by write_mutex.
  bool closed = true;

  // Guarded by the agent's mutex_.
  bool welcomed = false;
  // Of the sender thread once welcomed: the last report that went out on this stream.
  std::int64_t sent_sequence = 0;
};

Agent::Agent(Options options, Spool& spool, AgentDelegate& delegate)
    : options_(std::move(options)),
      addresses_(SplitAddresses(options_.coordinator)),
      spool_(spool),
      delegate_(delegate),
      heartbeat_(options_.heartbeat) {}

Agent::~Agent() { Shutdown("", absl::ZeroDuration()); }

void Agent::Start() {
  agent_ = std::thread([this] { RunAgent(); });
  sender_ = std::thread([this] { RunSender(); });
  beater_ = std::thread([this] { RunHeartbeat(); });
}

std::shared_ptr<Agent::Connection> Agent::current() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connection_;
}

bool Agent::connected() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connection_ != nullptr && connection_->welcomed;
}

std::int64_t Agent::num_connects() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_connects_;
}

void Agent::RunAgent() {
  Backoff backoff(options_.backoff_initial, options_.backoff_max, std::random_device{}());
  // Of each address.
  std::vector<absl::Status> last_status(addresses_.size());
  std::size_t next = 0;
  while (true) {
    const std::size_t dialled = next;
    auto connection = std::make_shared<Connection>(options_, addresses_[dialled]);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) return;
      connection_ = connection;
    }
    const absl::Status status = Converse(connection);
    std::unique_lock<std::mutex> lock(mutex_);
    const bool was_welcomed = connection->welcomed;
    connection_.reset();
    outbox_.clear();
    const bool stopping = stopping_;
    lock.unlock();
    if (was_welcomed) {
      backoff.Reset();
      delegate_.OnDisconnected(status);
    }
    // On a stream that was welcomed it only means that the coordinator wants another one.
    if (absl::IsAborted(status) && !was_welcomed) return delegate_.OnReplaced(status);
    if (stopping) return;
    // Once per kind of failure, not once per attempt.
    if (status != last_status[dialled]) {
      LOG_WARNING("coordinator %s: %s; dialling again", connection->address,
                  Explain(status, connection->address).ToString());
    }
    last_status[dialled] = status;
    // One that was lost may be back at once; one that refuses is left for the next.
    if (!was_welcomed) next = (dialled + 1) % addresses_.size();
    lock.lock();
    if (stopping_) return;
    if (next != 0 && next != dialled) continue;
    if (wake_.wait_for(lock, ToChrono(backoff.Next()), [this] { return stopping_; })) return;
  }
}

absl::Status Agent::Explain(const absl::Status& status, const std::string& address) const {
  if (!absl::IsUnavailable(status)) return status;
  const absl::Status reason =
      ProbeTls({.server = address, .files = options_.tls, .server_name = options_.tls_server_name});
  return reason.ok() ? status : reason;
}

// From hello to the stream's end, whose status it returns.
absl::Status Agent::Converse(const std::shared_ptr<Connection>& connection) {
  RETURN_IF_ERROR(connection->no_credentials);
  if (!options_.token_file.empty()) {
    ASSIGN_OR_RETURN(const std::string token, ReadTokenFile(options_.token_file));
    connection->context.AddMetadata("authorization", "Bearer " + token);
  }
  connection->Open();
  v1::ConnectRequest request;
  v1::WorkerHello& hello = *request.mutable_hello();
  hello = delegate_.MakeHello();
  hello.set_protocol_version(kWorkerProtocolVersion);
  hello.set_version(kVersion);
  if (spool_.stats().num_reports > 0) {
    hello.set_spool_first(spool_.first_sequence());
    hello.set_spool_last(spool_.last_sequence());
  }
  *hello.mutable_time() = ToTimestamp(absl::Now());
  connection->Write(request);

  v1::ConnectResponse response;
  while (connection->stream->Read(&response)) {
    if (response.has_welcome()) {
      HandleWelcome(*connection, response.welcome());
    } else {
      HandleResponse(std::exchange(response, {}));
    }
  }
  connection->Close(/*say_done=*/false);
  const absl::Status status = FromGrpc(connection->stream->Finish());
  return status.ok() ? absl::UnavailableError("the coordinator closed the stream") : status;
}

void Agent::HandleWelcome(Connection& connection, const v1::Welcome& welcome) {
  const std::int64_t last = spool_.last_sequence();
  if (welcome.acked_sequence() > last) {
    LOG_WARNING(
        "the coordinator has reports up to %d, this spool ends at %d: numbering goes on there",
        welcome.acked_sequence(), last);
    spool_.SkipPast(welcome.acked_sequence());
  }
  spool_.Acknowledge(welcome.acked_sequence());
  delegate_.OnWelcome(welcome);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (welcome.heartbeat_seconds() > 0) heartbeat_ = absl::Seconds(welcome.heartbeat_seconds());
    connection.sent_sequence = welcome.acked_sequence();
    connection.welcomed = true;
    ++num_connects_;
    spool_grew_ = true;
    beat_now_ = true;
  }
  LOG_INFO("connected to coordinator %s", connection.address);
  wake_.notify_all();
}

void Agent::HandleResponse(v1::ConnectResponse response) {
  if (response.has_report_ack()) {
    spool_.Acknowledge(response.report_ack().sequence());
    return wake_.notify_all();
  }
  delegate_.OnCommand(std::move(response));
}

void Agent::Send(v1::ConnectRequest request) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (connection_ == nullptr) return;
    outbox_.push_back(std::move(request));
  }
  wake_.notify_all();
}

void Agent::NotifySpool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    spool_grew_ = true;
  }
  wake_.notify_all();
}

void Agent::BeatNow() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    beat_now_ = true;
  }
  wake_.notify_all();
}

void Agent::RunSender() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] {
      return stopping_ ||
             (connection_ != nullptr && connection_->welcomed && (spool_grew_ || !outbox_.empty()));
    });
    if (stopping_) return;
    const std::shared_ptr<Connection> connection = connection_;
    const std::deque<v1::ConnectRequest> outbox = std::exchange(outbox_, {});
    const bool send_spool = std::exchange(spool_grew_, false);
    lock.unlock();
    for (const v1::ConnectRequest& request : outbox) {
      if (!connection->Write(request)) break;
    }
    if (send_spool) SendSpool(*connection);
    lock.lock();
  }
}

void Agent::SendSpool(Connection& connection) {
  while (true) {
    std::vector<v1::Report> reports =
        spool_.ReadAfter(connection.sent_sequence, options_.batch_bytes);
    if (reports.empty()) return;
    for (v1::Report& report : reports) {
      const std::int64_t sequence = report.sequence();
      v1::ConnectRequest request;
      *request.mutable_report() = std::move(report);
      if (!connection.Write(request)) return;
      connection.sent_sequence = sequence;
    }
  }
}

// Touches neither the spool nor the daemon's core: a slow disk or a blocked trainer must not look
// like a dead worker.
void Agent::RunHeartbeat() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const std::shared_ptr<Connection> connection = connection_;
    const bool welcomed = connection != nullptr && connection->welcomed;
    lock.unlock();
    if (welcomed) {
      v1::ConnectRequest request;
      *request.mutable_heartbeat() = delegate_.MakeHeartbeat();
      *request.mutable_heartbeat()->mutable_time() = ToTimestamp(absl::Now());
      connection->Write(request);
    } else if (connection != nullptr &&
               Clock::Real().Now() - connection->start > options_.welcome_timeout) {
      connection->context.TryCancel();
    }
    lock.lock();
    wake_.wait_for(lock, ToChrono(heartbeat_), [this] { return stopping_ || beat_now_; });
    beat_now_ = false;
  }
}

void Agent::Shutdown(const std::string& reason, absl::Duration flush_timeout) {
  if (!agent_.joinable()) return;
  const MonotonicTime deadline = Clock::Real().Now() + flush_timeout;
  while (connected() && spool_.stats().num_reports > 0 && Clock::Real().Now() < deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait_for(lock, std::chrono::milliseconds(20));
  }
  if (const auto connection = current(); connection != nullptr) {
    // A coordinator that took everything also takes this; to another one Write might wait for ever.
    if (connected() && flush_timeout > absl::ZeroDuration() && spool_.stats().num_reports == 0) {
      v1::ConnectRequest request;
      request.mutable_goodbye()->set_reason(reason);
      connection->Write(request);
      connection->Close(/*say_done=*/true);
      // The coordinator answers the half-close by ending the stream.
      while (current() == connection && Clock::Real().Now() < deadline) {
        std::unique_lock<std::mutex> lock(mutex_);
        stopping_ = true;
        wake_.notify_all();
        wake_.wait_for(lock, std::chrono::milliseconds(20));
      }
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    if (connection_ != nullptr) connection_->context.TryCancel();
  }
  wake_.notify_all();
  for (std::thread* thread : {&agent_, &sender_, &beater_}) thread->join();
}

}  // namespace fsdp::daemon
