#ifndef FSDPCTL_WORKER_TOKENIZE_SOURCES_H_
#define FSDPCTL_WORKER_TOKENIZE_SOURCES_H_

// Which files are tokenized, and in which parts. Both depend on the files alone, so that a run that
// was killed meets the same parts again, with any number of threads. Thread-safe (no state).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

enum class SourceFormat {
  kAuto,   // JSONL by its name (.jsonl, .ndjson), else text
  kText,   // a file is a document
  kJsonl,  // a line is a document
};

struct SourceFile {
  std::string path;
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  SourceFormat format = SourceFormat::kText;
};

// A part of one file that a thread takes.
struct Block {
  std::size_t file = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Files as given, the files below folders by path (names that begin with a dot are left out), and
// what globs match.
//   NOT_FOUND, PERMISSION_DENIED  as the system says; a glob that matches nothing
//   INVALID_ARGUMENT              a folder without files, what is no regular file, one file twice,
//                                 or a compressed one
absl::StatusOr<std::vector<SourceFile>> FindSources(const std::vector<std::string>& arguments,
                                                    SourceFormat format);

//   FAILED_PRECONDITION  a file is not as `sources` says any more
absl::Status CheckUnchanged(const std::vector<SourceFile>& sources);

// Parts of about `block_bytes`. JSONL is cut behind newlines; text between an ASCII letter and a
// newline when `cuts_text`, else not at all. An empty file is one part.
//   as CheckUnchanged, and INVALID_ARGUMENT for a text that is too long to stay whole
absl::StatusOr<std::vector<Block>> CutIntoBlocks(const std::vector<SourceFile>& sources,
                                                 bool cuts_text, std::int64_t block_bytes);

absl::StatusOr<std::string> ReadBlock(const SourceFile& source, const Block& block);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TOKENIZE_SOURCES_H_
