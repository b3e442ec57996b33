#include "coordinator/profile/profile_sessions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/errors/api_error.h"

namespace fsdp::coordinator {
namespace {

// At the beginning, and again at the end.
constexpr int kProbes = 8;

std::int64_t NsOf(MonotonicTime time) { return absl::ToInt64Nanoseconds(time.since_start()); }

bool IsOver(v1::ProfileState state) {
  return state == v1::PROFILE_STATE_DONE || state == v1::PROFILE_STATE_FAILED;
}

WorkerSink* SinkOf(WorkerRegistry& workers, const ProfileSessions::Rank& rank) {
  const WorkerEntry* worker = workers.Find(rank.worker);
  const bool same = worker != nullptr && worker->record.incarnation() == rank.incarnation;
  return same ? worker->sink.get() : nullptr;
}

}  // namespace

bool ProfileSessions::Session::finished() const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const Rank& rank) { return IsOver(rank.status.state()); });
}

const ProfileSessions::Rank* ProfileSessions::Session::Find(int rank) const {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [rank](const Rank& entry) {
    return entry.status.rank() == rank;
  });
  return found == ranks.end() ? nullptr : &*found;
}

absl::StatusOr<const ProfileSessions::Session*> ProfileSessions::Start(
    WorkerRegistry& workers, const JobId& job, std::string profile,
    const v1::ProfileOptions& options, std::vector<Rank> ranks, MonotonicTime now) {
  std::deque<Session>& of_job = sessions_[job];
  const bool under_way = !of_job.empty() && !of_job.back().finished();
  const bool recording =
      under_way && std::any_of(of_job.back().ranks.begin(), of_job.back().ranks.end(),
                               [](const Rank& rank) { return rank.status.steps() > 0; });
  if (recording) {
    return WithInfo(
        absl::AbortedError(absl::StrCat("profile ", of_job.back().profile,
                                        " of the job is under way; wait until it is done")),
        "PROFILE_UNDER_WAY", {{"profile", of_job.back().profile}});
  }
  // One that no rank has begun, since a rank stands still, gives way.
  if (under_way) {
    for (Rank& rank : of_job.back().ranks) {
      if (IsOver(rank.status.state())) continue;
      rank.status.set_state(v1::PROFILE_STATE_FAILED);
      rank.status.set_message("another profile was asked for before it began");
    }
  }
  if (of_job.size() == kMaxKept) of_job.pop_front();
  Session& session = of_job.emplace_back();
  session.profile = std::move(profile);
  session.options = options;
  session.ranks = std::move(ranks);
  for (Rank& rank : session.ranks) {
    rank.status.set_rank(rank.key.rank());
    rank.status.set_worker("workers/" + rank.worker.value());
    rank.status.set_state(v1::PROFILE_STATE_WAITING);
    rank.probes_left = kProbes;
    WorkerSink* const sink = SinkOf(workers, rank);
    if (sink == nullptr) {
      rank.status.set_state(v1::PROFILE_STATE_FAILED);
      rank.status.set_message("its worker is not connected");
      continue;
    }
    v1::ConnectResponse message;
    v1::StartProfile& start = *message.mutable_start_profile();
    *start.mutable_key() = rank.key;
    start.set_profile(session.profile);
    *start.mutable_options() = session.options;
    sink->Send(message);
    Probe(workers, rank, now);
  }
  return &session;
}

void ProfileSessions::Probe(WorkerRegistry& workers, Rank& rank, MonotonicTime now) {
  WorkerSink* const sink = SinkOf(workers, rank);
  if (sink == nullptr || rank.probes_left == 0) return;
  --rank.probes_left;
  v1::ConnectResponse message;
  message.mutable_clock_probe()->set_sent_ns(NsOf(now));
  sink->Send(message);
}

void ProfileSessions::OnUpdate(WorkerRegistry& workers, const WorkerId& worker,
                               const v1::ProfileUpdate& update, MonotonicTime now) {
  for (auto& [job, of_job] : sessions_) {
    for (Session& session : of_job) {
      if (session.profile != update.profile()) continue;
      for (Rank& rank : session.ranks) {
        v1::RankProfileStatus& status = rank.status;
        if (rank.worker != worker || status.rank() != update.key().rank() ||
            IsOver(status.state())) {
          continue;
        }
        status.set_state(update.state());
        status.set_steps(update.steps());
        status.set_size_bytes(update.size_bytes());
        status.set_crc32c(update.crc32c());
        status.set_message(update.message());
        if (update.state() == v1::PROFILE_STATE_DONE && !std::exchange(rank.probed_at_end, true)) {
          rank.probes_left = kProbes;
          Probe(workers, rank, now);
        }
      }
    }
  }
}

void ProfileSessions::OnClock(WorkerRegistry& workers, const WorkerId& worker,
                              const v1::ClockAnswer& answer, MonotonicTime now) {
  const std::int64_t away = NsOf(now) - answer.sent_ns();
  const std::int64_t round_trip = away - (answer.answered_ns() - answer.received_ns());
  if (answer.sent_ns() <= 0 || round_trip < 0) return;
  const std::int64_t offset =
      ((answer.sent_ns() - answer.received_ns()) + (NsOf(now) - answer.answered_ns())) / 2;
  const std::int64_t uncertainty = round_trip / 2 + 1;
  for (auto& [job, of_job] : sessions_) {
    if (of_job.empty()) continue;
    for (Rank& rank : of_job.back().ranks) {
      if (rank.worker != worker) continue;
      v1::RankClock& clock = *rank.status.mutable_clock();
      clock.set_rank(rank.status.rank());
      if (clock.uncertainty_ns() == 0 || uncertainty < clock.uncertainty_ns()) {
        clock.set_offset_ns(offset);
        clock.set_uncertainty_ns(uncertainty);
      }
      Probe(workers, rank, now);
    }
  }
}

void ProfileSessions::FailLost(const std::function<bool(const Rank&)>& lives) {
  for (auto& [job, of_job] : sessions_) {
    if (of_job.empty()) continue;
    for (Rank& rank : of_job.back().ranks) {
      if (IsOver(rank.status.state()) || lives(rank)) continue;
      rank.status.set_state(v1::PROFILE_STATE_FAILED);
      rank.status.set_message("the rank ended before its recording was written");
    }
  }
}

const ProfileSessions::Session* ProfileSessions::Find(const JobId& job,
                                                      const std::string& profile) const {
  const auto of_job = sessions_.find(job);
  if (of_job == sessions_.end()) return nullptr;
  for (const Session& session : of_job->second) {
    if (session.profile == profile) return &session;
  }
  return nullptr;
}

}  // namespace fsdp::coordinator
