// Loads on a real coordinator process: its processor time, its memory and what its clients see.
//
//   load_bench COORDINATOR submits [SECONDS] [WATCHERS] [PER_SECOND]     default 60 200 100
//   load_bench COORDINATOR workers [SECONDS] [WORKERS]                   default 60 1000
//
// Prints JSON lines and ends with 1 when an error was seen or a limit was missed. The clients share
// the machine with the coordinator; only the coordinator's time is counted.

#include "tests/bench/load/load_bench.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace fsdp::bench {

v1::TrainingJob SmallJob(int devices, std::int64_t steps) {
  v1::TrainingJob job;
  job.set_api_version("fsdp.v1");
  job.set_kind("TrainingJob");
  job.mutable_metadata()->set_name("load");
  v1::JobSpec& spec = *job.mutable_spec();
  spec.mutable_model()->set_family(v1::MODEL_FAMILY_LLAMA);
  spec.mutable_model()->set_vocab_size(256);
  spec.mutable_model()->set_dim(32);
  spec.mutable_model()->set_num_layers(2);
  spec.mutable_model()->set_num_heads(4);
  spec.mutable_model()->set_mlp_dim(64);
  spec.mutable_data()->set_source(v1::DATA_SOURCE_SYNTHETIC);
  spec.mutable_data()->set_sequence_length(16);
  spec.mutable_train()->set_global_batch(4);
  spec.mutable_resources()->set_device(v1::DEVICE_TYPE_CPU);
  spec.mutable_resources()->set_devices_per_node(devices);
  spec.mutable_resources()->set_any_node(true);
  spec.mutable_limits()->set_max_steps(steps);
  return job;
}

namespace {

// A connection each, on top of what the libraries open.
void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int Usage() {
  std::fprintf(stderr,
               "usage: load_bench COORDINATOR submits [SECONDS] [WATCHERS] [PER_SECOND]\n"
               "       load_bench COORDINATOR workers [SECONDS] [WORKERS]\n");
  return 2;
}

int Main(int argc, char** argv) {
  if (argc < 3) return Usage();
  const auto number = [&](int index, double fallback) {
    return argc > index ? std::atof(argv[index]) : fallback;
  };
  const std::string mode = argv[2];
  const double seconds = number(3, 60);
  if (seconds < 1 || (mode != "submits" && mode != "workers")) return Usage();
  RaiseFileLimit();
  const auto coordinator = CoordinatorProcess::Start(argv[1]);
  if (!coordinator.ok()) {
    std::fprintf(stderr, "%s\n", coordinator.status().ToString().c_str());
    return 1;
  }
  if (mode == "submits") {
    return RunSubmitLoad(**coordinator, {.watchers = static_cast<int>(number(4, 200)),
                                         .submits_per_second = number(5, 100),
                                         .seconds = seconds})
               ? 0
               : 1;
  }
  return RunWorkerLoad(**coordinator,
                       {.workers = static_cast<int>(number(4, 1000)), .seconds = seconds})
             ? 0
             : 1;
}

}  // namespace
}  // namespace fsdp::bench

int main(int argc, char** argv) { return fsdp::bench::Main(argc, argv); }
