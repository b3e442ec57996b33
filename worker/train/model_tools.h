#ifndef FSDPCTL_WORKER_TRAIN_MODEL_TOOLS_H_
#define FSDPCTL_WORKER_TRAIN_MODEL_TOOLS_H_

// `fsdp-trainer logits` and `fsdp-trainer export`: a model's files, without a job.

#include <span>
#include <string>

#include "worker/train/local_ranks.h"

namespace fsdp {

// What --help prints.
extern const char kLogitsUsage[];
extern const char kExportUsage[];

// Exit codes: 0 done, 1 failed, 2 usage, no such file or a model that does not fit the files.
int LogitsMain(std::span<const std::string> arguments, const LocalBackend& backend);
int ExportMain(std::span<const std::string> arguments, const LocalBackend& backend);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_MODEL_TOOLS_H_
