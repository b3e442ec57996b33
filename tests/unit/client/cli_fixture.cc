#include "tests/unit/client/cli_fixture.h"

namespace fsdp {

const char kGoodSpec[] = R"(apiVersion: fsdp.v1
kind: TrainingJob
metadata:
  name: tiny
spec:
  model: {preset: llama-tiny}
  data: {source: synthetic, sequenceLength: 32}
  train: {globalBatch: 4}
  precision: {parameters: fp32}
  resources: {devicesPerNode: 2}
  limits: {maxSteps: 3}
)";

CliResult CliRunner::Run(const std::vector<std::string>& arguments) {
  std::istringstream in(input);
  std::ostringstream out;
  std::ostringstream err;
  CliWorld world;
  world.in = &in;
  world.out = &out;
  world.err = &err;
  world.out_is_terminal = terminal;
  world.err_is_terminal = terminal;
  world.environment = [this](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  world.interrupt = &interrupt;
  world.clock = &clock_;
  const int exit_code = RunCli(arguments, world);
  return {exit_code, out.str(), err.str()};
}

v1::Job CliRunner::ExampleJob(v1::JobState state) {
  v1::Job job;
  job.set_name("jobs/a-00000001");
  job.set_state(state);
  job.set_owner("ada");
  job.set_attempt(1);
  job.set_epoch(3);
  job.mutable_create_time()->set_seconds(1767323045 - 90);
  auto& spec = *job.mutable_spec()->mutable_spec();
  spec.set_queue("default");
  spec.mutable_resources()->set_nodes(1);
  spec.mutable_resources()->set_devices_per_node(2);
  auto& progress = *job.mutable_progress();
  progress.set_step(40);
  progress.set_total_steps(100);
  progress.set_loss(2.34567);
  progress.set_tokens_per_second(12345);
  progress.set_eta_seconds(75);
  for (int rank = 0; rank < 2; ++rank) {
    auto& status = *job.add_ranks();
    status.set_rank(rank);
    status.set_worker("workers/host-" + std::to_string(rank));
    status.set_host("host");
    status.set_device("cpu");
    status.set_state(v1::RANK_STATE_RUNNING);
    status.set_step(40);
    status.set_pid(1000 + rank);
    status.set_memory_peak_bytes(3 << 20);
    status.set_memory_planned_bytes(4 << 20);
  }
  return job;
}

}  // namespace fsdp
