#ifndef FSDPCTL_WORKER_PROFILE_REPORT_PERFETTO_TRACE_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_PERFETTO_TRACE_H_

// All ranks of a profile as one native Perfetto trace (TrackEvent), for https://ui.perfetto.dev:
// a process per rank with tracks phases, host, compute, gather, scatter and copy, its counters, and
// flows between the ranks' shares of a collective. Thread-safe (no state).

#include <cstdint>

#include "absl/status/statusor.h"
#include "fsdp/v1/profile.pb.h"
#include "worker/profile/report/trace_layout.h"

namespace fsdp {

// At most `max_bytes`: where that is too little, the longest tracks and counters lose what is at
// their end, until all fit; the trace tells how much in an event on its track "profile".
//   INVALID_ARGUMENT  max_bytes is too small for the tracks' names alone
absl::StatusOr<Trace> PerfettoTrace(const v1::JobProfile& profile, std::int64_t max_bytes);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_PERFETTO_TRACE_H_
