#ifndef FSDPCTL_CLIENT_RENDER_REPORT_H_
#define FSDPCTL_CLIENT_RENDER_REPORT_H_

// The closing page of a job: losses beside what the text costs to code without a model, memory,
// verdicts with remedies, checkpoint, curve, next commands. Thread-safe (no state).

#include <string>
#include <vector>

#include "client/render/curve.h"
#include "client/render/style.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp {

struct ReportInput {
  v1::Job job;
  std::vector<v1::StepMetrics> metrics;
  // "127.0.0.1:9100"; empty: not known.
  std::string metrics_address;
  // Where the curve was written; empty: nowhere.
  std::string plot_path;
  int columns = 80;
};

// Train and validation loss by step.
std::vector<CurveSeries> LossSeries(const std::vector<v1::StepMetrics>& metrics);
// Title and the entropies as levels.
CurveOptions LossCurveOptions(const v1::Job& job);

std::string ReportText(const ReportInput& input, const Style& style);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_REPORT_H_
