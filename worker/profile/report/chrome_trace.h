#ifndef FSDPCTL_WORKER_PROFILE_REPORT_CHROME_TRACE_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_CHROME_TRACE_H_

// The trace of perfetto_trace.h as Chrome's JSON, which older tools read (chrome://tracing,
// TensorBoard): complete events per track, counters, flows. Thread-safe (no state).

#include <cstdint>

#include "absl/status/statusor.h"
#include "fsdp/v1/profile.pb.h"
#include "worker/profile/report/trace_layout.h"

namespace fsdp {

// One JSON object, at most `max_bytes` long; what does not fit is left out as in PerfettoTrace, and
// otherData.events_left_out tells how much.
//   INVALID_ARGUMENT  max_bytes is too small for the tracks' names alone
absl::StatusOr<Trace> ChromeTrace(const v1::JobProfile& profile, std::int64_t max_bytes);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_CHROME_TRACE_H_
