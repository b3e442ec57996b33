#ifndef FSDPCTL_WORKER_DATA_MEGATRON_INDEX_H_
#define FSDPCTL_WORKER_DATA_MEGATRON_INDEX_H_

// Megatron's index of a token file, version 1. All numbers are little-endian:
//
//   9 bytes "MMIDIDX\0\0", u64 version 1, u8 type of an id, u64 sequences S, u64 D
//   i32[S]  tokens of each sequence
//   i64[S]  where it begins in the .bin, in bytes; they follow each other without gaps
//   i64[D]  the sequence that each document begins with, and at last S
//
// Types of ids that are read: 8 (uint16) and 4 (int32). Multimodal data sets (i8[S] behind) are
// not.
//
// Thread rule: stateless. Read in pieces: memory is what document_starts takes.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/content_hash.h"

namespace fsdp {

struct MegatronIndex {
  int token_bytes = 0;  // 2 or 4
  std::int64_t num_documents = 0;
  // The tokens that documents begin with; documents without tokens have none. Only if asked for.
  std::vector<std::int64_t> document_starts;
};

// Checks all of the index against itself and the size of its .bin. `hash` takes its bytes.
//   INVALID_ARGUMENT  it is no index, or of a version or type that is not read; it is cut; its
//                     parts, or it and the .bin, do not agree; names file, value and remedy
//   NOT_FOUND, PERMISSION_DENIED, DATA_LOSS  it cannot be read
absl::StatusOr<MegatronIndex> ReadMegatronIndex(const std::string& path, std::int64_t bin_bytes,
                                                bool want_documents, ContentHash* hash);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_MEGATRON_INDEX_H_
