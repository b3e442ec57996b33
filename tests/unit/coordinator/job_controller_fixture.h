#ifndef FSDPCTL_TESTS_UNIT_COORDINATOR_JOB_CONTROLLER_FIXTURE_H_
#define FSDPCTL_TESTS_UNIT_COORDINATOR_JOB_CONTROLLER_FIXTURE_H_

// One job under the test's control: events in, effects out, time as an argument.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/lifecycle/job_controller.h"
#include "gtest/gtest.h"

namespace fsdp::coordinator {

class JobControllerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.mutable_job().set_name("jobs/a");
    Do([](JobController& controller) { controller.Enqueue(); });
  }

  // One event at the current time; its effects stay in `effects_`.
  void Do(const std::function<void(JobController&)>& event) {
    effects_ = Effects();
    JobController controller(job_, options_, now_, effects_);
    event(controller);
  }
  void Pass(double seconds) {
    now_.mono = now_.mono + absl::Seconds(seconds);
    now_.wall += absl::Seconds(seconds);
  }
  v1::JobSpec& spec() { return *job_.mutable_job().mutable_spec()->mutable_spec(); }

  void Start(int ranks) {
    std::vector<records::MemberRecord> members;
    for (int rank = 0; rank < ranks; ++rank) {
      members.emplace_back().set_rank(rank);
      members.back().set_worker("w" + std::to_string(rank));
    }
    Do([&](JobController& controller) { controller.Place(members); });
    for (int rank = 0; rank < ranks; ++rank) {
      v1::RankJoined joined;
      joined.set_resume_step(job_.job().checkpoint().step());
      Do([&](JobController& controller) { controller.OnJoined(rank, joined); });
    }
  }
  void Exit(int rank, int signal, bool signalled_by_worker = false) {
    v1::RankExited exited;
    exited.set_signal(signal);
    exited.set_signalled_by_worker(signalled_by_worker);
    Do([&](JobController& controller) { controller.OnExited(rank, exited); });
  }
  // As a rank ends whose worker is stopped: with the signal that ended the grace period, or by
  // itself.
  void StoppedByItsWorker(int rank, int signal = 0) {
    v1::RankExited exited;
    exited.set_signal(signal);
    exited.set_signalled_by_worker(signal != 0);
    exited.set_last_step(7);
    exited.set_worker_stop_reason("the worker is shutting down: Terminated");
    Do([&](JobController& controller) { controller.OnExited(rank, exited); });
  }
  void LosePeer(int rank, std::optional<int> peer) {
    v1::RankFailure failure;
    failure.set_cause(v1::FAILURE_CAUSE_COMMUNICATION);
    failure.set_message("connection reset by peer");
    failure.set_collective("all_gather layers.3, sequence 47");
    if (peer) failure.set_peer(*peer);
    Do([&](JobController& controller) { controller.OnFailure(rank, failure); });
  }
  // Rank 0 proposes the checkpoint, and it is admitted.
  void Publish(std::int64_t step, std::optional<double> train_loss = std::nullopt) {
    v1::ManifestProposal proposal;
    proposal.mutable_checkpoint()->set_step(step);
    if (train_loss.has_value()) proposal.mutable_checkpoint()->set_train_loss(*train_loss);
    Do([&](JobController& controller) { controller.OnManifest(0, proposal); });
  }
  // With the losses of evaluation sets, by name.
  void SaveEvaluated(std::int64_t step, double validation_loss,
                     const std::map<std::string, double>& sets) {
    v1::ManifestProposal proposal;
    v1::CheckpointInfo& info = *proposal.mutable_checkpoint();
    info.set_step(step);
    info.set_validation_loss(validation_loss);
    for (const auto& [name, loss] : sets) {
      v1::EvaluationLoss& set = *info.add_evaluations();
      set.set_name(name);
      set.set_loss(loss);
    }
    Do([&](JobController& controller) { controller.OnManifest(0, proposal); });
    Written(step);
  }
  // Rank 0 has written the manifest.
  void Written(std::int64_t step) {
    v1::CheckpointPublished published;
    published.set_step(step);
    Do([&](JobController& controller) { controller.OnPublished(0, published); });
  }
  void Save(std::int64_t step, std::optional<double> train_loss = std::nullopt) {
    Publish(step, train_loss);
    Written(step);
  }
  void Step(std::int64_t step) {
    v1::StepReport report;
    report.mutable_metrics()->set_step(step);
    Do([&](JobController& controller) { controller.OnStep(0, report); });
  }
  std::vector<std::int64_t> Listed() const {
    std::vector<std::int64_t> steps;
    steps.reserve(job_.checkpoints.size());
    for (const v1::CheckpointInfo& info : job_.checkpoints) steps.push_back(info.step());
    return steps;
  }
  // The next epoch's only rank does not get as far as joining. Effects stay of its exit.
  void FailToLoad(const std::string& message, bool damaged) {
    std::vector<records::MemberRecord> members(1);
    members[0].set_worker("w0");
    Do([&](JobController& controller) { controller.Place(members); });
    v1::RankFailure failure;
    failure.set_cause(v1::FAILURE_CAUSE_CHECKPOINT);
    failure.set_phase(v1::PHASE_START);
    failure.set_checkpoint_damaged(damaged);
    failure.set_message(message);
    Do([&](JobController& controller) { controller.OnFailure(0, failure); });
    v1::RankExited exited;
    exited.set_exit_code(11);
    Do([&](JobController& controller) { controller.OnExited(0, exited); });
  }
  std::vector<std::string> Types() const {
    std::vector<std::string> types;
    types.reserve(effects_.events.size());
    for (const v1::JobEvent& event : effects_.events) types.push_back(event.type());
    return types;
  }
  void Pulse(int rank, std::int64_t started, std::int64_t finished, double pending) {
    v1::RankPulse pulse;
    pulse.set_step(50);
    pulse.set_phase(v1::PHASE_TRAIN);
    pulse.set_collective_started(started);
    pulse.set_collective_finished(finished);
    pulse.set_collective("reduce_scatter layers.1");
    pulse.set_collective_pending_seconds(pending);
    Do([&](JobController& controller) { controller.OnPulse(rank, pulse); });
  }

  Options options_;
  JobRuntime job_;
  TimePoint now_{MonotonicTime::FromSinceStart(absl::Seconds(1000)), absl::FromUnixSeconds(1000)};
  Effects effects_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_TESTS_UNIT_COORDINATOR_JOB_CONTROLLER_FIXTURE_H_
