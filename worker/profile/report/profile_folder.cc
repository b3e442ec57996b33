#include "worker/profile/report/profile_folder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/profile/report/chrome_trace.h"
#include "worker/profile/report/gzip.h"
#include "worker/profile/report/html_report.h"
#include "worker/profile/report/job_profile_io.h"
#include "worker/profile/report/kernel_table.h"
#include "worker/profile/report/perfetto_trace.h"
#include "worker/profile/report/report_files.h"
#include "worker/profile/report/roofline_svg.h"

namespace fsdp {

absl::Status WriteProfileFolder(const v1::JobProfile& profile, const ReportOptions& options,
                                const std::string& folder, WrittenProfile* written) {
  RETURN_IF_ERROR(ValidateProfile(profile));
  ASSIGN_OR_RETURN(Trace trace, PerfettoTrace(profile, options.max_trace_bytes));
  ASSIGN_OR_RETURN(Trace json, ChromeTrace(profile, options.max_json_bytes));
  ASSIGN_OR_RETURN(std::string compressed, report::Gzip(json.bytes));
  const KernelReport kernels = BuildKernelReport(profile);
  const HtmlOptions html = {options.top, options.banner, trace.dropped, json.dropped};
  const std::pair<const char*, std::string> files[] = {
      {"profile.pb", EncodeJobProfile(profile)},
      {"trace.perfetto-trace", std::move(trace.bytes)},
      {"trace.json.gz", std::move(compressed)},
      {"kernels.txt", KernelTableText(profile, kernels, options.top)},
      {"roofline.svg", RooflineSvg(profile, kernels)},
      {"report.html", HtmlReport(profile, kernels, html)},
  };
  RETURN_IF_ERROR(report::MakeFolder(folder));
  WrittenProfile result;
  for (const auto& [name, bytes] : files) {
    RETURN_IF_ERROR(report::ReplaceFile(absl::StrCat(folder, "/", name), bytes));
    result.files.push_back({name, static_cast<std::int64_t>(bytes.size())});
  }
  result.trace_left_out = trace.dropped;
  result.json_left_out = json.dropped;
  if (written != nullptr) *written = std::move(result);
  return absl::OkStatus();
}

}  // namespace fsdp
