#ifndef FSDPCTL_WORKER_PROFILE_FLIGHT_RECORDER_H_
#define FSDPCTL_WORKER_PROFILE_FLIGHT_RECORDER_H_

// The last collectives of a rank: what was issued, what started, what finished. Always on; it is
// what names the collective when a rank hangs or dies.
//
// Thread rule: thread-safe; every call takes one short lock and allocates nothing after the first
// records. Nobody waits on it.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "proto/support/clock.h"

namespace fsdp {

enum class CollectivePhase : std::uint8_t { kEnqueued, kStarted, kFinished, kFailed };

struct CollectiveEntry {
  std::int64_t sequence = 0;  // from 1, over all communicators of the rank
  std::string operation;      // "all_gather", ...
  std::string unit;           // "layers.3"; empty when unnamed
  std::string communicator;   // "gather", "scatter"
  std::int64_t bytes = 0;
  const char* dtype = "";
  CollectivePhase phase = CollectivePhase::kEnqueued;
  bool has_started = false;  // told apart where phase is kFailed
  MonotonicTime enqueued;
  MonotonicTime started;
  MonotonicTime finished;
};

// The state that pulses carry.
struct CollectiveStatus {
  std::int64_t last_started = 0;  // sequence; 0 = none yet
  std::int64_t last_finished =
      0;  // below what is pending: less than last_started while anything is
  // The oldest that has started and not finished, "all_gather layers.3", and its sequence; empty
  // when there is none.
  std::string pending;
  std::int64_t pending_sequence = 0;
  double pending_seconds = 0;
  // Of the pending one's operation (of all when nothing is pending) over the last kMedianWindow.
  double median_seconds = 0;
};

// Of one operation, since the recorder was made; what failed is left out.
struct CollectiveTotal {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
};

class FlightRecorder {
 public:
  static constexpr std::size_t kMedianWindow = 65;

  // `clock` outlives the recorder. `capacity`: entries kept, about 150 bytes each.
  explicit FlightRecorder(const Clock& clock, std::size_t capacity = 1024);

  // Returns the new entry's sequence.
  std::int64_t Enqueue(std::string_view operation, std::string_view unit,
                       std::string_view communicator, std::int64_t bytes, const char* dtype);
  // Unknown (overwritten) sequences are ignored.
  void Start(std::int64_t sequence);
  void Finish(std::int64_t sequence, bool ok);

  [[nodiscard]] CollectiveStatus Status() const;
  // Of the newest entry; 0 before the first.
  [[nodiscard]] std::int64_t last_sequence() const;
  // The first that failed, else the oldest pending: "all_gather layers.3, sequence 4711"; empty
  // when there is neither.
  [[nodiscard]] std::string Culprit() const;
  // Oldest first.
  [[nodiscard]] std::vector<CollectiveEntry> Snapshot() const;
  // By operation.
  [[nodiscard]] std::map<std::string, CollectiveTotal> Totals() const;

 private:
  // The last durations of one operation.
  struct Durations {
    std::vector<double> seconds;
    std::size_t next = 0;
    CollectiveTotal total;
  };
  CollectiveEntry* Find(std::int64_t sequence);
  // With mutex_ held; null when nothing is pending.
  [[nodiscard]] const CollectiveEntry* OldestPending() const;
  static double Median(const Durations& durations);

  const Clock& clock_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<CollectiveEntry> ring_;
  std::int64_t last_sequence_ = 0;
  std::int64_t last_started_ = 0;
  std::int64_t last_finished_ = 0;
  std::map<std::string, Durations, std::less<>> durations_;
  Durations all_;
};

// "all_gather layers.3, sequence 4711".
std::string DescribeCollective(const CollectiveEntry& entry);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_FLIGHT_RECORDER_H_
