#include "tests/unit/worker/daemon/fake_coordinator.h"

#include <chrono>
#include <utility>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "proto/support/log.h"

namespace fsdp::daemon {

FakeCoordinator::FakeCoordinator(Options options) : options_(std::move(options)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(options_.port),
                           grpc::InsecureServerCredentials(), &port_);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  FSDP_CHECK(server_ != nullptr && port_ != 0, "cannot listen on port ", options_.port);
}

FakeCoordinator::~FakeCoordinator() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::string FakeCoordinator::address() const { return "127.0.0.1:" + std::to_string(port_); }

grpc::Status FakeCoordinator::Connect(grpc::ServerContext* context, Stream* stream) {
  if (!options_.refuse.ok()) return options_.refuse;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stream_ = stream;
    context_ = context;
  }
  v1::ConnectRequest request;
  while (stream->Read(&request)) Take(stream, request);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stream_ == stream) {
    stream_ = nullptr;
    context_ = nullptr;
  }
  return grpc::Status::OK;
}

void FakeCoordinator::Take(Stream* stream, const v1::ConnectRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  received_.push_back(request);
  v1::ConnectResponse response;
  if (request.has_hello()) {
    response.mutable_welcome()->set_protocol_version(1);
    response.mutable_welcome()->set_heartbeat_seconds(options_.heartbeat_seconds);
    response.mutable_welcome()->set_acked_sequence(options_.durable_sequence);
    response.mutable_welcome()->set_keep_running_rank(options_.keep_running_rank);
    stream->Write(response);
  } else if (request.has_report() && options_.acknowledge) {
    options_.durable_sequence = std::max(options_.durable_sequence, request.report().sequence());
    response.mutable_report_ack()->set_sequence(options_.durable_sequence);
    stream->Write(response);
  }
  changed_.notify_all();
}

void FakeCoordinator::Send(const v1::ConnectResponse& response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  FSDP_CHECK(stream_ != nullptr, "no worker is connected");
  stream_->Write(response);
}

void FakeCoordinator::Drop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void FakeCoordinator::SetAcknowledge(bool acknowledge) {
  const std::lock_guard<std::mutex> lock(mutex_);
  options_.acknowledge = acknowledge;
}

std::int64_t FakeCoordinator::durable_sequence() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return options_.durable_sequence;
}

bool FakeCoordinator::WaitFor(const std::function<bool(const Received&)>& done) const {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return done(received_); });
}

std::optional<v1::ConnectRequest> FakeCoordinator::WaitForMessage(
    const std::function<bool(const v1::ConnectRequest&)>& match) const {
  std::optional<v1::ConnectRequest> found;
  WaitFor([&](const Received& received) {
    for (const v1::ConnectRequest& request : received) {
      if (match(request)) {
        found = request;
        return true;
      }
    }
    return false;
  });
  return found;
}

FakeCoordinator::Received FakeCoordinator::received() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return received_;
}

}  // namespace fsdp::daemon
