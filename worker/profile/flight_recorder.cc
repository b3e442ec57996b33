#include "worker/profile/flight_recorder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

void Push(std::vector<double>& seconds, std::size_t& next, double value) {
  if (seconds.size() < FlightRecorder::kMedianWindow) {
    seconds.push_back(value);
    return;
  }
  seconds[next] = value;
  next = (next + 1) % seconds.size();
}

std::string NameOf(const CollectiveEntry& entry) {
  return absl::StrCat(entry.operation, entry.unit.empty() ? "" : " ", entry.unit);
}

}  // namespace

std::string DescribeCollective(const CollectiveEntry& entry) {
  return absl::StrCat(NameOf(entry), ", sequence ", entry.sequence);
}

FlightRecorder::FlightRecorder(const Clock& clock, std::size_t capacity)
    : clock_(clock), capacity_(std::max<std::size_t>(1, capacity)) {
  ring_.reserve(capacity_);
}

std::int64_t FlightRecorder::Enqueue(std::string_view operation, std::string_view unit,
                                     std::string_view communicator, std::int64_t bytes,
                                     const char* dtype) {
  const MonotonicTime now = clock_.Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t sequence = ++last_sequence_;
  const auto slot = static_cast<std::size_t>(sequence - 1) % capacity_;
  if (slot == ring_.size()) ring_.emplace_back();
  CollectiveEntry& entry = ring_[slot];
  entry.sequence = sequence;
  // assign() reuses the overwritten entry's memory.
  entry.operation.assign(operation);
  entry.unit.assign(unit);
  entry.communicator.assign(communicator);
  entry.bytes = bytes;
  entry.dtype = dtype;
  entry.phase = CollectivePhase::kEnqueued;
  entry.has_started = false;
  entry.enqueued = now;
  entry.started = entry.finished = MonotonicTime();
  return sequence;
}

CollectiveEntry* FlightRecorder::Find(std::int64_t sequence) {
  if (sequence < 1 || sequence > last_sequence_) return nullptr;
  CollectiveEntry& entry = ring_[static_cast<std::size_t>(sequence - 1) % capacity_];
  return entry.sequence == sequence ? &entry : nullptr;
}

void FlightRecorder::Start(std::int64_t sequence) {
  const MonotonicTime now = clock_.Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  last_started_ = std::max(last_started_, sequence);
  if (CollectiveEntry* entry = Find(sequence)) {
    entry->phase = CollectivePhase::kStarted;
    entry->started = now;
    entry->has_started = true;
  }
}

void FlightRecorder::Finish(std::int64_t sequence, bool ok) {
  const MonotonicTime now = clock_.Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ok) last_finished_ = std::max(last_finished_, sequence);
  CollectiveEntry* entry = Find(sequence);
  if (entry == nullptr) return;
  const bool had_started = entry->phase == CollectivePhase::kStarted;
  entry->phase = ok ? CollectivePhase::kFinished : CollectivePhase::kFailed;
  entry->finished = now;
  if (!ok || !had_started) return;
  const double seconds = absl::ToDoubleSeconds(now - entry->started);
  Durations& of_operation = durations_[entry->operation];
  Push(of_operation.seconds, of_operation.next, seconds);
  ++of_operation.total.count;
  of_operation.total.bytes += entry->bytes;
  of_operation.total.seconds += seconds;
  Push(all_.seconds, all_.next, seconds);
}

double FlightRecorder::Median(const Durations& durations) {
  if (durations.seconds.empty()) return 0;
  std::vector<double> sorted = durations.seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

const CollectiveEntry* FlightRecorder::OldestPending() const {
  const CollectiveEntry* oldest = nullptr;
  for (const CollectiveEntry& entry : ring_) {
    if (entry.phase != CollectivePhase::kStarted) continue;
    if (oldest == nullptr || entry.started < oldest->started) oldest = &entry;
  }
  return oldest;
}

CollectiveStatus FlightRecorder::Status() const {
  const MonotonicTime now = clock_.Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  CollectiveStatus status;
  status.last_started = last_started_;
  status.last_finished = last_finished_;
  status.median_seconds = Median(all_);
  const CollectiveEntry* oldest = OldestPending();
  if (oldest == nullptr) return status;
  status.pending = NameOf(*oldest);
  status.pending_sequence = oldest->sequence;
  // Another communicator's may have finished since: something is pending all the same.
  status.last_finished = std::min(status.last_finished, oldest->sequence - 1);
  status.pending_seconds = absl::ToDoubleSeconds(now - oldest->started);
  const auto of_operation = durations_.find(oldest->operation);
  if (of_operation != durations_.end()) status.median_seconds = Median(of_operation->second);
  return status;
}

std::string FlightRecorder::Culprit() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CollectiveEntry* culprit = nullptr;
  for (const CollectiveEntry& entry : ring_) {
    // What was queued behind the first failure failed without having started.
    const bool failed = entry.phase == CollectivePhase::kFailed && entry.has_started;
    if (failed && (culprit == nullptr || entry.sequence < culprit->sequence)) culprit = &entry;
  }
  if (culprit == nullptr) culprit = OldestPending();
  return culprit == nullptr ? "" : DescribeCollective(*culprit);
}

std::int64_t FlightRecorder::last_sequence() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_sequence_;
}

std::map<std::string, CollectiveTotal> FlightRecorder::Totals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::string, CollectiveTotal> totals;
  for (const auto& [operation, durations] : durations_) totals[operation] = durations.total;
  return totals;
}

std::vector<CollectiveEntry> FlightRecorder::Snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CollectiveEntry> entries = ring_;
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  return entries;
}

}  // namespace fsdp
