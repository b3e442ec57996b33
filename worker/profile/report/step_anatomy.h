#ifndef FSDPCTL_WORKER_PROFILE_REPORT_STEP_ANATOMY_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_STEP_ANATOMY_H_

// Phases of a rank's steps, and how well its device was used. Thread-safe (no state).

#include <cstddef>
#include <vector>

#include "fsdp/v1/profile.pb.h"

namespace fsdp::report {

struct PhaseField {
  // "exposed gather".
  const char* label;
  double (v1::StepPhases::*get)() const;
  void (v1::StepPhases::*set)(double);
};

// In the order of a bar: those that add up to a step, "unattributed" last among them.
const std::vector<PhaseField>& SummedPhases();
// Those that lie within the others.
const std::vector<PhaseField>& InnerPhases();

struct RankAnatomy {
  const v1::RankProfile* rank = nullptr;
  // Means of the recorded steps.
  double step_seconds = 0;
  v1::StepPhases phases;
  // Of the measured matmul ceiling, not of the device's data sheet; 0: unknown. HFU counts what
  // ran, recomputation included.
  double mfu = 0;
  double hfu = 0;
};

// By rank; ranks without steps are left out.
std::vector<RankAnatomy> Anatomies(const v1::JobProfile& profile);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_STEP_ANATOMY_H_
