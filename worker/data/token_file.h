#ifndef FSDPCTL_WORKER_DATA_TOKEN_FILE_H_
#define FSDPCTL_WORKER_DATA_TOKEN_FILE_H_

// llm.c's token files: a header of 256 little-endian 32-bit words (magic, version, number of
// tokens, zeros), then the ids. fsdp-tokenize writes them, token_format.h reads them.

#include <cstdint>

namespace fsdp {

struct TokenFileKind {
  std::int32_t magic = 0;
  std::int32_t version = 0;
  int token_bytes = 0;
};

// uint16 ids, for vocabularies of up to 65536; llm.c's GPT-2 files.
inline constexpr TokenFileKind kTokenFile16{20240520, 1, 2};
// uint32 ids; llm.c's Llama 3 files.
inline constexpr TokenFileKind kTokenFile32{20240801, 7, 4};

inline constexpr std::int64_t kTokenFileHeaderBytes = 256 * 4;
// The header counts in a signed 32-bit word.
inline constexpr std::int64_t kMaxTokensInFile = 0x7fffffff;

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_TOKEN_FILE_H_
