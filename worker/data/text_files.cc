#include "worker/data/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/data/byte_stream.h"
#include "worker/data/data_files.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkBytes = 1 << 20;

absl::Status HashRange(const ByteStream& stream, std::int64_t begin, std::int64_t size_bytes,
                       ContentHash* hash) {
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(size_bytes, kChunkBytes)));
  for (std::int64_t done = 0; done < size_bytes;) {
    const std::span<std::byte> bytes =
        std::span(chunk).first(static_cast<std::size_t>(std::min(kChunkBytes, size_bytes - done)));
    RETURN_IF_ERROR(stream.ReadAt(begin + done, bytes));
    hash->Add(bytes);
    done += static_cast<std::int64_t>(bytes.size());
  }
  return absl::OkStatus();
}

absl::Status HashFile(const std::string& path, ContentHash* hash) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream, ByteStream::Open(path, {path}));
  hash->AddNumber(static_cast<std::uint64_t>(stream->size_bytes()));
  return HashRange(*stream, 0, stream->size_bytes(), hash);
}

}  // namespace

bool NamesJsonl(const std::string& path) {
  const auto files = FindDataFiles(path, FilesOf::kText);
  return files.ok() && std::any_of(files->begin(), files->end(),
                                   [](const DataFile& file) { return IsJsonlName(file.path); });
}

absl::StatusOr<TextFiles> HashText(const std::string& path, ContentHash* hash) {
  ASSIGN_OR_RETURN(const std::vector<DataFile> files, FindDataFiles(path, FilesOf::kText));
  TextFiles text;
  hash->AddNumber(files.size());
  for (const DataFile& file : files) {
    // One at a time: a folder may hold more files than may be open.
    ASSIGN_OR_RETURN(const std::shared_ptr<ByteStream> stream,
                     ByteStream::Open(file.path, {file.path}));
    hash->AddNumber(IsJsonlName(file.path) ? 1 : 0);
    hash->AddNumber(static_cast<std::uint64_t>(stream->size_bytes()));
    RETURN_IF_ERROR(HashRange(*stream, 0, stream->size_bytes(), hash));
    RETURN_IF_ERROR(stream->CheckUnchanged());
    text.files.push_back({file.path, stream->size_bytes(), stream->files()[0].modified_ns});
    text.size_bytes += stream->size_bytes();
  }
  return text;
}

absl::StatusOr<std::string> ResolveTokenizer(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const fs::path file = fs::path(path) / name;
    if (fs::exists(file, ignored)) return file.string();
  }
  return absl::NotFoundError(absl::StrCat(path, " has neither tokenizer.json nor tokenizer.model"));
}

absl::Status HashTokenizer(const std::string& path, ContentHash* hash) {
  if (path == "bytes") {
    hash->AddNumber(0);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string file, ResolveTokenizer(path));
  RETURN_IF_ERROR(HashFile(file, hash));
  const std::string config = (fs::path(file).parent_path() / "tokenizer_config.json").string();
  const absl::Status beside = HashFile(config, hash);
  return absl::IsNotFound(beside) ? absl::OkStatus() : beside;
}

absl::Status CheckUnchanged(const TextFiles& text) {
  for (const TextFile& file : text.files) {
    struct stat info{};
    const bool there = ::stat(file.path.c_str(), &info) == 0;
    const std::int64_t modified_ns =
        static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
    if (there && info.st_size == file.size_bytes && modified_ns == file.modified_ns) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        file.path, " changed while its tokens were made (", file.size_bytes, " bytes before, ",
        there ? absl::StrCat(info.st_size) : "gone", " now): leave it alone and restart the job"));
  }
  return absl::OkStatus();
}

}  // namespace fsdp
