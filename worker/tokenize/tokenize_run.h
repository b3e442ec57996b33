#ifndef FSDPCTL_WORKER_TOKENIZE_TOKENIZE_RUN_H_
#define FSDPCTL_WORKER_TOKENIZE_TOKENIZE_RUN_H_

// Files in, shards out: threads encode blocks, one thread writes them in order. What is written
// depends on the sources, the tokenizer and the options, not on the number of threads or on how
// often the run was killed.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/tokenize/documents.h"
#include "worker/tokenize/sources.h"
#include "worker/tokenize/tokenizer.h"

namespace fsdp {

struct TokenizeProgress {
  std::int64_t done_bytes = 0;
  std::int64_t total_bytes = 0;
  std::int64_t tokens = 0;
  std::size_t shards = 0;
};

struct TokenizeOptions {
  LoadedTokenizer tokenizer;
  TokenizerOptions tokenizer_options;
  std::vector<std::string> inputs;
  SourceFormat format = SourceFormat::kAuto;
  DocumentOptions documents;
  // Created when absent.
  std::string output;
  std::int64_t shard_tokens = 100'000'000;
  int num_threads = 1;
  // Stands for the sources' content, where the caller knows it: a run then goes on also with files
  // that were moved or touched. Empty: their paths, sizes and times of change do.
  std::string content_key;
  // Removes another run's shards first.
  bool overwrite = false;
  std::int64_t block_bytes = 1 << 20;
  // After each block; on the caller's thread.
  std::function<void(const TokenizeProgress&)> on_progress = [](const TokenizeProgress&) {};
};

struct TokenizeResult {
  DocumentCounts counts;
  std::int64_t tokens = 0;
  std::size_t shards = 0;
  std::size_t sources = 0;
  // Of this process, in this run; less than counts.source_bytes when it went on.
  std::int64_t encoded_bytes = 0;
  double wall_seconds = 0;
  double cpu_seconds = 0;
  // Everything was there.
  bool was_complete = false;
};

//   FAILED_PRECONDITION  another run's output, another process in it, or sources that change
//   errors of FindSources, DocumentEncoder and TokenShards
absl::StatusOr<TokenizeResult> RunTokenize(const TokenizeOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_TOKENIZE_RUN_H_
