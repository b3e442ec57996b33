#ifndef FSDPCTL_TESTS_BENCH_LOAD_LOAD_BENCH_H_
#define FSDPCTL_TESTS_BENCH_LOAD_LOAD_BENCH_H_

// The two loads that the coordinator must carry. Each prints one JSON line and is false when
// something was refused, lost or missed its limit.

#include <string>

#include "fsdp/v1/job.pb.h"
#include "tests/bench/load/coordinator_process.h"

namespace fsdp::bench {

struct SubmitLoad {
  int watchers = 200;
  double submits_per_second = 100;
  double seconds = 60;
  // A job is cancelled this long after its submit, and deleted as long after that, so that the
  // number of jobs, and with it the memory, has a level to reach.
  double job_seconds = 2;
};
bool RunSubmitLoad(const CoordinatorProcess& coordinator, const SubmitLoad& load);

struct WorkerLoad {
  int workers = 1000;
  // Of each phase: idle workers, then one job with a rank on every worker, a step a second.
  double seconds = 60;
};
bool RunWorkerLoad(const CoordinatorProcess& coordinator, const WorkerLoad& load);

// A job that is valid and small, on `devices` of any hosts.
v1::TrainingJob SmallJob(int devices, std::int64_t steps);

}  // namespace fsdp::bench

#endif  // FSDPCTL_TESTS_BENCH_LOAD_LOAD_BENCH_H_
