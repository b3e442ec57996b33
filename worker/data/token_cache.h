#ifndef FSDPCTL_WORKER_DATA_TOKEN_CACHE_H_
#define FSDPCTL_WORKER_DATA_TOKEN_CACHE_H_

// The tokens of text, made once by fsdp-tokenize and kept: DIR/KEY/ is what it wrote, where KEY is
// the content of text, tokenizer and options. Whatever shares the folder (ranks of a host or of a
// job, other jobs) makes an entry once: DIR/KEY.lock is held exclusively by who makes it and shared
// by who opens it; a maker that dies leaves DIR/KEY.work/, with which the next goes on. An entry
// appears by a rename, whole; each use reads it against its checksums, and one that is damaged is
// made again.
//
// Thread rule: thread-safe (no state but the folder).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fsdp {

// What is to become tokens.
struct TextToTokens {
  std::string field;  // that names the path: "data.path"
  std::string path;   // as FindDataFiles takes it
  std::string tokenizer = "bytes";
  std::string text_field = "text";        // of JSONL
  std::optional<std::int64_t> separator;  // behind each document; absent: the tokenizer's own
  std::int64_t vocab_size = 0;            // of the model
};

enum class TokenCacheEvent {
  kMaking,    // this process starts the tokenizer
  kProgress,  // of this process's tokenizer
  kWaiting,   // another process makes them
  kMade,
  kDamaged,  // an entry was, and is made again
  kReady,    // open: the end of a call that succeeds
};

struct TokenCacheOptions {
  std::string program;    // path of fsdp-tokenize
  std::string directory;  // created when absent
  int num_threads = 0;    // of the tokenizer; 0: all cores
  // What a run that goes on may lose; the tokenizer holds as many in memory.
  std::int64_t shard_tokens = 1 << 24;
  // Without progress of the tokenizer, here or in the process that is waited for.
  absl::Duration stall_limit = absl::Minutes(10);
  std::function<bool()> stop_requested;  // asked several times a second; may be null
  // Called on the caller's thread with words for people; may be null.
  std::function<void(TokenCacheEvent, const std::string&)> on_event;
};

struct TokenizedText {
  std::string folder;           // of the token files and their manifest.json
  std::uint64_t text_hash = 0;  // of text, tokenizer and options
  std::optional<std::int64_t> separator;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;
  // The entry stays what it is while this is held.
  std::shared_ptr<const void> lock;
};

// The tokens of the text, made now if they are not there. Reads all of the text, and all of the
// tokens.
// Errors begin with the field at fault:
//   NOT_FOUND, PERMISSION_DENIED  text or tokenizer, as the system says
//   INVALID_ARGUMENT     what fsdp-tokenize says of both (file and line of a bad one); the
//                        tokenizer has ids that are not below vocab_size
//   FAILED_PRECONDITION  text that changes while it is read; no fsdp-tokenize; no folder
//   RESOURCE_EXHAUSTED   no room in the folder
//   DEADLINE_EXCEEDED    no progress within stall_limit
//   CANCELLED            stop_requested
//   ABORTED              fsdp-tokenize died
absl::StatusOr<TokenizedText> TokenizeOnce(const TextToTokens& text,
                                           const TokenCacheOptions& options);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_TOKEN_CACHE_H_
