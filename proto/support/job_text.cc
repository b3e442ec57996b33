#include "proto/support/job_text.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/text.h"

namespace fsdp {

bool RootCauseIsCurrent(const v1::Job& job) {
  return job.cause() != v1::FAILURE_CAUSE_UNSPECIFIED && job.cause() == job.root_cause().cause();
}

std::string RootCauseText(const v1::RootCause& cause) {
  // A cause without a worker and an exit is nobody's in particular: rank 0 is only the default.
  const bool has_rank = !cause.worker().empty() || cause.signal() != 0 || cause.exit_code() != 0;
  std::vector<std::string> facts;
  // The message often names the rank itself.
  if (has_rank && !absl::StartsWith(cause.message(), "rank ")) {
    facts.push_back(absl::StrCat("rank ", cause.rank()));
    if (!cause.worker().empty()) facts[0] += absl::StrCat(" on worker ", IdOf(cause.worker()));
  }
  if (cause.signal() != 0) facts.push_back(absl::StrCat("signal ", cause.signal()));
  if (cause.exit_code() != 0) facts.push_back(absl::StrCat("exit code ", cause.exit_code()));
  if (cause.step() > 0) facts.push_back(absl::StrCat("at step ", cause.step()));
  std::string text = EnumText(cause.cause());
  if (!facts.empty()) absl::StrAppend(&text, " (", absl::StrJoin(facts, ", "), ")");
  if (!cause.message().empty()) absl::StrAppend(&text, ": ", Printable(cause.message()));
  return text;
}

std::vector<std::pair<double, const char*>> StepParts(const v1::StepPhases& phases) {
  return {{phases.data_seconds(), "data"},
          {phases.compute_seconds(), "compute"},
          {phases.exposed_gather_seconds(), "exposed gather"},
          {phases.exposed_scatter_seconds(), "exposed scatter"},
          {phases.optimizer_seconds(), "optimizer"},
          {phases.checkpoint_seconds(), "checkpoint"},
          {phases.evaluate_seconds(), "evaluate"},
          {phases.other_seconds(), "other"},
          {phases.unattributed_seconds(), "unattributed"}};
}

}  // namespace fsdp
