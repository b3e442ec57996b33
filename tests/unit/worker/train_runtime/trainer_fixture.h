#ifndef FSDPCTL_TESTS_UNIT_WORKER_TRAIN_RUNTIME_TRAINER_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_WORKER_TRAIN_RUNTIME_TRAINER_FIXTURE_H_

// Whole ranks in process: threads, in_process communicators, a link that plays the control plane.

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/fakes/faulty_communicator.h"
#include "worker/checkpoint/catalog.h"
#include "worker/comm/in_process.h"
#include "worker/train/trainer.h"

namespace fsdp {

class FakeLink final : public TrainerLink, private RendezvousStore {
 public:
  enum class Verdicts { kAdmit, kRefuse, kAdmitWhenDone };

  void SetVerdicts(Verdicts verdicts) { verdicts_ = verdicts; }
  // The stop arrives once this rank has reported `step`.
  void StopAfter(std::int64_t step, v1::StopMode mode) {
    stop_after_ = step;
    stop_mode_ = mode;
  }

  // The stop arrives once the profile that it was asked for has ended.
  void StopAfterProfile() { stop_after_profile_ = true; }

  absl::Status Send(const v1::TrainerToDaemon& message) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (message.has_pulse()) {
      ++pulses_;
      return absl::OkStatus();
    }
    messages_.push_back(message);
    const v1::ProfileState state = message.profile().state();
    if (state == v1::PROFILE_STATE_DONE || state == v1::PROFILE_STATE_FAILED) profile_ended_ = true;
    return absl::OkStatus();
  }
  absl::StatusOr<v1::CommitEpoch> WaitCommit() override { return v1::CommitEpoch(); }
  std::optional<v1::ManifestVerdict> TakeVerdict(std::int64_t step, absl::Duration wait) override {
    // The waits of a save are short here, those of the end are a second.
    if (verdicts_ == Verdicts::kAdmitWhenDone && wait < absl::Seconds(1)) {
      if (wait > absl::ZeroDuration()) ++unanswered_waits_;
      return std::nullopt;
    }
    v1::ManifestVerdict verdict;
    verdict.set_step(step);
    verdict.set_admitted(verdicts_ != Verdicts::kRefuse);
    verdict.set_reason("epoch 1 is over");
    return verdict;
  }
  std::optional<v1::TrainerStop> stop() override {
    if (stop_after_profile_ && profile_ended_) {
      v1::TrainerStop stop;
      stop.set_mode(v1::STOP_MODE_DRAIN);
      return stop;
    }
    if (stop_after_ == 0 || static_cast<std::int64_t>(Steps().size()) < stop_after_) {
      return std::nullopt;
    }
    v1::TrainerStop stop;
    stop.set_mode(stop_mode_);
    return stop;
  }
  // The request arrives once this rank has reported `step`.
  void ProfileAfter(std::int64_t step, const v1::TrainerProfile& profile) {
    profile_after_ = step;
    profile_ = profile;
  }
  std::optional<v1::TrainerProfile> TakeProfile() override {
    if (!profile_.has_value()) return std::nullopt;
    if (static_cast<std::int64_t>(Steps().size()) < profile_after_) return std::nullopt;
    return std::exchange(profile_, std::nullopt);
  }
  RendezvousStore& rendezvous() override { return *this; }
  void OnDump(std::function<void()> handler) override { dump_ = std::move(handler); }

  // Everything but pulses.
  [[nodiscard]] std::vector<v1::TrainerToDaemon> Messages() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return messages_;
  }
  [[nodiscard]] std::vector<v1::StepReport> Steps() {
    std::vector<v1::StepReport> steps;
    for (const auto& message : Messages()) {
      if (message.has_step()) steps.push_back(message.step());
    }
    return steps;
  }
  [[nodiscard]] std::vector<double> Losses() {
    std::vector<double> losses;
    for (const auto& step : Steps()) losses.push_back(step.metrics().loss());
    return losses;
  }
  [[nodiscard]] v1::RankFailure Failure() {
    for (const auto& message : Messages()) {
      if (message.has_failure()) return message.failure();
    }
    return {};
  }
  // The kinds of messages in order, runs of one kind once: "joined running step manifest done".
  [[nodiscard]] std::string Order() {
    std::string order;
    std::string last;
    for (const auto& message : Messages()) {
      const std::string name =
          message.GetDescriptor()->FindFieldByNumber(message.message_case())->name();
      if (name != last) absl::StrAppend(&order, order.empty() ? "" : " ", name);
      last = name;
    }
    return order;
  }
  // Of saves, for a verdict that did not come.
  [[nodiscard]] int unanswered_waits() const { return unanswered_waits_; }
  [[nodiscard]] int pulses() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pulses_;
  }

 private:
  absl::Status Put(const std::string& /*name*/, const std::string& /*value*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& /*name*/, absl::Duration /*wait*/) override {
    return absl::UnimplementedError("not used");
  }

  std::mutex mutex_;
  std::vector<v1::TrainerToDaemon> messages_;
  std::function<void()> dump_;
  int pulses_ = 0;
  std::atomic<int> unanswered_waits_ = 0;
  Verdicts verdicts_ = Verdicts::kAdmit;
  std::int64_t stop_after_ = 0;
  v1::StopMode stop_mode_ = v1::STOP_MODE_UNSPECIFIED;
  std::int64_t profile_after_ = 0;
  bool stop_after_profile_ = false;
  std::atomic<bool> profile_ended_ = false;
  std::optional<v1::TrainerProfile> profile_;
};

// One epoch of a job.
struct Epoch {
  v1::TrainingJob job;
  int world_size = 1;
  std::int64_t number = 1;
  std::string resume;
  std::vector<std::string> resume_before;
  bool resume_or_begin = false;
  BlobStore* store = &BlobStore::Posix();  // of what is saved
  DataAccess data;
  std::function<CounterSource(Device&)> counters;  // of every rank; null: none
  // By rank; ranks without an entry have no faults.
  std::map<int, FaultScript> gather_faults;

  std::vector<std::unique_ptr<FakeLink>> links;
  std::vector<absl::StatusOr<v1::TrainerDone>> results;
  std::vector<std::string> printed;  // by rank 0

  explicit Epoch(v1::TrainingJob spec, int world = 1) : job(std::move(spec)), world_size(world) {
    for (int rank = 0; rank < world; ++rank) links.push_back(std::make_unique<FakeLink>());
  }

  void Run() {
    results.assign(static_cast<std::size_t>(world_size), absl::UnknownError("did not run"));
    auto gathers = CreateInProcessGroup(world_size).value();
    auto scatters = CreateInProcessGroup(world_size).value();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      threads.emplace_back([this, rank, at, &gathers, &scatters] {
        const std::unique_ptr<Device> device = CreateCpuDevice({.num_threads = 1}).value();
        results[at] = RunRank(MakeRun(rank, gathers[at], scatters[at]), *links[at], *device);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  [[nodiscard]] const v1::TrainerDone& done(std::size_t rank = 0) const { return *results[rank]; }

 private:
  TrainerRun MakeRun(int rank, std::unique_ptr<Communicator>& gather,
                     std::unique_ptr<Communicator>& scatter) {
    TrainerRun run;
    v1::StartRank& assignment = *run.start.mutable_assignment();
    *assignment.mutable_job() = job;
    assignment.mutable_key()->set_job("jobs/test");
    assignment.mutable_key()->set_epoch(number);
    assignment.mutable_key()->set_rank(rank);
    assignment.set_world_size(world_size);
    assignment.set_local_rank(1);  // measures no ceilings
    if (!resume.empty()) assignment.mutable_resume()->set_path(resume);
    for (const std::string& path : resume_before) assignment.add_resume_before()->set_path(path);
    assignment.set_resume_or_begin(resume_or_begin);
    run.print = [this](const std::string& line) { printed.push_back(line); };
    run.store = store;
    run.counters = counters;
    run.data = data;
    run.verdict_wait = absl::Milliseconds(1);
    run.connect = [&, rank](const v1::CommitEpoch&) -> absl::StatusOr<RankCommunicators> {
      RankCommunicators communicators;
      if (world_size == 1) return communicators;
      // Every rank's thread looks here: no entries are made.
      const auto faults = gather_faults.find(rank);
      communicators.gather = std::make_unique<FaultyCommunicator>(
          std::move(gather), faults == gather_faults.end() ? FaultScript() : faults->second);
      communicators.scatter = std::move(scatter);
      return communicators;
    };
    return run;
  }
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "fsdp-train-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~TrainerTest() override { std::filesystem::remove_all(directory_); }

  // A llama of a few thousand parameters on a text of its own.
  v1::TrainingJob Job(std::int64_t steps) {
    const std::string path = directory_ + "/text";
    if (!std::filesystem::exists(path)) {
      std::ofstream text(path);
      for (int i = 0; i < 400; ++i) text << "the quick brown fox " << i * 7919 % 1000 << "\n";
    }
    v1::TrainingJob job;
    v1::JobSpec& spec = *job.mutable_spec();
    v1::ModelSpec& model = *spec.mutable_model();
    model.set_family(v1::MODEL_FAMILY_LLAMA);
    model.set_vocab_size(256);
    model.set_dim(16);
    model.set_num_layers(1);
    model.set_num_heads(2);
    model.set_num_kv_heads(1);
    model.set_mlp_dim(24);
    v1::DataSpec& data = *spec.mutable_data();
    data.set_source(v1::DATA_SOURCE_TEXT);
    data.set_path(path);
    data.set_sequence_length(16);
    data.set_validation_fraction(0.1);
    spec.mutable_train()->set_global_batch(5);
    spec.mutable_train()->set_seed(3);
    spec.mutable_optimizer()->set_name(v1::OPTIMIZER_NAME_ADAMW);
    spec.mutable_optimizer()->set_lr(1e-2);
    spec.mutable_precision()->set_parameters(v1::PRECISION_D_TYPE_FP32);
    spec.mutable_precision()->set_reduce(v1::PRECISION_D_TYPE_FP32);
    spec.mutable_limits()->set_max_steps(steps);
    return job;
  }
  // Its text and another, 7 to 3.
  void Mix(v1::TrainingJob* job) const {
    v1::DataSpec& data = *job->mutable_spec()->mutable_data();
    const std::string path = directory_ + "/numbers";
    if (!std::filesystem::exists(path)) {
      std::ofstream text(path);
      for (int i = 0; i < 100; ++i) text << i * 104729 % 10007 << " ";
    }
    const auto add = [&](const std::string& name, const std::string& of, double weight) {
      v1::DataMixture& part = *data.add_mixture();
      part.set_name(name);
      part.set_path(of);
      part.set_weight(weight);
    };
    add("words", data.path(), 0.7);
    add("numbers", path, 0.3);
    data.clear_path();
  }
  v1::TrainingJob JobWithCheckpoints(std::int64_t steps) {
    v1::TrainingJob job = Job(steps);
    job.mutable_spec()->mutable_checkpoint()->set_dir(directory_ + "/checkpoints");
    return job;
  }
  [[nodiscard]] std::string Root() const { return directory_ + "/checkpoints/test"; }
  absl::StatusOr<CatalogEntry> Newest() { return FindNewestCheckpoint(BlobStore::Posix(), Root()); }

  std::string directory_;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_WORKER_TRAIN_RUNTIME_TRAINER_FIXTURE_H_
