#include "coordinator/admission/admission.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/errors/api_error.h"
#include "proto/support/spec.h"
#include "proto/support/spec_array.h"
#include "proto/support/spec_fields.h"
#include "proto/support/status.h"
#include "worker/plan/elastic_sizes.h"
#include "worker/plan/plan.h"
#include "worker/plan/plan_advice.h"

namespace fsdp::coordinator {
namespace {

std::string MiB(std::int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

absl::Status CheckSpec(const std::vector<SpecIssue>& issues) {
  const auto errors = std::count_if(issues.begin(), issues.end(), [](const SpecIssue& issue) {
    return issue.severity == SpecSeverity::kError;
  });
  return WithInfo(SpecStatus(issues), "SPEC_INVALID", {{"errors", absl::StrCat(errors)}});
}

// The memory that every rank of a gang of the largest devices has. 0: unknown.
std::int64_t GangMemory(const std::vector<std::int64_t>& largest_first, int world_size) {
  if (largest_first.empty()) return 0;
  return largest_first[std::min<std::size_t>(world_size, largest_first.size()) - 1];
}

// "; would fit any of them with 4 ranks (recompute full)"
std::string OnSmallestDevices(const v1::TrainingJob& job, int world_size, std::int64_t bytes) {
  const absl::StatusOr<PlanInput> input = PlanInputFromJob(job, world_size, bytes);
  if (!input.ok()) return "";
  const std::string ranks = FittingRanksText(AdviseOnMemory(*input));
  return ranks.empty() ? "" : absl::StrCat("; would fit any of them with ", ranks);
}

// Fewer ranks need more memory each: what is allowed must fit too.
absl::Status CheckFewestRanks(const v1::TrainingJob& job,
                              const std::vector<std::int64_t>& largest_first) {
  if (!IsElastic(job) || largest_first.empty()) return absl::OkStatus();
  const int fewest = ElasticSizes(job).front();
  const absl::Status status = PlanFromJob(job, fewest, largest_first.front()).status();
  if (!absl::IsResourceExhausted(status)) return status;
  return WithInfo(Annotate(status, absl::StrCat("spec.resources.minRanks = ", fewest,
                                                ": does not fit on so few ranks; raise it")),
                  "PLAN_DOES_NOT_FIT",
                  {{"largest_device_bytes", absl::StrCat(largest_first.front())},
                   {"world_size", absl::StrCat(fewest)}});
}

}  // namespace

absl::Status SpecAdmission::CheckPaths(const v1::TrainingJob& job) const {
  if (roots_.empty()) return absl::OkStatus();
  std::vector<SpecPath> paths = PathsOf(job);
  // What array.set puts into paths, each of them once; what it cannot put there is said later.
  std::set<std::string> seen;
  const int count = job.spec().array().set_size() == 0
                        ? 0
                        : std::min<int>(job.spec().array().count(), spec::kMaxArrayTasks);
  const ArrayTasks tasks(job);
  for (int index = 0; index < count; ++index) {
    for (SpecPath& path : PathsOf(tasks.Job(index).job)) {
      if (seen.insert(path.field + path.value).second) paths.push_back(std::move(path));
    }
  }
  std::vector<SpecIssue> issues;
  for (const SpecPath& path : paths) {
    const bool read_here = path.field == "spec.model.configPath";
    const absl::Status status = read_here ? roots_.CheckOnDisk(path) : roots_.CheckText(path);
    if (status.ok()) continue;
    const std::string_view message = FromAbsl(status.message());
    SpecIssue issue{.field = path.field, .value = path.value.substr(0, 200)};
    // "field = value: " is the issue's own.
    issue.message = std::string(message.substr(message.find("\": ") + 3));
    issues.push_back(std::move(issue));
  }
  return WithInfo(SpecStatus(issues), "PATH_FORBIDDEN", {{"errors", absl::StrCat(issues.size())}});
}

absl::StatusOr<Admitted> SpecAdmission::Admit(const v1::TrainingJob& job,
                                              const DeviceMemory& known) const {
  // First: what follows reads files.
  RETURN_IF_ERROR(CheckPaths(job));
  Admitted admitted;
  admitted.job = job;
  const std::vector<SpecIssue> issues = CheckJob(&admitted.job);
  RETURN_IF_ERROR(CheckSpec(issues));
  for (const SpecIssue& issue : issues) admitted.warnings.push_back(DescribeIssue(issue));

  const int world_size = WorldSizeOf(admitted.job);
  const std::vector<std::int64_t>& devices = known.largest_first;
  const std::int64_t gang_bytes = GangMemory(devices, world_size);
  absl::StatusOr<Plan> plan = PlanFromJob(admitted.job, world_size, gang_bytes);
  if (absl::IsResourceExhausted(plan.status()) && devices.front() > gang_bytes) {
    plan = PlanFromJob(admitted.job, world_size, devices.front());
    if (plan.ok()) {
      const auto fitting = std::count_if(devices.begin(), devices.end(), [&](std::int64_t bytes) {
        return bytes >= plan->total_bytes;
      });
      admitted.warnings.push_back(
          absl::StrCat("needs ", MiB(plan->total_bytes), " per rank, which ", fitting, " of ",
                       devices.size(), " known devices have: it waits for more of them",
                       OnSmallestDevices(admitted.job, world_size, devices.back())));
    }
  }
  if (absl::IsResourceExhausted(plan.status())) {
    return WithInfo(plan.status(), "PLAN_DOES_NOT_FIT",
                    {{"largest_device_bytes", absl::StrCat(devices.front())},
                     {"world_size", absl::StrCat(world_size)}});
  }
  if (!plan.ok()) return WithInfo(plan.status(), "SPEC_INVALID", {{"errors", "1"}});
  RETURN_IF_ERROR(CheckFewestRanks(admitted.job, devices));
  if (devices.empty()) {
    admitted.warnings.push_back(absl::StrCat("no worker with such a device is known yet: whether ",
                                             MiB(plan->total_bytes),
                                             " per rank fit will be seen when one joins"));
  }
  admitted.plan = ToProto(*plan);
  return admitted;
}

}  // namespace fsdp::coordinator
