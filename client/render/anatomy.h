#ifndef FSDPCTL_CLIENT_RENDER_ANATOMY_H_
#define FSDPCTL_CLIENT_RENDER_ANATOMY_H_

// Where a running job's steps go, and what bounds its kernels. Thread-safe (no state).

#include <string>

#include "client/render/style.h"
#include "fsdp/v1/job_record.pb.h"

namespace fsdp {

// "step 61.2 ms: compute 58.1 (95 %), optimizer 2.0 (3 %), ...": the phases that add up to the
// step, largest first, those below 0.5 % left out. Empty without figures.
std::string AnatomyText(const v1::Progress& progress);

// The `top` families with the largest time: share of it, verdict, achieved ratios, what of all time
// could be saved, remedy. Empty without families.
std::string FamilyTable(const v1::Job& job, int top, const std::string& indent);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_ANATOMY_H_
