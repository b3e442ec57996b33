#include "coordinator/admission/admission.h"

#include <utility>

#include "proto/support/spec.h"
#include "proto/support/status.h"
#include "worker/plan/plan.h"

namespace fsdp::coordinator {

absl::StatusOr<Admitted> SpecAdmission::Admit(const v1::TrainingJob& job) const {
  Admitted admitted;
  admitted.job = job;
  const std::vector<SpecIssue> issues = CheckJob(&admitted.job);
  RETURN_IF_ERROR(SpecStatus(issues));
  for (const SpecIssue& issue : issues) admitted.warnings.push_back(DescribeIssue(issue));
  ASSIGN_OR_RETURN(const Plan plan, PlanFromJob(admitted.job, WorldSizeOf(admitted.job),
                                                /*device_memory_bytes=*/0));
  admitted.plan = ToProto(plan);
  return admitted;
}

}  // namespace fsdp::coordinator
