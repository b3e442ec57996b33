#ifndef FSDPCTL_WORKER_OPTIM_INITIALIZER_H_
#define FSDPCTL_WORKER_OPTIM_INITIALIZER_H_

// Initial weights. Element i of a parameter depends on (seed, the parameter's name, i) only, so
// every world size starts from the same weights.

#include <cstdint>
#include <string_view>

#include "worker/device/initial_values.h"
#include "worker/plan/model_config.h"

namespace fsdp {

// The parameter's draw, for Ops::FillInitial.
InitialDraw InitialDrawOf(const InitRule& rule, std::uint64_t seed, std::string_view name);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_OPTIM_INITIALIZER_H_
