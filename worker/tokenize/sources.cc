#include "worker/tokenize/sources.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/data/data_files.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kWindowBytes = 64 << 10;
// Of a text that cannot be cut; its ids are in memory at once.
constexpr std::int64_t kMaxWholeBytes = 512 << 20;

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

absl::Status AddFolder(const std::string& folder, std::vector<std::string>* paths) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const bool hidden = it->path().filename().string().front() == '.';
    if (it->is_directory(error)) {
      if (hidden) it.disable_recursion_pending();
    } else if (!hidden) {
      found.push_back(it->path().string());
    }
  }
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("opendir(", folder, ")"));
  if (found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " has no files; name a folder with text"));
  }
  std::sort(found.begin(), found.end());
  paths->insert(paths->end(), found.begin(), found.end());
  return absl::OkStatus();
}

absl::Status AddGlob(const std::string& pattern, std::vector<std::string>* paths) {
  glob_t found{};
  const int failed = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
  const std::unique_ptr<glob_t, decltype(&::globfree)> owner(&found, &::globfree);
  if (failed == GLOB_NOMATCH) return absl::NotFoundError(absl::StrCat(pattern, " matches no file"));
  if (failed != 0) return ErrnoToStatus(errno, absl::StrCat("glob(", pattern, ")"));
  for (std::size_t i = 0; i < found.gl_pathc; ++i) {
    std::error_code ignored;
    if (!fs::is_directory(found.gl_pathv[i], ignored)) paths->push_back(found.gl_pathv[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<SourceFile> Examine(const std::string& path, SourceFormat format) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat(", path, ")"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  for (const char* suffix : {".gz", ".zst", ".xz", ".bz2", ".zip", ".parquet", ".arrow"}) {
    if (!EndsWith(path, suffix)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no plain text; unpack or convert it to text or JSONL first"));
  }
  SourceFile source{path, info.st_size,
                    info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec,
                    format};
  if (format == SourceFormat::kAuto) {
    source.format = IsJsonlName(path) ? SourceFormat::kJsonl : SourceFormat::kText;
  }
  return source;
}

// The first place from `from` on where the file may be cut; absent when there is none.
absl::StatusOr<std::optional<std::int64_t>> FindCut(BlobReader& reader, const SourceFile& source,
                                                    std::int64_t from) {
  std::string window;
  for (std::int64_t begin = from - 1; begin + 1 < source.size_bytes; begin += kWindowBytes) {
    const std::int64_t size = std::min(kWindowBytes + 1, source.size_bytes - begin);
    window.resize(static_cast<std::size_t>(size));
    RETURN_IF_ERROR(reader.ReadAt(static_cast<std::uint64_t>(begin),
                                  std::as_writable_bytes(std::span(window))));
    for (std::size_t i = 1; i < window.size(); ++i) {
      const auto at = begin + static_cast<std::int64_t>(i);
      const char before = window[i - 1];
      const bool letter = (before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z');
      const bool cut =
          source.format == SourceFormat::kJsonl ? before == '\n' : letter && window[i] == '\n';
      if (cut) return std::optional(at);
    }
  }
  return std::optional<std::int64_t>();
}

absl::Status CutFile(const SourceFile& source, std::size_t file, std::int64_t block_bytes,
                     std::vector<Block>* blocks) {
  ASSIGN_OR_RETURN(const auto reader, BlobStore::Posix().Open(source.path));
  for (std::int64_t begin = 0; begin < source.size_bytes;) {
    std::int64_t end = source.size_bytes;
    if (source.size_bytes - begin > block_bytes) {
      ASSIGN_OR_RETURN(const auto cut, FindCut(*reader, source, begin + block_bytes));
      end = cut.value_or(end);
    }
    blocks->push_back({file, begin, end});
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SourceFile>> FindSources(const std::vector<std::string>& arguments,
                                                    SourceFormat format) {
  std::vector<std::string> paths;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    if (fs::is_directory(argument, ignored)) {
      RETURN_IF_ERROR(AddFolder(argument, &paths));
    } else if (!fs::exists(argument, ignored) &&
               argument.find_first_of("*?[{") != std::string::npos) {
      RETURN_IF_ERROR(AddGlob(argument, &paths));
    } else {
      paths.push_back(argument);
    }
  }
  std::vector<SourceFile> sources;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    if (!seen.insert(path).second) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is named twice"));
    }
    ASSIGN_OR_RETURN(SourceFile source, Examine(path, format));
    sources.push_back(std::move(source));
  }
  return sources;
}

absl::Status CheckUnchanged(const std::vector<SourceFile>& sources) {
  for (const SourceFile& source : sources) {
    ASSIGN_OR_RETURN(const SourceFile now, Examine(source.path, source.format));
    if (now.size_bytes == source.size_bytes && now.modified_ns == source.modified_ns) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        source.path, " changed while it was tokenized (", source.size_bytes, " bytes before, ",
        now.size_bytes, " now): leave it alone and use --overwrite"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Block>> CutIntoBlocks(const std::vector<SourceFile>& sources,
                                                 bool cuts_text, std::int64_t block_bytes) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SourceFile& source = sources[i];
    if (source.size_bytes == 0) {
      blocks.push_back({i, 0, 0});
    } else if (source.format == SourceFormat::kJsonl || cuts_text) {
      RETURN_IF_ERROR(CutFile(source, i, block_bytes, &blocks));
    } else if (source.size_bytes > kMaxWholeBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(source.path, " is one document of ", source.size_bytes,
                       " bytes, which this tokenizer cannot take in parts; split it into documents "
                       "(several files, or JSONL) of at most ",
                       kMaxWholeBytes));
    } else {
      blocks.push_back({i, 0, source.size_bytes});
    }
  }
  return blocks;
}

absl::StatusOr<std::string> ReadBlock(const SourceFile& source, const Block& block) {
  ASSIGN_OR_RETURN(const auto reader, BlobStore::Posix().Open(source.path));
  std::string text(static_cast<std::size_t>(block.end - block.begin), '\0');
  RETURN_IF_ERROR(reader->ReadAt(static_cast<std::uint64_t>(block.begin),
                                 std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace fsdp
