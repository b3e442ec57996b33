#include "worker/data/data_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/data/token_manifest.h"

namespace fsdp {
namespace {

constexpr std::string_view kBin = ".bin";
constexpr std::string_view kIndex = ".idx";

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool EndsWith(const std::string& path, std::string_view suffix) {
  return std::string_view(path).ends_with(suffix);
}

std::string WithSuffix(const std::string& path, std::string_view suffix) {
  return path.substr(0, path.size() - suffix.size()) + std::string(suffix);
}

absl::StatusOr<std::vector<std::string>> FilesOfFolder(const std::string& path, FilesOf kind) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool left_out = kind == FilesOf::kTokens && name == kTokenManifestName;
    // What is no file, such as a link to nowhere, is refused by name when it is opened.
    std::error_code unreadable;
    if (name.front() != '.' && !left_out && !it->is_directory(unreadable)) {
      paths.push_back(it->path().string());
    }
  }
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("opendir(", path, ")"));
  if (paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the folder ", path, " holds no files"));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<std::vector<std::string>> FilesOfGlob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);  // sorted by glob
  }
  ::globfree(&found);
  if (paths.empty()) return absl::NotFoundError(absl::StrCat("no file matches ", pattern));
  return paths;
}

absl::StatusOr<std::vector<std::string>> Expand(const std::string& path, FilesOf kind) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return FilesOfFolder(path, kind);
    return std::vector<std::string>{path};
  }
  const int error = errno;
  if (kind == FilesOf::kTokens) {
    const std::string index = absl::StrCat(path, ToAbsl(kIndex));
    const std::string bin = absl::StrCat(path, ToAbsl(kBin));
    if (Exists(index)) return std::vector<std::string>{index};
    if (Exists(bin)) {
      return absl::NotFoundError(absl::StrCat(
          bin, " has no ", index, " beside it: a Megatron data set is both; or name the .bin"));
    }
  }
  if (path.find_first_of("*?[") != std::string::npos) return FilesOfGlob(path);
  return ErrnoToStatus(error, absl::StrCat("stat(", path, ")"));
}

}  // namespace

bool IsJsonlName(std::string_view path) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

absl::StatusOr<std::vector<DataFile>> FindDataFiles(const std::string& path, FilesOf kind) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, Expand(path, kind));
  std::vector<DataFile> files;
  std::set<std::string> seen;
  for (const std::string& name : paths) {
    DataFile file{name, ""};
    if (kind == FilesOf::kTokens && EndsWith(name, kIndex)) {
      file = {WithSuffix(name, kBin), name};
      if (!Exists(file.path)) {
        return absl::NotFoundError(
            absl::StrCat(name, " has no ", file.path, " beside it: a Megatron data set is both"));
      }
    } else if (kind == FilesOf::kTokens && EndsWith(name, kBin)) {
      const std::string index = WithSuffix(name, kIndex);
      if (Exists(index)) file.index = index;
    }
    // Of a pair both names may be there.
    if (seen.insert(file.path).second) files.push_back(file);
  }
  return files;
}

}  // namespace fsdp
