#ifndef FSDPCTL_WORKER_DAEMON_SPOOL_H_
#define FSDPCTL_WORKER_DAEMON_SPOOL_H_

// Reports on disk until the coordinator has them. Survives the daemon (kill -9) and the machine.
//
// Files: "<first sequence, 20 digits>.spool" in one directory, each a row of records: 4 bytes
// length, 4 bytes CRC-32C of the payload (both little-endian), and the payload, a serialized
// Report. A record is written with one write(2), so that a killed daemon leaves at most a torn last
// one, which the next Open cuts off.
//
// Durability: exits, joins, manifests, failures and all else that is rare are on the disk
// (fdatasync) when Append returns. Steps and log lines are not synced: they outlive the process,
// but a power loss may take the last of them.
//
// Bound: beyond Options::max_bytes the oldest steps and log lines are given up and counted; the
// rest is never dropped, even if it alone exceeds the bound.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/v1/worker_service.pb.h"

namespace fsdp::daemon {

// Thread-safe.
class Spool {
 public:
  struct Options {
    // Created when absent. One process at a time.
    std::string dir;
    std::int64_t max_bytes = std::int64_t{256} << 20;
    // A file is closed and the next begun at this size.
    std::int64_t segment_bytes = std::int64_t{4} << 20;
    // Number of the first report of a spool without files. Callers give the wall clock's
    // microseconds, so that a worker that lost its state directory does not reuse numbers which its
    // coordinator has acknowledged before.
    std::int64_t first_sequence = 1;
  };

  struct Stats {
    std::int64_t num_bytes = 0;
    std::int64_t num_reports = 0;
    // Since Open.
    std::int64_t num_dropped_steps = 0;
    std::int64_t num_dropped_logs = 0;
    // Damaged stretches found by Open.
    std::int64_t num_corrupt = 0;
    std::int64_t num_write_errors = 0;
  };

  // Damage is no error: what can be read is kept, Stats::num_corrupt counts the rest.
  //   NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, INTERNAL  the directory cannot be used
  static absl::StatusOr<std::unique_ptr<Spool>> Open(Options options);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // Numbers the report, stores it and returns its number. When the disk fails, a report that must
  // not be lost stays in memory and is delivered all the same while this process lives; a step or
  // log line is dropped.
  std::int64_t Append(fsdp::v1::Report report);

  // The reports after `sequence`, oldest first: as many as fit into `max_bytes`, at least one if
  // there is one. A report that can no longer be read from disk is left out and counted as corrupt.
  std::vector<fsdp::v1::Report> ReadAfter(std::int64_t sequence, std::int64_t max_bytes);

  // Everything up to `sequence` is durable elsewhere; forgets it.
  void Acknowledge(std::int64_t sequence);

  // The next report gets a number above `sequence`.
  void SkipPast(std::int64_t sequence);

  // Numbers of the oldest and newest report held; first == last + 1 when empty.
  [[nodiscard]] std::int64_t first_sequence() const;
  [[nodiscard]] std::int64_t last_sequence() const;
  [[nodiscard]] Stats stats() const;

 private:
  struct Segment {
    std::string path;
    int fd = -1;
    std::int64_t num_bytes = 0;
    std::int64_t num_live = 0;
  };
  struct Entry {
    std::int64_t sequence = 0;
    // Key of its segment in segments_; -1: only in `memory`.
    std::int64_t segment = -1;
    std::int64_t offset = 0;
    std::int64_t num_bytes = 0;
    bool droppable = false;
    bool is_logs = false;
    std::string memory;
  };

  explicit Spool(Options options) : options_(std::move(options)) {}

  absl::Status Load();
  absl::Status LoadSegment(std::int64_t first, bool is_last);
  absl::Status AddSegment(std::int64_t first);
  absl::Status WriteRecord(std::string_view record, bool sync);
  absl::StatusOr<fsdp::v1::Report> ReadEntry(const Entry& entry) const;
  void RemoveSegment(std::int64_t first);
  void RemoveDeadSegments();
  void EnforceBound();
  absl::Status Compact(std::int64_t first);

  const Options options_;
  mutable std::mutex mutex_;
  // All below guarded by mutex_. Keyed by first sequence; the last one is written to.
  std::map<std::int64_t, Segment> segments_;
  std::deque<Entry> entries_;
  std::int64_t next_sequence_ = 1;
  std::int64_t live_bytes_ = 0;
  Stats counters_;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_SPOOL_H_
