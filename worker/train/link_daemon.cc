#include "worker/train/link_daemon.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/framed_socket.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/daemon/version.h"

namespace fsdp {
namespace {

int Severity(v1::StopMode mode) {
  switch (mode) {
    case v1::STOP_MODE_CHECKPOINT:
      return 1;
    case v1::STOP_MODE_DRAIN:
      return 2;
    default:
      return 3;
  }
}

class SocketLink final : public DaemonLink, private RendezvousStore {
 public:
  SocketLink(int fd, std::function<void(const absl::Status&)> on_lost)
      : socket_(fd), on_lost_(std::move(on_lost)) {}
  ~SocketLink() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    socket_.Shutdown();
    if (reader_.joinable()) reader_.join();
  }

  absl::Status Start(const std::string& backend, v1::TrainerStart* start) {
    v1::TrainerToDaemon hello;
    hello.mutable_hello()->set_protocol_version(daemon::kTrainerProtocolVersion);
    hello.mutable_hello()->set_pid(::getpid());
    hello.mutable_hello()->set_backend(backend);
    RETURN_IF_ERROR(Send(hello));
    v1::DaemonToTrainer message;
    if (absl::Status status = socket_.Read(&message); !status.ok()) {
      return absl::Status(absl::IsDataLoss(status) ? status.code() : absl::StatusCode::kUnavailable,
                          absl::StrCat("waiting for the assignment: ", status.message()));
    }
    if (!message.has_start()) {
      return absl::DataLossError("the daemon's first message is not a start");
    }
    *start = message.start();
    key_ = start->assignment().key();
    reader_ = std::thread([this] { ReadLoop(); });
    return absl::OkStatus();
  }

  absl::Status Send(const v1::TrainerToDaemon& message) override {
    // The log first: what comes back may be a kill.
    if (message.has_failure()) LOG_ERROR("%s", message.failure().message());
    return socket_.Write(message);
  }

  absl::StatusOr<v1::CommitEpoch> WaitCommit() override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return commit_.has_value() || !lost_.ok(); });
    if (!commit_.has_value()) return lost_;
    return *commit_;
  }

  std::optional<v1::ManifestVerdict> TakeVerdict(std::int64_t step, absl::Duration wait) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(wait),
                      [&] { return verdicts_.count(step) > 0 || !lost_.ok(); });
    const auto found = verdicts_.find(step);
    if (found == verdicts_.end()) return std::nullopt;
    v1::ManifestVerdict verdict = std::move(found->second);
    verdicts_.erase(found);
    return verdict;
  }

  std::optional<v1::TrainerStop> stop() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stop_;
  }

  std::optional<v1::TrainerProfile> TakeProfile() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(profile_, std::nullopt);
  }

  RendezvousStore& rendezvous() override { return *this; }

  void OnDump(std::function<void()> handler) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    on_dump_ = std::move(handler);
  }

 private:
  absl::Status Put(const std::string& name, const std::string& value) override {
    v1::TrainerToDaemon message;
    *message.mutable_rendezvous_put()->mutable_key() = key_;
    message.mutable_rendezvous_put()->set_name(name);
    message.mutable_rendezvous_put()->set_value(value);
    return Send(message);
  }

  absl::StatusOr<std::string> Get(const std::string& name, absl::Duration timeout) override {
    v1::TrainerToDaemon message;
    *message.mutable_rendezvous_get()->mutable_key() = key_;
    message.mutable_rendezvous_get()->set_name(name);
    RETURN_IF_ERROR(Send(message));
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                      [&] { return values_.count(name) > 0 || !lost_.ok(); });
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    if (!lost_.ok()) return lost_;
    return absl::DeadlineExceededError(
        absl::StrFormat("no \"%s\" within %s", name, absl::FormatDuration(timeout)));
  }

  void ReadLoop() {
    absl::Status status;
    while (status.ok()) {
      v1::DaemonToTrainer message;
      status = socket_.Read(&message);
      if (status.ok()) Take(message);
    }
    bool closing = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing = closing_;
      lost_ = absl::UnavailableError(absl::StrCat("the worker daemon is gone: ", status.message()));
      changed_.notify_all();
    }
    if (!closing) on_lost_(status);
  }

  void Take(const v1::DaemonToTrainer& message) {
    std::function<void()> dump;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (message.has_commit()) commit_ = message.commit();
      if (message.has_rendezvous_value()) {
        values_[message.rendezvous_value().name()] = message.rendezvous_value().value();
      }
      if (message.has_manifest_verdict()) {
        verdicts_[message.manifest_verdict().step()] = message.manifest_verdict();
      }
      const bool harsher =
          message.has_stop() &&
          (!stop_.has_value() || Severity(message.stop().mode()) > Severity(stop_->mode()));
      if (harsher) stop_ = message.stop();
      if (message.has_profile()) profile_ = message.profile();
      if (message.has_dump()) dump = on_dump_;
      changed_.notify_all();
    }
    if (dump) dump();
  }

  FramedSocket socket_;
  const std::function<void(const absl::Status&)> on_lost_;
  v1::EpochKey key_;
  std::thread reader_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  bool closing_ = false;
  absl::Status lost_;
  std::optional<v1::CommitEpoch> commit_;
  std::optional<v1::TrainerStop> stop_;
  std::optional<v1::TrainerProfile> profile_;
  std::map<std::string, std::string> values_;
  std::map<std::int64_t, v1::ManifestVerdict> verdicts_;
  std::function<void()> on_dump_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonLink>> DaemonLink::Connect(
    int fd, const std::string& backend, std::function<void(const absl::Status&)> on_lost,
    v1::TrainerStart* start) {
  auto link = std::make_unique<SocketLink>(fd, std::move(on_lost));
  RETURN_IF_ERROR(link->Start(backend, start));
  return link;
}

}  // namespace fsdp
