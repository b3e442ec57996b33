#ifndef FSDPCTL_WORKER_DATA_TEXT_FILES_H_
#define FSDPCTL_WORKER_DATA_TEXT_FILES_H_

// What text and tokenizer of a job are, by their content: what their tokens depend on, wherever
// the files lie and whenever they were touched.
//
// Thread rule: stateless.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/content_hash.h"

namespace fsdp {

struct TextFile {
  std::string path;
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
};

// Files that one path of text names (data_files.h), as they were when they were read.
struct TextFiles {
  std::vector<TextFile> files;
  std::int64_t size_bytes = 0;
};

// Does `path` name a file of JSON lines? An error of FindDataFiles is left to who reads it.
bool NamesJsonl(const std::string& path);

// Reads all of `path` into `hash`: number, kind, size and bytes of its files, in order, without
// their names. About a second per 3 GB of cached file.
//   errors of FindDataFiles and ByteStream; DATA_LOSS  a file changed while it was read
absl::StatusOr<TextFiles> HashText(const std::string& path, ContentHash* hash);

// The file that `path` means: itself, or a folder's tokenizer.json or tokenizer.model.
//   NOT_FOUND  a folder with neither
absl::StatusOr<std::string> ResolveTokenizer(const std::string& path);

// The bytes of everything that fsdp-tokenize reads of the tokenizer ("bytes": nothing).
//   NOT_FOUND, PERMISSION_DENIED  as the system says
absl::Status HashTokenizer(const std::string& path, ContentHash* hash);

//   FAILED_PRECONDITION  a file is not as it was when it was hashed; names it
absl::Status CheckUnchanged(const TextFiles& text);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_TEXT_FILES_H_
