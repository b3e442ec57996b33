#ifndef FSDPCTL_COORDINATOR_ADMISSION_ADMISSION_H_
#define FSDPCTL_COORDINATOR_ADMISSION_ADMISSION_H_

// May this job be queued, and what would it need? The same verdict as `fsdpctl validate`.
//
// Thread-safe; pure.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/plan.pb.h"

namespace fsdp::coordinator {

struct Admitted {
  // Defaults filled in.
  v1::TrainingJob job;
  v1::Plan plan;
  std::vector<std::string> warnings;
};

class Admission {
 public:
  virtual ~Admission() = default;
  //   INVALID_ARGUMENT  with one google.rpc.BadRequest violation per bad field as a payload
  [[nodiscard]] virtual absl::StatusOr<Admitted> Admit(const v1::TrainingJob& job) const = 0;
};

// The specification's rules and the memory plan.
class SpecAdmission : public Admission {
 public:
  [[nodiscard]] absl::StatusOr<Admitted> Admit(const v1::TrainingJob& job) const override;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_ADMISSION_ADMISSION_H_
