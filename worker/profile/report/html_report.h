#ifndef FSDPCTL_WORKER_PROFILE_REPORT_HTML_REPORT_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_HTML_REPORT_H_

// A profile as one page that needs nothing else: no scripts, no other files, no network.
// Thread-safe (no state).

#include <cstdint>
#include <string>

#include "fsdp/v1/profile.pb.h"
#include "worker/profile/report/kernel_table.h"

namespace fsdp {

struct HtmlOptions {
  // Rows of the tables of kernels and collectives.
  int top = 50;
  // At the top of the page, "Example: ..."; empty: none.
  std::string banner;
  // Events that the traces beside the page lack (PerfettoTrace, ChromeTrace).
  std::int64_t trace_left_out = 0;
  std::int64_t json_left_out = 0;
};

// `kernels`: BuildKernelReport of the profile.
std::string HtmlReport(const v1::JobProfile& profile, const KernelReport& kernels,
                       const HtmlOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_HTML_REPORT_H_
