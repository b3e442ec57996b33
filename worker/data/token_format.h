#ifndef FSDPCTL_WORKER_DATA_TOKEN_FORMAT_H_
#define FSDPCTL_WORKER_DATA_TOKEN_FORMAT_H_

// How a token file is laid out, told from its first bytes. All numbers are little-endian.
//
//   raw       ids of the width that the job names, from byte 0
//   llm.c     256 x int32: magic, version, number of tokens, zeros; then the ids. Magic 20240520
//             with version 1: uint16; magic 20240801 with version 7: uint32
// A Megatron pair is told from its names (data_files.h); an index under another name is refused.
//
// Thread rule: stateless.

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/data/byte_stream.h"

namespace fsdp {

struct TokenLayout {
  std::int64_t header_bytes = 0;
  int token_bytes = 0;  // 2 or 4
};

// Of a file as it was opened, its header not skipped yet. `raw_token_bytes`: where there is no
// header.
//   INVALID_ARGUMENT  it is cut, or says another number of tokens than follow; a version or a
//   format
//                     that is not read; names file, value and remedy
//   DATA_LOSS         it cannot be read
absl::StatusOr<TokenLayout> ReadTokenLayout(const ByteStream& stream, const ByteStream::File& file,
                                            int raw_token_bytes);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_TOKEN_FORMAT_H_
