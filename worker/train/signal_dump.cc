#include "worker/train/signal_dump.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/log.h"

namespace fsdp {
namespace {

constexpr std::size_t kDumped = 32;

sigset_t DumpSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR1);
  return set;
}

const char* NameOf(CollectivePhase phase) {
  switch (phase) {
    case CollectivePhase::kEnqueued:
      return "enqueued";
    case CollectivePhase::kStarted:
      return "started";
    case CollectivePhase::kFinished:
      return "finished";
    case CollectivePhase::kFailed:
      break;
  }
  return "failed";
}

}  // namespace

void BlockDumpSignal() {
  const sigset_t set = DumpSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

std::string DumpText(const FlightRecorder& recorder, std::size_t count) {
  const std::vector<CollectiveEntry> entries = recorder.Snapshot();
  std::string text = entries.empty() ? "no collectives yet" : "collectives, oldest first:";
  for (std::size_t i = entries.size() - std::min(count, entries.size()); i < entries.size(); ++i) {
    const CollectiveEntry& entry = entries[i];
    absl::StrAppendFormat(&text, "\n#%d %s %s on %s, %d bytes of %s, %s", entry.sequence,
                          entry.operation, entry.unit, entry.communicator, entry.bytes, entry.dtype,
                          NameOf(entry.phase));
    if (entry.phase == CollectivePhase::kFinished && entry.has_started) {
      absl::StrAppendFormat(&text, " in %.3f ms",
                            absl::ToDoubleMilliseconds(entry.finished - entry.started));
    }
  }
  const CollectiveStatus status = recorder.Status();
  if (!status.pending.empty()) {
    absl::StrAppendFormat(&text, "\npending for %.3f s: %s, sequence %d", status.pending_seconds,
                          status.pending, status.pending_sequence);
  }
  return text;
}

void DumpOnSignal(std::shared_ptr<const FlightRecorder> recorder) {
  // Ends with the process; it holds what it looks at.
  std::thread([recorder = std::move(recorder)] {
    const sigset_t set = DumpSignals();
    while (true) {
      int signal = 0;
      if (::sigwait(&set, &signal) == 0) LOG_INFO("%s", DumpText(*recorder, kDumped));
    }
  }).detach();
}

}  // namespace fsdp
