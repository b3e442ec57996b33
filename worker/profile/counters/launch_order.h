#ifndef FSDPCTL_WORKER_PROFILE_COUNTERS_LAUNCH_ORDER_H_
#define FSDPCTL_WORKER_PROFILE_COUNTERS_LAUNCH_ORDER_H_

// Gives the driver's kernel records their family without reading a kernel's name. A step launches
// the same things in the same order each time: graphs, whose launches and their numbers of kernels
// were counted when they were captured, and launches between the graphs. Records of one stream in
// order of time are laid along that order; graph boundaries are where it is found again after a
// gap.
//
// Nothing is guessed: records that do not fit are counted, and get no family.
//
// Pure; thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/profile/family_recorder.h"

namespace fsdp {

// The driver's record of one kernel or copy. Times are of CLOCK_MONOTONIC.
struct KernelRecord {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;  // of the call that launched it; a graph launch is one call
  std::uint32_t graph = 0;        // 0: not of a graph
  std::uint64_t graph_node = 0;
  bool is_copy = false;  // a copy engine's or the driver's own: no launch of ours
};

// One launch as the step thread issues it.
struct ExpectedLaunch {
  static constexpr int kUnknownKernels = -1;
  // Absent: kernels that no launch of a family accounts for.
  std::optional<KernelFamily> family;
  int num_kernels = kUnknownKernels;
};

// A run of launches: those of one graph, or those between two graphs.
struct ExpectedRun {
  bool is_graph = false;
  // Of a graph, each with its num_kernels.
  std::vector<ExpectedLaunch> launches;
};

struct LaunchMatch {
  // As many as records.
  std::vector<std::optional<KernelFamily>> families;
  std::int64_t matched = 0;
  // Kernels whose launch is not known: of a graph that was not recognised, or of a run between
  // graphs that has more or fewer kernels than it should.
  std::int64_t unmatched = 0;
  // The expected order was left and found again this often: records were lost, or the step did
  // something else for once.
  std::int64_t resyncs = 0;
};

// `records`: of one stream, in order of time, from anywhere in a step to anywhere in another.
// `step`: what a step puts into that stream, from its begin; it repeats. Copies are not part of it
// and get the family kCopy. Kernels of a graph are matched by the graph and the node that the
// driver names, once the graph has been seen complete and in its place; so lost records cost
// themselves only. In a stream without graphs nothing marks a place: its kernels are matched if one
// family is all there is, or if `from_step_begin` says that the first record is a step's first
// launch and the records make whole steps.
LaunchMatch MatchLaunches(std::span<const KernelRecord> records, std::span<const ExpectedRun> step,
                          bool from_step_begin = false);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_COUNTERS_LAUNCH_ORDER_H_
