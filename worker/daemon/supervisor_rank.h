#ifndef FSDPCTL_WORKER_DAEMON_SUPERVISOR_RANK_H_
#define FSDPCTL_WORKER_DAEMON_SUPERVISOR_RANK_H_

// What the supervisor knows of the one trainer it has; shared by its two source files only.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "worker/daemon/supervisor.h"

namespace fsdp::daemon {

inline std::string Describe(const v1::EpochKey& key) {
  return absl::StrFormat("%s attempt %d epoch %d rank %d", key.job(), key.attempt(), key.epoch(),
                         key.rank());
}

// What belongs to one trainer.
struct Supervisor::Rank {
  v1::StartRank start;
  v1::RankState state = v1::RANK_STATE_STARTING;
  bool committed = false;
  bool protocol_ok = false;
  std::int64_t last_step = 0;
  std::optional<v1::TrainerDone> done;
  std::deque<std::string> last_lines;
  v1::LogBatch logs;
  std::int64_t log_bytes = 0;
  MonotonicTime first_log_time;
  // Rendezvous of this epoch: sent again after a reconnect.
  std::map<std::string, v1::RendezvousPut> puts;
  std::map<std::string, v1::RendezvousGet> gets;
  // A proposal without a verdict, by step.
  struct Proposal {
    v1::ManifestProposal message;
    std::int64_t sequence = 0;
  };
  std::map<std::int64_t, Proposal> proposals;
  // The last word on each profile of this rank: said again after a reconnect.
  std::map<std::string, v1::ProfileUpdate> profiles;
  v1::StopMode stop_mode = v1::STOP_MODE_UNSPECIFIED;
  // SIGKILL is due.
  std::optional<MonotonicTime> kill_time;
  // Its end was asked for: no failure when it comes by signal.
  bool stop_requested = false;
  // Set where the worker asked, before anybody else.
  std::string worker_stop_reason;
};

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_SUPERVISOR_RANK_H_
