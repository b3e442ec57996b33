#ifndef FSDPCTL_COORDINATOR_ADMISSION_ADMISSION_H_
#define FSDPCTL_COORDINATOR_ADMISSION_ADMISSION_H_

// May this job be queued, and what would it need? On the specification the same verdict as
// `fsdpctl validate`; on memory that of the devices that the coordinator knows.
//
// Thread-safe; pure.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/plan.pb.h"
#include "proto/support/spec_paths.h"

namespace fsdp::coordinator {

struct Admitted {
  // Defaults filled in.
  v1::TrainingJob job;
  v1::Plan plan;
  std::vector<std::string> warnings;
};

// Of the known devices of the type that a job asks for, in bytes; empty: none has told yet.
struct DeviceMemory {
  std::vector<std::int64_t> largest_first;
};

class Admission {
 public:
  virtual ~Admission() = default;
  // What fits on some known devices but not on a whole gang of them is admitted with a warning.
  //   INVALID_ARGUMENT    SPEC_INVALID, with one google.rpc.BadRequest violation per bad field
  //   RESOURCE_EXHAUSTED  PLAN_DOES_NOT_FIT: more memory per rank than any known device has
  [[nodiscard]] virtual absl::StatusOr<Admitted> Admit(const v1::TrainingJob& job,
                                                       const DeviceMemory& known) const = 0;
};

// The specification's rules and the memory plan.
class SpecAdmission : public Admission {
 public:
  // Paths in specs must lie in `roots`: INVALID_ARGUMENT PATH_FORBIDDEN, with a violation per path.
  // Those that the coordinator reads itself (model.configPath) are looked at with links resolved.
  explicit SpecAdmission(PathRoots roots = {}) : roots_(std::move(roots)) {}
  [[nodiscard]] absl::StatusOr<Admitted> Admit(const v1::TrainingJob& job,
                                               const DeviceMemory& known) const override;

 private:
  [[nodiscard]] absl::Status CheckPaths(const v1::TrainingJob& job) const;

  const PathRoots roots_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_ADMISSION_ADMISSION_H_
