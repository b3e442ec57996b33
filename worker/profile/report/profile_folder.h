#ifndef FSDPCTL_WORKER_PROFILE_REPORT_PROFILE_FOLDER_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_PROFILE_FOLDER_H_

// A profile as the files that people and tools look at. Thread-safe, as long as no two calls write
// one folder.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fsdp/v1/profile.pb.h"

namespace fsdp {

struct ReportOptions {
  // Rows of tables.
  int top = 50;
  // Hard limits; what does not fit is left out and counted. The JSON's is of its text before it is
  // compressed, which browsers hold as a whole.
  std::int64_t max_trace_bytes = std::int64_t{256} << 20;
  std::int64_t max_json_bytes = std::int64_t{256} << 20;
  // At the top of report.html; empty: none.
  std::string banner;
};

struct WrittenFile {
  std::string name;
  std::int64_t size_bytes = 0;
};

struct WrittenProfile {
  // In the order of the table below.
  std::vector<WrittenFile> files;
  std::int64_t trace_left_out = 0;
  std::int64_t json_left_out = 0;
};

// Makes the folder where it is missing and writes (or replaces) in it: profile.pb,
// trace.perfetto-trace, trace.json.gz, kernels.txt, roofline.svg, report.html. `written` may be
// null.
//   INVALID_ARGUMENT  as ValidateProfile, PerfettoTrace and ChromeTrace; nothing was written then
//   NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, INTERNAL  as of the system call that failed
absl::Status WriteProfileFolder(const v1::JobProfile& profile, const ReportOptions& options,
                                const std::string& folder, WrittenProfile* written = nullptr);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_PROFILE_FOLDER_H_
