#ifndef FSDPCTL_WORKER_DATA_DATA_FILES_H_
#define FSDPCTL_WORKER_DATA_DATA_FILES_H_

// Which files a path of a job names.
//
// Thread rule: stateless.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace fsdp {

struct DataFile {
  std::string path;
  std::string index;  // Megatron's .idx of a .bin; empty: none
};

enum class FilesOf : bool { kText, kTokens };

// `path`: a file; a folder (the files in it whose names do not begin with a dot, by name; folders
// in it are left out); or a glob. Of tokens besides: a .bin with an .idx beside it is a Megatron
// pair, by either name or by what both begin with; a folder's manifest.json is fsdp-tokenize's.
//   NOT_FOUND          nothing there, or half a pair; PERMISSION_DENIED as the system says
//   INVALID_ARGUMENT   a folder without files
absl::StatusOr<std::vector<DataFile>> FindDataFiles(const std::string& path, FilesOf kind);

// Is each line of the file a JSON object? Its name says so: .jsonl, .ndjson.
bool IsJsonlName(std::string_view path);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_DATA_FILES_H_
