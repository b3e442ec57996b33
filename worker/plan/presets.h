#ifndef FSDPCTL_WORKER_PLAN_PRESETS_H_
#define FSDPCTL_WORKER_PLAN_PRESETS_H_

// The built-in shapes and the families' switches. Used by model_config only.

#include <string>
#include <vector>

#include "worker/plan/model_config.h"

namespace fsdp::internal {

// A configuration with the family's switches set and no sizes.
ModelConfig FamilyDefaults(ModelFamily family);

// Null when there is none of that name.
const ModelConfig* FindPreset(const std::string& name);
std::vector<std::string> SortedPresetNames();

}  // namespace fsdp::internal

#endif  // FSDPCTL_WORKER_PLAN_PRESETS_H_
