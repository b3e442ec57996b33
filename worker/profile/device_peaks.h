#ifndef FSDPCTL_WORKER_PROFILE_DEVICE_PEAKS_H_
#define FSDPCTL_WORKER_PROFILE_DEVICE_PEAKS_H_

// What FLOP utilisation is relative to.

#include <string>

namespace fsdp {

// Dense matmul FLOPs per second of a device by its name, from the maker's datasheet, without
// sparsity: bf16 with fp32 accumulation, or fp32 (of the plain pipes, without TF32). A device that
// is not listed, every CPU among them, has `measured`: its own matmul ceiling.
double PeakFlops(const std::string& device, bool bf16, double measured);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_DEVICE_PEAKS_H_
