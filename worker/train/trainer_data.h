#ifndef FSDPCTL_WORKER_TRAIN_TRAINER_DATA_H_
#define FSDPCTL_WORKER_TRAIN_TRAINER_DATA_H_

// A job's data as a rank opens it: text becomes tokens first, once for all ranks that share the
// cache (worker/data/token_cache.h).
//
// Thread rule: one call per rank, on its own thread.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "fsdp/v1/job.pb.h"
#include "worker/data/data_set.h"
#include "worker/data/token_cache.h"

namespace fsdp {

// What opening the data needs of its surroundings.
struct DataAccess {
  // program, threads and who is told; `directory` is where the job gives no data.cacheDir.
  TokenCacheOptions cache;
  // Instead of OpenData; null: that.
  std::function<absl::StatusOr<DataSet>(const DataOptions&)> open;
};

struct JobData {
  DataSet set;
  // Of the text that is validated on, else trained on, where it is one path.
  std::optional<double> bytes_per_token;
};

// fsdp-tokenize beside this executable.
std::string TokenizeProgram();
// "tokens" below `cache_dir`, or where that is empty below the user's own cache folder.
std::string TokenCacheDirectory(const std::string& cache_dir);

// Does the job's text go through fsdp-tokenize: has it a tokenizer, or JSONL?
bool NeedsTokenizer(const v1::DataSpec& data);

// As TokenizeOnce and OpenData.
absl::StatusOr<JobData> OpenJobData(const v1::JobSpec& spec, std::int64_t vocab_size,
                                    const DataAccess& access);

DataOptions DataOptionsFromSpec(const v1::JobSpec& spec, std::int64_t vocab_size);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_TRAINER_DATA_H_
