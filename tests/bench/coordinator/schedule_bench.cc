// One pass of the scheduler over many jobs and workers.
//
//   schedule_bench [JOBS] [WORKERS] [QUEUES]              default 1000 1000 8
//
// Prints a line of JSON for each state of the cluster: empty (all that fits is placed), full and
// borrowed (every queue's owner takes back), full and owned (nothing can be done), and the last one
// without queues.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/schedule/queue_scheduler.h"

namespace {

using namespace fsdp::coordinator;  // NOLINT(google-build-using-namespace)
using fsdp::JobId;
using fsdp::WorkerId;

constexpr int kDevicesPerHost = 8;
constexpr int kRepetitions = 11;

struct Size {
  int jobs = 1000;
  int workers = 1000;
  int queues = 8;
};

ScheduleState Empty(const Size& size) {
  ScheduleState state;
  for (int i = 0; i < size.workers; ++i) {
    WorkerView& worker = state.view.workers.emplace_back();
    worker.host = absl::StrCat("node-", i / kDevicesPerHost);
    worker.id = WorkerId(absl::StrCat(worker.host, ":", i % kDevicesPerHost));
    worker.device_index = i % kDevicesPerHost;
    worker.placeable = true;
  }
  for (int i = 0; i < size.jobs; ++i) {
    QueuedDemand& item = state.waiting.emplace_back();
    item.entry = {JobId(absl::StrCat("wait-", i)), absl::StrCat("q", i % size.queues), i % 3, i};
    item.demand.devices_per_node = 1 << (i % 4);
  }
  return state;
}

// All devices are held by jobs of one host each.
ScheduleState Full(const Size& size, int of_queues) {
  ScheduleState state = Empty(size);
  for (int host = 0; host * kDevicesPerHost < size.workers; ++host) {
    ActiveJob& job = state.running.emplace_back();
    job.entry = {JobId(absl::StrCat("run-", host)), absl::StrCat("q", host % of_queues), 0, host};
    job.saves = true;
    job.ran = absl::Minutes(host);
    const int end = std::min(size.workers, (host + 1) * kDevicesPerHost);
    for (int i = host * kDevicesPerHost; i < end; ++i) {
      state.view.workers[i].held_by = absl::StrCat("jobs/run-", host);
      ++job.devices;
    }
  }
  return state;
}

QueuePolicies Policies(const Size& size) {
  QueuePolicies policies;
  for (int i = 0; i < size.queues; ++i) {
    policies[absl::StrCat("q", i)].devices[fsdp::v1::DEVICE_TYPE_CPU].quota =
        size.workers / size.queues;
  }
  return policies;
}

template <typename Pass>
void Measure(const char* name, const Size& size, Pass pass) {
  std::vector<double> milliseconds;
  std::size_t placed = 0;
  std::size_t preempted = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const ScheduleResult result = pass();
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
    placed = static_cast<std::size_t>(
        std::count_if(result.decisions.begin(), result.decisions.end(),
                      [](const QueueDecision& one) { return one.decision.placement.has_value(); }));
    preempted = result.preemptions.size();
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf(
      "{\"state\":\"%s\",\"jobs\":%d,\"workers\":%d,\"queues\":%d,\"placed\":%zu,\"preempted\":%zu,"
      "\"median_ms\":%.2f,\"max_ms\":%.2f}\n",
      name, size.jobs, size.workers, size.queues, placed, preempted,
      milliseconds[milliseconds.size() / 2], milliseconds.back());
}

}  // namespace

int main(int argc, char** argv) {
  Size size;
  if (argc > 1) size.jobs = std::atoi(argv[1]);
  if (argc > 2) size.workers = std::atoi(argv[2]);
  if (argc > 3) size.queues = std::atoi(argv[3]);
  const QueuePolicies policies = Policies(size);
  const ScheduleState empty = Empty(size);
  const ScheduleState borrowed = Full(size, 1);
  const ScheduleState owned = Full(size, size.queues);
  Measure("empty", size, [&] { return ScheduleQueues(policies, empty, {}); });
  Measure("borrowed", size, [&] { return ScheduleQueues(policies, borrowed, {}); });
  Measure("owned", size, [&] { return ScheduleQueues(policies, owned, {}); });
  Measure("without_queues", size,
          [&] { return ScheduleResult{.decisions = ScheduleQueue(owned.waiting, owned.view)}; });
  return 0;
}
