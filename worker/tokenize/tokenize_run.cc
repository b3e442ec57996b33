#include "worker/tokenize/tokenize_run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/checkpoint/blob_store.h"
#include "worker/data/content_hash.h"
#include "worker/data/token_manifest.h"
#include "worker/tokenize/token_shards.h"

namespace fsdp {
namespace {

// Blocks that may wait for their turn to be written, per thread.
constexpr std::size_t kBlocksAhead = 4;
constexpr std::int64_t kUint16Vocabulary = 65536;

// Held by one process; the file stays, for removing it would let two in.
class DirectoryLock {
 public:
  static absl::StatusOr<std::unique_ptr<DirectoryLock>> Take(const std::string& directory) {
    const std::string path = absl::StrCat(directory, "/.lock");
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
    std::unique_ptr<DirectoryLock> lock(new DirectoryLock(fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("another fsdp-tokenize writes to ", directory, "; wait for it"));
    }
    return lock;
  }
  ~DirectoryLock() { ::close(fd_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

// What a killed process left half written; its names carry the store's mark.
absl::Status RemoveTemporaries(const std::string& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> stale;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool ours = name.rfind("tokens_", 0) == 0 || name.rfind("manifest.json", 0) == 0;
    if (ours && name.find(".tmp.") != std::string::npos) stale.push_back(it->path());
  }
  if (error) return ErrnoToStatus(error.value(), absl::StrCat("opendir(", directory, ")"));
  for (const auto& path : stale) {
    if (::unlink(path.c_str()) != 0) return ErrnoToStatus(errno, "unlink(" + path.string() + ")");
  }
  return absl::OkStatus();
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void AddText(std::string_view text, ContentHash* hash) {
  hash->AddNumber(text.size());
  hash->Add(std::as_bytes(std::span(text)));
}

std::string IdentityOf(const TokenizeOptions& options, const std::vector<SourceFile>& sources) {
  ContentHash hash;
  hash.AddNumber(kTokenizeVersion);
  hash.AddNumber(options.tokenizer.hash);
  AddText(options.tokenizer.kind, &hash);
  hash.AddNumber(options.tokenizer_options.parse_special_tokens ? 1 : 0);
  AddText(options.documents.text_field, &hash);
  hash.AddNumber(options.documents.separator.has_value() ? *options.documents.separator + 1 : 0);
  hash.AddNumber(options.documents.separator_first ? 1 : 0);
  hash.AddNumber(static_cast<std::uint64_t>(options.shard_tokens));
  hash.AddNumber(static_cast<std::uint64_t>(options.block_bytes));
  if (!options.content_key.empty()) {
    AddText(options.content_key, &hash);
    return absl::StrFormat("%016x", hash.Finish());
  }
  for (const SourceFile& source : sources) {
    AddText(source.path, &hash);
    hash.AddNumber(static_cast<std::uint64_t>(source.size_bytes));
    hash.AddNumber(static_cast<std::uint64_t>(source.modified_ns));
    hash.AddNumber(source.format == SourceFormat::kJsonl ? 1 : 0);
  }
  return absl::StrFormat("%016x", hash.Finish());
}

nlohmann::ordered_json About(const TokenizeOptions& options, const std::vector<SourceFile>& sources,
                             int token_bytes) {
  nlohmann::ordered_json about;
  about["format"] = "llm.c";
  about["tokenBytes"] = token_bytes;
  about["tokenizer"] = {{"path", options.tokenizer.path},
                        {"kind", options.tokenizer.kind},
                        {"hash", absl::StrFormat("%016x", options.tokenizer.hash)},
                        {"vocabSize", options.tokenizer.tokenizer->vocab_size()}};
  about["separator"] = nullptr;
  if (options.documents.separator.has_value()) about["separator"] = *options.documents.separator;
  about["separatorPosition"] = options.documents.separator_first ? "before" : "after";
  about["sources"] = nlohmann::ordered_json::array();
  for (const SourceFile& source : sources) {
    about["sources"].push_back(
        {{"path", source.path},
         {"bytes", source.size_bytes},
         {"format", source.format == SourceFormat::kJsonl ? "jsonl" : "text"}});
  }
  return about;
}

struct EncodedBlock {
  absl::Status status;
  std::vector<TokenId> ids;
  DocumentCounts counts;
};

// Encodes blocks on threads of its own; they come out in order.
class BlockEncoders {
 public:
  BlockEncoders(const TokenizeOptions& options, const std::vector<SourceFile>& sources,
                const std::vector<Block>& blocks, std::size_t first)
      : options_(options), sources_(sources), blocks_(blocks), taken_(first), given_(first) {
    for (int i = 0; i < options.num_threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~BlockEncoders() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  BlockEncoders(const BlockEncoders&) = delete;
  BlockEncoders& operator=(const BlockEncoders&) = delete;

  EncodedBlock Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return ready_.count(given_) > 0; });
    EncodedBlock block = std::move(ready_.extract(given_).mapped());
    ++given_;
    lock.unlock();
    changed_.notify_all();
    return block;
  }

 private:
  void Run() {
    DocumentEncoder encoder(options_.tokenizer.tokenizer, options_.documents);
    const std::size_t ahead = kBlocksAhead * static_cast<std::size_t>(options_.num_threads);
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(
          lock, [&] { return stopping_ || taken_ == blocks_.size() || taken_ < given_ + ahead; });
      if (stopping_ || taken_ == blocks_.size()) return;
      const std::size_t index = taken_++;
      lock.unlock();
      EncodedBlock block;
      const Block& range = blocks_[index];
      block.status = encoder.EncodeBlock(sources_[range.file], range, &block.ids, &block.counts);
      lock.lock();
      ready_.emplace(index, std::move(block));
      lock.unlock();
      changed_.notify_all();
    }
  }

  const TokenizeOptions& options_;
  const std::vector<SourceFile>& sources_;
  const std::vector<Block>& blocks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::size_t, EncodedBlock> ready_;
  std::size_t taken_;
  std::size_t given_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

absl::Status EncodeAll(const TokenizeOptions& options, const std::vector<SourceFile>& sources,
                       const std::vector<Block>& blocks, TokenShards* shards,
                       TokenizeResult* result) {
  TokenizeProgress progress;
  for (const SourceFile& source : sources) progress.total_bytes += source.size_bytes;
  BlockEncoders encoders(options, sources, blocks, shards->next_block());
  while (shards->next_block() < blocks.size()) {
    const EncodedBlock block = encoders.Next();
    RETURN_IF_ERROR(block.status);
    RETURN_IF_ERROR(shards->AddBlock(block.ids, block.counts));
    result->encoded_bytes += block.counts.source_bytes;
    progress.done_bytes = shards->counts().source_bytes;
    progress.tokens = shards->num_tokens();
    progress.shards = shards->num_shards();
    options.on_progress(progress);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizeResult> RunTokenize(const TokenizeOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const double cpu_before = CpuSeconds();
  ASSIGN_OR_RETURN(const std::vector<SourceFile> sources,
                   FindSources(options.inputs, options.format));
  BlobStore& store = BlobStore::Posix();
  RETURN_IF_ERROR(store.CreateDirectory(options.output));
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Take(options.output));
  RETURN_IF_ERROR(RemoveTemporaries(options.output));
  if (options.overwrite) RETURN_IF_ERROR(TokenShards::Clear(&store, options.output));
  const bool narrow = options.tokenizer.tokenizer->vocab_size() <= kUint16Vocabulary;
  const TokenFileKind kind = narrow ? kTokenFile16 : kTokenFile32;
  ASSIGN_OR_RETURN(TokenShards shards,
                   TokenShards::Open(&store, {options.output, kind, options.shard_tokens,
                                              IdentityOf(options, sources)}));
  TokenizeResult result;
  result.was_complete = shards.complete();
  if (!shards.complete()) {
    ASSIGN_OR_RETURN(const std::vector<Block> blocks,
                     CutIntoBlocks(sources, options.tokenizer.tokenizer->cuts_before_newlines(),
                                   options.block_bytes));
    RETURN_IF_ERROR(EncodeAll(options, sources, blocks, &shards, &result));
    RETURN_IF_ERROR(CheckUnchanged(sources));
    RETURN_IF_ERROR(shards.Finish(About(options, sources, kind.token_bytes)));
  }
  result.counts = shards.counts();
  result.tokens = shards.num_tokens();
  result.shards = shards.num_shards();
  result.sources = sources.size();
  result.cpu_seconds = CpuSeconds() - cpu_before;
  result.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace fsdp
