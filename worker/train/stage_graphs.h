#ifndef FSDPCTL_WORKER_TRAIN_STAGE_GRAPHS_H_
#define FSDPCTL_WORKER_TRAIN_STAGE_GRAPHS_H_

// The compute stream's work of a stage as a device graph: run as it is the first time (the backend
// makes its plans then), captured the second, launched from then on. Collectives, their events and
// copies from the host stay outside, so they are the same with and without graphs.
//
// Thread rule: the step thread.

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/profile/counters/launch_order.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {

class StageGraphs {
 public:
  enum class Work : std::uint8_t { kForward, kHead, kBackward, kUpdate };
  // Everything that a piece of work's launches depend on. Work of the same key is the same.
  struct Key {
    Work work = Work::kForward;
    int stage = 0;
    std::int64_t sequences = 0;
    bool accumulate = false;
    const void* input = nullptr;   // tokens, where they are read
    const void* output = nullptr;  // sums, where they are written

    [[nodiscard]] auto Tuple() const {
      return std::tuple(work, stage, sequences, accumulate, input, output);
    }
    bool operator<(const Key& other) const { return Tuple() < other.Tuple(); }
  };

  // Both outlive the graphs. Not `enabled`, or a device without graphs: work runs as it is.
  StageGraphs(Device& device, FamilyRecorder& recorder, bool enabled)
      : device_(device), recorder_(recorder), enabled_(enabled && device.has_graphs()) {}

  // `issue` (absl::Status()) puts work into the compute stream and nowhere else.
  template <typename Fn>
  absl::Status Run(const Key& key, Fn&& issue) {
    if (!enabled_ || paused_) {
      if (keeps_order_) order_.push_back(nullptr);
      return issue();
    }
    return RunKnown(key, [&issue] { return issue(); });
  }

  // While paused work runs as it is.
  void Pause(bool paused) { paused_ = paused; }
  [[nodiscard]] std::size_t num_graphs() const { return num_graphs_; }

  // From BeginOrder to EndOrder it is kept what Run puts into the compute stream; a step in between
  // gives the order that its kernels' records are matched with (MatchLaunches). Work that is not in
  // a graph is a run of unknown launches.
  void BeginOrder();
  [[nodiscard]] std::vector<ExpectedRun> EndOrder();

 private:
  // More kinds of work than this (one per micro-batch) are not worth their memory.
  static constexpr std::size_t kMaxGraphs = 1024;
  struct Entry {
    std::unique_ptr<DeviceGraph> graph;
    FamilyTable work{};  // what one launch of it does
    ExpectedRun launches;
  };
  absl::Status RunKnown(const Key& key, const DeviceGraph::Issue& issue);
  absl::Status Capture(Entry& entry, const DeviceGraph::Issue& issue);

  Device& device_;
  FamilyRecorder& recorder_;
  const bool enabled_;
  bool paused_ = false;
  std::map<Key, Entry> entries_;
  std::size_t num_graphs_ = 0;
  bool keeps_order_ = false;
  std::vector<const Entry*> order_;  // null: work without a graph
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_STAGE_GRAPHS_H_
