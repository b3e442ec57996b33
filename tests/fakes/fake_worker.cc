#include "tests/fakes/fake_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"

namespace fsdp::testing {
namespace {

google::protobuf::Timestamp NowTimestamp(absl::Duration ahead) {
  google::protobuf::Timestamp time;
  const std::int64_t nanos = absl::ToUnixNanos(absl::Now() + ahead);
  time.set_seconds(nanos / 1'000'000'000);
  time.set_nanos(static_cast<std::int32_t>(nanos % 1'000'000'000));
  return time;
}

}  // namespace

void StepGate::AllowUpTo(std::int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    allowed_ = step;
  }
  changed_.notify_all();
}

bool StepGate::WaitFor(std::int64_t step, const std::function<bool()>& stopped) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return step <= allowed_ || stopped(); });
  return !stopped();
}

void StepGate::Poke() {
  // Taken so that nobody sits between its look and its wait.
  {
    const std::lock_guard lock(mutex_);
  }
  changed_.notify_all();
}

FakeWorker::FakeWorker(std::string address, FakeWorkerOptions options, StepGate* gate)
    : options_(std::move(options)), gate_(gate), address_(std::move(address)) {}

FakeWorker::~FakeWorker() {
  Die();
  std::vector<std::thread> trainers;
  {
    const std::lock_guard lock(mutex_);
    trainers.swap(trainers_);
  }
  for (std::thread& trainer : trainers) trainer.join();
}

void FakeWorker::ConnectTo(const std::string& address) {
  Disconnect();
  {
    const std::lock_guard lock(mutex_);
    address_ = address;
  }
  Connect();
}

void FakeWorker::Connect() {
  auto connection = std::make_unique<Connection>();
  const std::lock_guard lock(mutex_);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto stub = v1::WorkerService::NewStub(
      grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  connection->context.set_wait_for_ready(true);
  connection->context.set_deadline(std::chrono::system_clock::now() + options_.stream_limit);
  connection->stream = stub->Connect(&connection->context);
  connection_ = std::move(connection);
  stream_status_.reset();

  v1::ConnectRequest request;
  v1::WorkerHello& hello = *request.mutable_hello();
  hello.set_worker(options_.name);
  hello.set_incarnation(absl::StrCat(options_.name, "-life-", life_));
  hello.set_protocol_version(1);
  hello.set_version("fake");
  hello.set_host(options_.host);
  hello.mutable_device()->set_type(v1::DEVICE_TYPE_CPU);
  hello.mutable_device()->set_index(options_.index);
  hello.mutable_device()->set_memory_bytes(options_.device_memory_bytes);
  hello.set_rank_address("127.0.0.1");
  *hello.mutable_time() = NowTimestamp(options_.clock_ahead);
  if (rank_) {
    *hello.mutable_running()->mutable_key() = rank_->key();
    hello.mutable_running()->set_state(v1::RANK_STATE_RUNNING);
    hello.mutable_running()->set_step(step_);
  }
  if (!spool_.empty()) {
    hello.set_spool_first(spool_.front().sequence());
    hello.set_spool_last(spool_.back().sequence());
  }
  WriteLocked(request);
  Connection* raw = connection_.get();
  raw->reader = std::thread([this, raw] { ReadLoop(raw); });
}

void FakeWorker::WriteLocked(const v1::ConnectRequest& request) {
  if (connection_ != nullptr) connection_->stream->Write(request);
}

void FakeWorker::ReadLoop(Connection* connection) {
  v1::ConnectResponse response;
  while (connection->stream->Read(&response)) Handle(response);
  const grpc::Status status = connection->stream->Finish();
  const std::lock_guard lock(mutex_);
  if (connection_.get() == connection) stream_status_ = status;
  changed_.notify_all();
}

void FakeWorker::CloseConnection() {
  std::unique_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    connection = std::move(connection_);
  }
  if (connection == nullptr) return;
  connection->context.TryCancel();
  connection->reader.join();
}

void FakeWorker::Disconnect() { CloseConnection(); }

void FakeWorker::Die() {
  {
    const std::lock_guard lock(mutex_);
    rank_.reset();
    ++generation_;
    spool_.clear();
    changed_.notify_all();
  }
  gate_->Poke();
  CloseConnection();
}

void FakeWorker::Revive() {
  {
    const std::lock_guard lock(mutex_);
    ++life_;
    last_sequence_ = 0;
  }
  Connect();
}

void FakeWorker::Handle(const v1::ConnectResponse& response) {
  {
    const std::lock_guard lock(mutex_);
    received_.push_back(response);
  }
  switch (response.message_case()) {
    case v1::ConnectResponse::kWelcome: {
      const std::lock_guard lock(mutex_);
      std::erase_if(spool_, [&](const v1::Report& report) {
        return report.sequence() <= response.welcome().acked_sequence();
      });
      for (const v1::Report& report : spool_) {
        v1::ConnectRequest request;
        *request.mutable_report() = report;
        WriteLocked(request);
      }
      break;
    }
    case v1::ConnectResponse::kStartRank:
      StartTrainer(response.start_rank());
      break;
    case v1::ConnectResponse::kCommitEpoch: {
      const std::lock_guard lock(mutex_);
      if (rank_ && rank_->key().epoch() == response.commit_epoch().key().epoch()) committed_ = true;
      break;
    }
    case v1::ConnectResponse::kStopRank:
      StopTrainer(response.stop_rank());
      break;
    case v1::ConnectResponse::kManifestVerdict: {
      const std::lock_guard lock(mutex_);
      verdict_step_ = response.manifest_verdict().step();
      break;
    }
    case v1::ConnectResponse::kReportAck: {
      const std::lock_guard lock(mutex_);
      std::erase_if(spool_, [&](const v1::Report& report) {
        return report.sequence() <= response.report_ack().sequence();
      });
      break;
    }
    default:
      break;
  }
  changed_.notify_all();
}

void FakeWorker::StartTrainer(const v1::StartRank& start) {
  const std::lock_guard lock(mutex_);
  // A start that is sent twice starts one trainer.
  if (rank_ && rank_->key().epoch() == start.key().epoch()) return;
  rank_ = start;
  committed_ = false;
  step_ = start.resume().step();
  resumed_after_.push_back(step_);
  const std::uint64_t generation = ++generation_;
  trainers_.emplace_back([this, start, generation] { Train(start, generation); });
}

void FakeWorker::Train(v1::StartRank start, std::uint64_t generation) {
  const auto stopped = [this, generation] {
    const std::lock_guard lock(mutex_);
    return generation_ != generation;
  };
  const auto wait = [&](const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return generation_ != generation || condition(); });
    return generation_ == generation;
  };
  const auto report = [&] {
    v1::Report result;
    *result.mutable_key() = start.key();
    return result;
  };
  if (!options_.join) return;
  const std::int64_t total = start.job().spec().limits().max_steps();
  v1::Report joined = report();
  joined.mutable_joined()->set_plan_hash(options_.plan_hash);
  joined.mutable_joined()->set_data_fingerprint(options_.data_fingerprint);
  joined.mutable_joined()->set_data_path(options_.data_path);
  joined.mutable_joined()->set_data_bytes(1000);
  joined.mutable_joined()->set_resume_step(start.resume().step());
  joined.mutable_joined()->set_total_steps(total);
  joined.mutable_joined()->set_pid(1000 + start.key().rank());
  Spool(std::move(joined));
  if (!wait([this] { return committed_; })) return;
  v1::Report running = report();
  running.mutable_running()->set_first_step(start.resume().step() + 1);
  Spool(std::move(running));

  for (std::int64_t step = start.resume().step() + 1; step <= total; ++step) {
    if (!gate_->WaitFor(step, stopped)) return;
    v1::Report done = report();
    v1::StepMetrics& metrics = *done.mutable_step()->mutable_metrics();
    metrics.set_step(step);
    metrics.set_loss(10.0 / static_cast<double>(step));
    metrics.set_tokens(100);
    metrics.set_step_seconds(0.01);
    done.mutable_step()->set_memory_peak_bytes(1000 + start.key().rank());
    {
      const std::lock_guard lock(mutex_);
      if (generation_ != generation) return;
      step_ = step;
    }
    Spool(std::move(done));
    const bool checkpoint = options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0;
    if (!checkpoint || start.key().rank() != 0) continue;
    v1::Report manifest = report();
    manifest.mutable_manifest()->mutable_checkpoint()->set_step(step);
    manifest.mutable_manifest()->mutable_checkpoint()->set_path(absl::StrCat("/ckpt/", step));
    Spool(std::move(manifest));
    if (!wait([&] { return verdict_step_ >= step; })) return;
    v1::Report published = report();
    published.mutable_published()->set_step(step);
    Spool(std::move(published));
  }
  v1::RankExited exited;
  exited.set_finished(true);
  exited.set_last_step(total);
  exited.mutable_result()->set_steps(total);
  exited.mutable_result()->set_train_loss(10.0 / static_cast<double>(total));
  if (!stopped()) EndRank(std::move(exited));
}

void FakeWorker::EndRank(v1::RankExited exited) {
  v1::Report report;
  {
    const std::lock_guard lock(mutex_);
    if (!rank_) return;
    *report.mutable_key() = rank_->key();
    if (exited.last_step() == 0) exited.set_last_step(step_);
    rank_.reset();
    ++generation_;
  }
  changed_.notify_all();
  gate_->Poke();
  *report.mutable_exited() = std::move(exited);
  Spool(std::move(report));
}

void FakeWorker::StopTrainer(const v1::StopRank& stop) {
  {
    const std::lock_guard lock(mutex_);
    if (dying_ || !rank_ || rank_->key().epoch() != stop.key().epoch()) return;
  }
  v1::RankExited exited;
  if (stop.mode() == v1::STOP_MODE_KILL) {
    exited.set_signal(9);
    exited.set_signalled_by_worker(true);
  } else if (stop.mode() == v1::STOP_MODE_CHECKPOINT) {
    exited.set_checkpoint_step(step());
  }
  EndRank(std::move(exited));
}

void FakeWorker::Spool(v1::Report report) {
  const std::lock_guard lock(mutex_);
  report.set_sequence(++last_sequence_);
  *report.mutable_time() = NowTimestamp(options_.clock_ahead);
  spool_.push_back(report);
  v1::ConnectRequest request;
  *request.mutable_report() = std::move(report);
  WriteLocked(request);
}

void FakeWorker::KillRank(int signal) {
  v1::RankExited exited;
  exited.set_signal(signal);
  EndRank(std::move(exited));
}

void FakeWorker::BeginDying() {
  const std::lock_guard lock(mutex_);
  dying_ = true;
}

void FakeWorker::ExitRank(int code, const std::vector<std::string>& last_lines) {
  v1::RankExited exited;
  exited.set_exit_code(code);
  for (const std::string& line : last_lines) exited.add_last_lines(line);
  EndRank(std::move(exited));
}

void FakeWorker::FailRank(v1::FailureCause cause, const std::string& message,
                          std::optional<int> peer) {
  v1::Report report;
  *report.mutable_key() = key();
  report.mutable_failure()->set_cause(cause);
  report.mutable_failure()->set_message(message);
  if (peer) report.mutable_failure()->set_peer(*peer);
  Spool(std::move(report));
}

void FakeWorker::Pulse(v1::RankPulse pulse) {
  *pulse.mutable_key() = key();
  v1::ConnectRequest request;
  *request.mutable_heartbeat()->mutable_rank() = std::move(pulse);
  *request.mutable_heartbeat()->mutable_time() = NowTimestamp(options_.clock_ahead);
  Send(request);
}

void FakeWorker::Beat() {
  v1::ConnectRequest request;
  *request.mutable_heartbeat()->mutable_time() = NowTimestamp(options_.clock_ahead);
  {
    const std::lock_guard lock(mutex_);
    if (rank_) *request.mutable_heartbeat()->mutable_rank()->mutable_key() = rank_->key();
  }
  Send(request);
}

void FakeWorker::Log(const std::string& line) {
  v1::Report report;
  *report.mutable_key() = key();
  v1::LogEntry& entry = *report.mutable_logs()->add_entries();
  entry.set_text(line);
  entry.set_rank(key().rank());
  entry.set_attempt(key().attempt());
  entry.set_epoch(key().epoch());
  Spool(std::move(report));
}

void FakeWorker::SendReport(v1::Report report) { Spool(std::move(report)); }

void FakeWorker::Send(const v1::ConnectRequest& request) {
  const std::lock_guard lock(mutex_);
  WriteLocked(request);
}

void FakeWorker::Put(const std::string& name, const std::string& value) {
  v1::ConnectRequest request;
  *request.mutable_rendezvous_put()->mutable_key() = key();
  request.mutable_rendezvous_put()->set_name(name);
  request.mutable_rendezvous_put()->set_value(value);
  Send(request);
}

void FakeWorker::Get(const std::string& name) {
  v1::ConnectRequest request;
  *request.mutable_rendezvous_get()->mutable_key() = key();
  request.mutable_rendezvous_get()->set_name(name);
  Send(request);
}

std::vector<v1::ConnectResponse> FakeWorker::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

int FakeWorker::CountReceived(v1::ConnectResponse::MessageCase kind) const {
  const std::lock_guard lock(mutex_);
  int count = 0;
  for (const auto& response : received_) count += response.message_case() == kind ? 1 : 0;
  return count;
}

bool FakeWorker::running() const {
  const std::lock_guard lock(mutex_);
  return rank_.has_value();
}

bool FakeWorker::connected() const {
  const std::lock_guard lock(mutex_);
  return connection_ != nullptr && !stream_status_;
}

std::int64_t FakeWorker::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

v1::EpochKey FakeWorker::key() const {
  const std::lock_guard lock(mutex_);
  return rank_ ? rank_->key() : v1::EpochKey();
}

int FakeWorker::num_unacked() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(spool_.size());
}

std::vector<std::int64_t> FakeWorker::resumed_after() const {
  const std::lock_guard lock(mutex_);
  return resumed_after_;
}

std::optional<grpc::Status> FakeWorker::stream_status() const {
  const std::lock_guard lock(mutex_);
  return stream_status_;
}

}  // namespace fsdp::testing
