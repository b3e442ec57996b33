#include "worker/data/token_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/support/clock.h"
#include "proto/support/crc32c.h"
#include "proto/support/status.h"
#include "worker/data/byte_stream.h"
#include "worker/data/content_hash.h"
#include "worker/data/text_files.h"
#include "worker/data/token_manifest.h"
#include "worker/data/tokenize_process.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLockPoll = absl::Milliseconds(50);
constexpr absl::Duration kTellEvery = absl::Seconds(10);
constexpr std::int64_t kCrcChunkBytes = 1 << 20;
// What is damaged again right after it was made and read is not the cache's fault.
constexpr int kMaxMakes = 2;

// An advisory lock on a file that stays: removing it would let two in. Its time of change is the
// holder's sign of progress.
class CacheLock {
 public:
  static absl::StatusOr<std::shared_ptr<CacheLock>> Open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
    return std::shared_ptr<CacheLock>(new CacheLock(fd));
  }
  ~CacheLock() { ::close(fd_); }
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

  // LOCK_SH or LOCK_EX; false: somebody else's. Takes the place of what is held, not in one step.
  [[nodiscard]] bool Try(int kind) const {
    int result = 0;
    do {
      result = ::flock(fd_, kind | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    return result == 0;
  }
  void Release() const { ::flock(fd_, LOCK_UN); }
  void ShowProgress() const { ::futimens(fd_, nullptr); }
  [[nodiscard]] std::int64_t progress_ns() const {
    struct stat info{};
    ::fstat(fd_, &info);
    return static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
  }

 private:
  explicit CacheLock(int fd) : fd_(fd) {}
  int fd_;
};

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("remove(", path, ")"));
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // A file system that cannot is one that needs not.
  if (error == 0 || error == EINVAL) return absl::OkStatus();
  return ErrnoToStatus(error, absl::StrCat("fsync(", path, ")"));
}

absl::StatusOr<std::uint32_t> FileCrc(const std::string& path) {
  ASSIGN_OR_RETURN(const auto stream, ByteStream::Open(path, {path}));
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min(stream->size_bytes(), kCrcChunkBytes)));
  std::uint32_t crc = 0;
  for (std::int64_t done = 0; done < stream->size_bytes();) {
    const auto bytes = std::span(chunk).first(
        static_cast<std::size_t>(std::min(kCrcChunkBytes, stream->size_bytes() - done)));
    RETURN_IF_ERROR(stream->ReadAt(done, bytes));
    crc = ExtendCrc32c(crc, bytes);
    done += static_cast<std::int64_t>(bytes.size());
  }
  return crc;
}

// Reads all of `folder`.
//   NOT_FOUND  there is no such entry; DATA_LOSS  it is not what was written
absl::StatusOr<TokenManifest> Verify(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return absl::NotFoundError(folder);
  const auto manifest = ReadTokenManifest(folder);
  if (!manifest.ok() || !manifest->has_value() || (*manifest)->shards.empty()) {
    return absl::DataLossError(absl::StrCat(folder, " has no manifest that can be read"));
  }
  for (const auto& [name, expected] : (*manifest)->shards) {
    const std::string path = absl::StrCat(folder, "/", name);
    const auto crc = FileCrc(path);
    if (!crc.ok()) return absl::DataLossError(crc.status().message());
    if (*crc == expected) continue;
    return absl::DataLossError(
        absl::StrFormat("%s: CRC-32C 0x%08x, not 0x%08x", path, *crc, expected));
  }
  return **manifest;
}

// One entry, looked for and made.
class Entry {
 public:
  Entry(const TextToTokens& text, const TokenCacheOptions& options)
      : text_(text), options_(options) {}

  absl::StatusOr<TokenizedText> Get();

 private:
  absl::Status Identify();
  // A lock of the kind, waiting for who has another. With `until_made` also returns, maybe without
  // the lock, when the entry is there.
  absl::Status WaitForLock(int kind, bool until_made);
  // The entry as it is; NOT_FOUND: it must be made.
  absl::StatusOr<TokenizedText> Use();
  absl::StatusOr<TokenizedText> UseOrMake();
  absl::Status Make();
  absl::Status RunTokenizer();
  absl::Status Publish();
  absl::Status Explain(const absl::Status& status) const;
  void Tell(TokenCacheEvent event, const std::string& words) const {
    if (options_.on_event) options_.on_event(event, words);
  }

  [[nodiscard]] std::string folder() const { return absl::StrCat(options_.directory, "/", key_); }
  [[nodiscard]] std::string work() const { return absl::StrCat(folder(), ".work"); }

  const TextToTokens& text_;
  const TokenCacheOptions& options_;
  TextFiles files_;
  std::uint64_t hash_ = 0;
  std::string key_;
  std::shared_ptr<CacheLock> lock_;
};

absl::Status Entry::Identify() {
  ContentHash hash;
  hash.AddNumber(kTokenizeVersion);
  RETURN_IF_ERROR(Annotate(HashTokenizer(text_.tokenizer, &hash), "data.tokenizer"));
  hash.AddNumber(text_.text_field.size());
  hash.Add(std::as_bytes(std::span(text_.text_field)));
  hash.AddNumber(static_cast<std::uint64_t>(text_.separator.value_or(-1)));
  absl::StatusOr<TextFiles> files = HashText(text_.path, &hash);
  if (!files.ok()) return Annotate(files.status(), text_.field);
  files_ = *std::move(files);
  hash_ = hash.Finish();
  key_ = absl::StrFormat("%016x", hash_);
  return absl::OkStatus();
}

absl::Status Entry::WaitForLock(int kind, bool until_made) {
  std::int64_t progress_ns = 0;
  MonotonicTime progressed;
  for (bool waited = false; !lock_->Try(kind); waited = true) {
    if (std::error_code ignored; until_made && fs::exists(folder(), ignored)) break;
    const MonotonicTime now = Clock::Real().Now();
    if (!waited) {
      Tell(TokenCacheEvent::kWaiting, absl::StrCat(text_.field,
                                                   ": waiting for the process that "
                                                   "makes the tokens of ",
                                                   text_.path, " in ", folder()));
    }
    if (!waited || lock_->progress_ns() != progress_ns) {
      progress_ns = lock_->progress_ns();
      progressed = now;
    }
    if (options_.stop_requested && options_.stop_requested()) {
      return absl::CancelledError("the wait for tokens was stopped");
    }
    if (now - progressed >= options_.stall_limit) {
      return absl::DeadlineExceededError(absl::StrCat(
          text_.field, ": the process that makes the tokens of ", text_.path, " in ", folder(),
          " made no progress for ", absl::FormatDuration(options_.stall_limit),
          ": look what holds ", folder(), ".lock"));
    }
    absl::SleepFor(kLockPoll);
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizedText> Entry::Use() {
  ASSIGN_OR_RETURN(const TokenManifest manifest, Verify(folder()));
  if (manifest.vocab_size > text_.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("data.tokenizer: ", text_.tokenizer,
                                                   " has ids up to ", manifest.vocab_size - 1,
                                                   ", and model.vocabSize is ", text_.vocab_size,
                                                   "; it must be at least ", manifest.vocab_size));
  }
  TokenizedText tokens;
  tokens.folder = folder();
  tokens.text_hash = hash_;
  tokens.separator = manifest.separator;
  tokens.tokens = manifest.tokens;
  tokens.text_bytes = manifest.text_bytes;
  tokens.lock = lock_;
  return tokens;
}

absl::Status Entry::RunTokenizer() {
  TokenizeProcess process;
  process.program = options_.program;
  process.arguments = {"--tokenizer",    text_.tokenizer,
                       "--output",       work(),
                       "--for-job",      key_,
                       "--text-field",   text_.text_field,
                       "--shard-tokens", absl::StrCat(options_.shard_tokens),
                       "--vocab-limit",  absl::StrCat(text_.vocab_size)};
  if (options_.num_threads > 0) {
    process.arguments.insert(process.arguments.end(),
                             {"--threads", absl::StrCat(options_.num_threads)});
  }
  if (text_.separator.has_value()) {
    process.arguments.insert(process.arguments.end(),
                             {"--document-separator", absl::StrCat(*text_.separator)});
  }
  for (const TextFile& file : files_.files) process.sources.push_back(file.path);
  process.stall_limit = options_.stall_limit;
  process.stop_requested = options_.stop_requested;
  MonotonicTime told = Clock::Real().Now();
  process.on_progress = [&](const TokenizeProgressReport& progress) {
    lock_->ShowProgress();
    if (Clock::Real().Now() - told < kTellEvery) return;
    told = Clock::Real().Now();
    Tell(TokenCacheEvent::kProgress,
         absl::StrFormat("%s: tokens of %.1f of %.1f MB made", text_.field,
                         static_cast<double>(progress.done_bytes) / 1e6,
                         static_cast<double>(progress.total_bytes) / 1e6));
  };
  return RunTokenizeProcess(process);
}

// The lock is held exclusively.
absl::Status Entry::Make() {
  RETURN_IF_ERROR(RemoveAll(folder()));
  Tell(TokenCacheEvent::kMaking,
       absl::StrFormat("%s: making the tokens of %s (%.1f MB in %d %s) with %s, once, in %s",
                       text_.field, text_.path, static_cast<double>(files_.size_bytes) / 1e6,
                       files_.files.size(), files_.files.size() == 1 ? "file" : "files",
                       text_.tokenizer, folder()));
  absl::Status made = RunTokenizer();
  // What an earlier run left and cannot be gone on with: afresh, once.
  if (absl::IsDataLoss(made) || absl::IsFailedPrecondition(made)) {
    RETURN_IF_ERROR(CheckUnchanged(files_));
    RETURN_IF_ERROR(RemoveAll(work()));
    made = RunTokenizer();
  }
  if (!made.ok()) return made;
  return Publish();
}

absl::Status Entry::Publish() {
  // The key is that of the text as it was hashed.
  const absl::Status unchanged = CheckUnchanged(files_);
  if (!unchanged.ok()) {
    RemoveAll(work()).IgnoreError();
    return unchanged;
  }
  RETURN_IF_ERROR(Verify(work()).status());
  if (::rename(work().c_str(), folder().c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename(", work(), ")"));
  }
  return SyncFolder(options_.directory);
}

// Which field is at fault, and what to do.
absl::Status Entry::Explain(const absl::Status& status) const {
  const std::string message(status.message());
  for (const char* named : {"data.tokenizer: ", "data.documentSeparator "}) {
    if (message.starts_with(named)) return status;
  }
  const bool in_cache = message.find(options_.directory) != std::string::npos;
  if (!in_cache && !absl::IsResourceExhausted(status)) return Annotate(status, text_.field);
  const char* remedy = "";
  if (absl::IsResourceExhausted(status)) {
    remedy = ": free space there, or give data.cacheDir another file system";
  } else if (absl::IsPermissionDenied(status)) {
    remedy = ": let the worker's user write there, or give data.cacheDir another folder";
  }
  return {status.code(), absl::StrCat("data.cacheDir: ", message, remedy)};
}

absl::StatusOr<TokenizedText> Entry::Get() {
  RETURN_IF_ERROR(Identify());
  std::error_code error;
  fs::create_directories(options_.directory, error);
  if (error) {
    return Explain(ErrnoToStatus(error.value(), absl::StrCat("mkdir(", options_.directory, ")")));
  }
  absl::StatusOr<std::shared_ptr<CacheLock>> lock = CacheLock::Open(folder() + ".lock");
  if (!lock.ok()) return Explain(lock.status());
  lock_ = *std::move(lock);
  return UseOrMake();
}

// Is it one that must be made (again)?
bool IsMissing(const absl::Status& found) {
  return absl::IsNotFound(found) || absl::IsDataLoss(found);
}

absl::StatusOr<TokenizedText> Entry::UseOrMake() {
  for (int makes = 0;;) {
    RETURN_IF_ERROR(WaitForLock(LOCK_SH, false));
    absl::StatusOr<TokenizedText> found = Use();
    if (!IsMissing(found.status()) || makes == kMaxMakes) return found;
    lock_->Release();
    RETURN_IF_ERROR(WaitForLock(LOCK_EX, absl::IsNotFound(found.status())));
    if (!lock_->Try(LOCK_EX)) continue;
    // Another may have made it meanwhile.
    found = Use();
    if (absl::IsDataLoss(found.status())) {
      Tell(TokenCacheEvent::kDamaged,
           absl::StrCat(text_.field, ": the tokens kept in ", folder(),
                        " are damaged and made again: ", std::string(found.status().message())));
    }
    if (IsMissing(found.status())) {
      ++makes;
      const absl::Status made = Make();
      if (!made.ok()) return absl::IsCancelled(made) ? made : Explain(made);
      Tell(TokenCacheEvent::kMade,
           absl::StrCat(text_.field, ": the tokens of ", text_.path, " are in ", folder()));
    }
    // Once more, as one of those who only read.
    lock_->Release();
  }
}

}  // namespace

absl::StatusOr<TokenizedText> TokenizeOnce(const TextToTokens& text,
                                           const TokenCacheOptions& options) {
  Entry entry(text, options);
  absl::StatusOr<TokenizedText> tokens = entry.Get();
  if (options.on_event && tokens.ok()) options.on_event(TokenCacheEvent::kReady, "");
  return tokens;
}

}  // namespace fsdp
