#ifndef FSDPCTL_WORKER_PROFILE_REPORT_ROOFLINE_SVG_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_ROOFLINE_SVG_H_

// The roofline of a profile: each family's FLOP/s over its FLOPs per byte, under the measured
// roofs. Thread-safe (no state).

#include <string>

#include "fsdp/v1/profile.pb.h"
#include "worker/profile/report/kernel_table.h"

namespace fsdp {

// A complete SVG document, 800 x 520, for light and dark backgrounds; it can stand inside a page.
// Rates are per device. Roofs that were not measured are left out, and the picture says so.
std::string RooflineSvg(const v1::JobProfile& profile);
// As above, where the profile's report is there already.
std::string RooflineSvg(const v1::JobProfile& profile, const KernelReport& kernels);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_ROOFLINE_SVG_H_
