#include "coordinator/membership/worker_registry.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"
#include "coordinator/lifecycle/job_state.h"
#include "coordinator/store/resource_names.h"

namespace fsdp::coordinator {
namespace {

constexpr int kFencedRemembered = 8;
// Worker.rank of one that is held beside the ranks.
constexpr int kRankOfSpare = -1;
constexpr size_t kMaxWorkerName = 128;

bool IsValidWorkerName(const std::string& name) {
  if (name.empty() || name.size() > kMaxWorkerName) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

std::string WhyNotPlaceable(const WorkerEntry& entry) {
  if (entry.liveness == Liveness::kLost) return entry.record.left() ? "stopped" : "lost";
  if (entry.liveness == Liveness::kSuspect || entry.sink == nullptr) return "not connected";
  if (entry.record.cordoned()) return "drained";
  if (!entry.unplaceable_reason.empty()) {
    return absl::StrCat("unusable (", entry.unplaceable_reason, ")");
  }
  if (entry.foreign) return "still busy with a rank of a dead epoch";
  return "";
}

}  // namespace

void WorkerRegistry::Restore(const records::WorkerRecord& record, MonotonicTime now,
                             bool expected) {
  WorkerEntry& entry = entries_[WorkerId(record.id())];
  entry.record = record;
  entry.received_sequence = record.acked_sequence();
  entry.facts.connected = false;
  entry.facts.heard = now;
  entry.facts.disconnected = now;
  entry.facts.awaiting_adoption = expected;
  entry.liveness = Liveness::kSuspect;
}

WorkerEntry* WorkerRegistry::Find(const WorkerId& id) {
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : &entry->second;
}

absl::Status WorkerRegistry::CheckHello(const v1::WorkerHello& hello) const {
  const std::string id = StripCollection(hello.worker(), "workers/");
  if (!IsValidWorkerName(id)) {
    return BadField("worker", id,
                    absl::StrCat("worker name '", id.substr(0, kMaxWorkerName), "': want 1..",
                                 kMaxWorkerName, " of [A-Za-z0-9._-]"));
  }
  if (hello.incarnation().empty() || hello.incarnation().size() > 64) {
    return BadField("incarnation", hello.incarnation(),
                    "hello without an incarnation of 1..64 characters");
  }
  if (std::abs(hello.protocol_version() - kProtocolVersion) > 1) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            "worker ", id, " speaks protocol version ", hello.protocol_version(),
            ", the coordinator version ", kProtocolVersion, ": they may differ by one")),
        "PROTOCOL_VERSION_UNSUPPORTED",
        {{"worker", id},
         {"worker_version", absl::StrCat(hello.protocol_version())},
         {"coordinator_version", absl::StrCat(kProtocolVersion)}});
  }
  const auto known = entries_.find(WorkerId(id));
  if (known == entries_.end()) return absl::OkStatus();
  const WorkerEntry& entry = known->second;
  const auto& fenced = entry.record.fenced_incarnations();
  if (std::find(fenced.begin(), fenced.end(), hello.incarnation()) != fenced.end()) {
    return WithInfo(
        absl::AbortedError(absl::StrCat("incarnation ", hello.incarnation(), " of worker ", id,
                                        " was replaced by ", entry.record.incarnation())),
        "INCARNATION_FENCED",
        {{"worker", id},
         {"incarnation", hello.incarnation()},
         {"live_incarnation", entry.record.incarnation()}});
  }
  if (entry.sink != nullptr && entry.liveness == Liveness::kAlive &&
      entry.record.incarnation() != hello.incarnation()) {
    return WithInfo(absl::AlreadyExistsError(absl::StrCat(
                        "worker ", id, " is connected as incarnation ", entry.record.incarnation(),
                        " from host ", entry.record.host(), "; this is incarnation ",
                        hello.incarnation(), ": give one of them another name")),
                    "WORKER_NAME_TAKEN",
                    {{"worker", id},
                     {"host", entry.record.host()},
                     {"incarnation", hello.incarnation()},
                     {"live_incarnation", entry.record.incarnation()}});
  }
  return absl::OkStatus();
}

WorkerEntry& WorkerRegistry::Accept(const v1::WorkerHello& hello, std::shared_ptr<WorkerSink> sink,
                                    TimePoint now) {
  const std::string id = StripCollection(hello.worker(), "workers/");
  WorkerEntry& entry = entries_[WorkerId(id)];
  entry.record.set_id(id);
  if (entry.record.incarnation() != hello.incarnation()) {
    if (!entry.record.incarnation().empty()) {
      entry.record.add_fenced_incarnations(entry.record.incarnation());
      while (entry.record.fenced_incarnations_size() > kFencedRemembered) {
        entry.record.mutable_fenced_incarnations()->erase(
            entry.record.fenced_incarnations().begin());
      }
    }
    entry.record.set_incarnation(hello.incarnation());
    // A spool on disk outlives the process and counts on; a new one starts anew.
    if (hello.spool_last() < entry.record.acked_sequence()) entry.record.set_acked_sequence(0);
    entry.received_sequence = entry.record.acked_sequence();
    entry.assigned.reset();
    entry.foreign.reset();
  }
  entry.record.set_host(hello.host());
  *entry.record.mutable_device() = hello.device();
  *entry.record.mutable_seen_time() = ToTimestamp(now.wall);
  entry.record.clear_lost_time();
  entry.record.clear_left();
  entry.version = hello.version();
  entry.metrics_address = hello.metrics_address();
  entry.rank_address = hello.rank_address();
  entry.unplaceable_reason = hello.unplaceable_reason();
  entry.sink = std::move(sink);
  entry.session = ++last_session_;
  entry.facts = {.connected = true, .heard = now.mono, .disconnected = now.mono};
  entry.liveness = Liveness::kAlive;
  entry.connect_time = now.wall;
  entry.heartbeat_time = now.wall;
  entry.clock_offset =
      hello.has_time() ? FromTimestamp(hello.time()) - now.wall : absl::ZeroDuration();
  return entry;
}

std::vector<WorkerId> WorkerRegistry::Forgettable(absl::Time now,
                                                  absl::Duration forget_after) const {
  std::vector<WorkerId> result;
  for (const auto& [id, entry] : entries_) {
    if (entry.liveness != Liveness::kLost || entry.record.cordoned()) continue;
    if (now - FromTimestamp(entry.record.lost_time()) >= forget_after) result.push_back(id);
  }
  return result;
}

ClusterView WorkerRegistry::View(MonotonicTime now, const TimingOptions& timing) const {
  ClusterView view;
  for (const auto& [id, entry] : entries_) {
    WorkerView& worker = view.workers.emplace_back();
    worker.id = id;
    worker.host = entry.record.host();
    worker.device = entry.record.device().type() == v1::DEVICE_TYPE_CUDA ? v1::DEVICE_TYPE_CUDA
                                                                         : v1::DEVICE_TYPE_CPU;
    worker.device_index = entry.record.device().index();
    worker.why_not = WhyNotPlaceable(entry);
    worker.placeable = worker.why_not.empty();
    const bool gone =
        !entry.facts.connected && now - entry.facts.disconnected > timing.capacity_memory;
    worker.capacity = !gone && !entry.record.cordoned() && !entry.record.left();
    if (entry.assigned) {
      worker.held_by = JobName(entry.assigned->job);
    } else if (entry.spare_of) {
      worker.held_by = JobName(*entry.spare_of);
    }
  }
  return view;
}

DeviceMemory WorkerRegistry::KnownMemory(v1::DeviceType type) const {
  DeviceMemory memory;
  for (const auto& [id, entry] : entries_) {
    const v1::DeviceInfo& device = entry.record.device();
    const bool cuda = device.type() == v1::DEVICE_TYPE_CUDA;
    if (entry.record.left() || cuda != (type == v1::DEVICE_TYPE_CUDA) ||
        device.memory_bytes() <= 0) {
      continue;
    }
    memory.largest_first.push_back(device.memory_bytes());
  }
  std::sort(memory.largest_first.begin(), memory.largest_first.end(), std::greater<>());
  return memory;
}

v1::Worker DescribeWorker(const WorkerEntry& entry) {
  v1::Worker worker;
  worker.set_name(WorkerName(entry.id()));
  worker.set_host(entry.record.host());
  worker.set_incarnation(entry.record.incarnation());
  worker.set_cordoned(entry.record.cordoned());
  *worker.mutable_device() = entry.record.device();
  worker.set_version(entry.version);
  worker.set_metrics_address(entry.metrics_address);
  worker.set_rank_address(entry.rank_address);
  worker.set_unplaceable_reason(entry.unplaceable_reason);
  if (entry.foreign) {
    worker.set_unplaceable_reason(absl::StrCat("still runs rank ", entry.foreign->rank(), " of ",
                                               entry.foreign->job(), " in dead epoch ",
                                               entry.foreign->epoch()));
  }
  if (entry.assigned) {
    worker.set_job(JobName(entry.assigned->job));
    worker.set_rank(entry.assigned->rank);
    worker.set_epoch(entry.assigned->epoch);
  } else if (entry.spare_of && !entry.record.cordoned()) {
    worker.set_job(JobName(*entry.spare_of));
    worker.set_rank(kRankOfSpare);
  }
  if (entry.connect_time != absl::Time()) {
    *worker.mutable_connect_time() = ToTimestamp(entry.connect_time);
    *worker.mutable_heartbeat_time() = ToTimestamp(entry.heartbeat_time);
    worker.set_clock_offset_seconds(absl::ToDoubleSeconds(entry.clock_offset));
  }
  if (entry.liveness == Liveness::kLost) {
    worker.set_state(entry.record.left() ? v1::WORKER_STATE_LEFT : v1::WORKER_STATE_LOST);
  } else if (entry.liveness == Liveness::kSuspect) {
    worker.set_state(v1::WORKER_STATE_SUSPECT);
  } else if (!worker.unplaceable_reason().empty()) {
    worker.set_state(v1::WORKER_STATE_UNPLACEABLE);
  } else {
    const bool held = entry.assigned || entry.spare_of;
    worker.set_state(held ? v1::WORKER_STATE_BUSY : v1::WORKER_STATE_READY);
  }
  return worker;
}

}  // namespace fsdp::coordinator
