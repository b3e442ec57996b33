#include "client/connection.h"

#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/access_token.h"
#include "proto/support/address_list.h"
#include "proto/support/status.h"
#include "proto/support/tls/grpc_credentials.h"
#include "proto/support/tls/tls_probe.h"

namespace fsdp {
namespace {

// How long a call waits, at least, where one coordinator stands in for another: longer than that
// takes (docs/high_availability.md).
constexpr absl::Duration kFailoverWindow = absl::Seconds(8);

std::shared_ptr<grpc::Channel> MakeChannel(
    const ClientOptions& options, const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  SetServerName(options.tls_server_name, &arguments);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A coordinator is dialled directly, also where http_proxy is set for the machine.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Notices a peer that vanished without closing the connection, while a stream is silent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  // Two Clients of one process do not share a connection: each has its own reconnect state.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetUserAgentPrefix("fsdpctl");
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

ClientOptions WithFailover(ClientOptions options) {
  if (SplitAddresses(options.server).size() > 1) {
    options.retry_window = std::max(options.retry_window, kFailoverWindow);
    options.reconnect_window = std::max(options.reconnect_window, 2 * kFailoverWindow);
  }
  return options;
}

double Jitter() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::uniform_real_distribution<double>(0.5, 1.0)(random);
}

}  // namespace

Connection::Connection(ClientOptions options, std::shared_ptr<grpc::ChannelCredentials> credentials)
    : options_(WithFailover(std::move(options))), targets_([&] {
        std::vector<Target> targets;
        for (std::string& address : SplitAddresses(options_.server)) {
          auto channel = MakeChannel(options_, address, credentials);
          targets.push_back({std::move(address), std::move(channel)});
        }
        return targets;
      }()) {}

void Connection::Leave(std::size_t used, const absl::Status& error) {
  if (targets_.size() == 1 || !absl::IsUnavailable(error)) return;
  std::size_t next = used + 1;
  if (IsNotLeader(error)) {
    const std::string leader = GetErrorInfo(error)->metadata["leader"];
    const auto named = std::find_if(targets_.begin(), targets_.end(),
                                    [&](const Target& target) { return target.address == leader; });
    if (named != targets_.end()) next = static_cast<std::size_t>(named - targets_.begin());
  }
  // Unless another call has left it already.
  if (current() == used) current_ = next;
}

bool Connection::IsNotLeader(const absl::Status& error) {
  const auto info = GetErrorInfo(error);
  return info.has_value() && info->reason == "NOT_LEADER";
}

absl::Status Connection::ToStatus(const grpc::Status& status) const {
  absl::Status result = FromGrpcStatus(status);
  // Errors of a coordinator of ours carry ErrorInfo.
  if (result.ok() || GetErrorInfo(result).has_value()) return result;
  switch (result.code()) {
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError(absl::StrCat(options_.server, " does not know this call (",
                                                   result.message(),
                                                   "): is it a coordinator of this release?"));
    // The transport broke ("RST_STREAM", "Stream removed"), or the server closed before the call.
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return absl::UnavailableError(absl::StrCat("the connection to the coordinator at ",
                                                 options_.server, " broke (", result.message(),
                                                 ")"));
    default:
      return result;
  }
}

absl::Status Connection::AddToken(grpc::ClientContext* context) const {
  if (options_.token_file.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string token, ReadTokenFile(options_.token_file));
  context->AddMetadata("authorization", "Bearer " + token);
  return absl::OkStatus();
}

bool Connection::MayPass(const absl::Status& error) {
  const auto info = GetErrorInfo(error);
  // Asked too much; a little later it may ask again.
  if (info.has_value() && info->reason == "RATE_LIMITED") return true;
  if (!absl::IsUnavailable(error)) return false;
  // The same call would fail the same way, and its reason would be lost.
  return !info.has_value() || (info->reason != "STORE_FAILED" && info->reason != "AUDIT_FAILED");
}

bool Connection::interrupted() const {
  return options_.interrupt != nullptr && options_.interrupt->cancelled();
}

absl::Status Connection::Lost(const absl::Status& error) const {
  if (error.code() != absl::StatusCode::kUnavailable) return error;
  return absl::UnavailableError(
      absl::StrCat("the coordinator at ", options_.server, " is gone and did not come back within ",
                   absl::FormatDuration(options_.reconnect_window),
                   "; its jobs are kept: start it again, and wait longer with --reconnect"));
}

absl::Status Connection::Interrupted() const { return absl::CancelledError("interrupted"); }

absl::Status Connection::WaitUntilConnected(absl::Time until) {
  bool probed = false;
  // In slices, so that an interrupt is seen.
  for (;;) {
    if (interrupted()) return Interrupted();
    const absl::Time slice = std::min(until, absl::Now() + absl::Milliseconds(100));
    const std::size_t asked = current();
    grpc::Channel& channel = *targets_[asked].channel;
    if (channel.WaitForConnected(absl::ToChronoTime(slice))) return absl::OkStatus();
    if (absl::Now() >= until) return Unreachable();
    if (channel.GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) continue;
    // What certificates prevent, waiting does not mend.
    if (!probed) RETURN_IF_ERROR(CheckTls());
    probed = true;
    Leave(asked, absl::UnavailableError("no connection"));
  }
}

absl::Status Connection::CheckTls() const {
  return ProbeTls({.server = targets_[current()].address,
                   .files = options_.tls,
                   .names = options_.tls_names,
                   .server_name = options_.tls_server_name});
}

absl::Status Connection::Unreachable() const {
  RETURN_IF_ERROR(CheckTls());
  return absl::UnavailableError(
      absl::StrCat("no coordinator answers at ", options_.server,
                   " (--server or FSDPCTL_SERVER names another; `fsdpctl local` starts one here)"));
}

bool Connection::Backoff(int failed_tries) {
  const double seconds = std::min(1.0, 0.05 * static_cast<double>(1 << std::min(failed_tries, 6)));
  const absl::Duration wait = absl::Seconds(seconds * Jitter());
  if (options_.interrupt != nullptr) return options_.interrupt->WaitFor(wait);
  std::this_thread::sleep_for(absl::ToChronoNanoseconds(wait));
  return false;
}

Connection::StreamEnd Connection::Judge(const grpc::Status& status, absl::Time deadline,
                                        absl::Status* error) const {
  if (status.ok()) return StreamEnd::kDone;
  if (interrupted()) {
    *error = Interrupted();
    return StreamEnd::kDone;
  }
  *error = ToStatus(status);
  if (absl::Now() >= deadline) {
    *error = absl::DeadlineExceededError("the time given is over");
    return StreamEnd::kDone;
  }
  return MayPass(*error) || IsNotLeader(*error) ? StreamEnd::kRetry : StreamEnd::kDone;
}

}  // namespace fsdp
