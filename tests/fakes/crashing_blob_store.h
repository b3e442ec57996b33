#ifndef FSDPCTL_TESTS_FAKES_CRASHING_BLOB_STORE_H_
#define FSDPCTL_TESTS_FAKES_CRASHING_BLOB_STORE_H_

// A blob store in memory that behaves as a file system in a power cut: bytes that were not synced
// are gone, and so are names whose folder was not synced. Thread-safe.

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/blob_store.h"

namespace fsdp {

class CrashingBlobStore final : public BlobStore {
 public:
  // After this many further operations every call fails, as if the machine had gone.
  void FailAfter(int num_operations) { left_ = num_operations; }
  // Operations so far.
  [[nodiscard]] int operations() const { return operations_; }

  // The machine comes back: only what was durable is there.
  void Crash() {
    const std::lock_guard<std::mutex> lock(mutex_);
    visible_ = durable_;
    for (auto& [path, blob] : visible_) {
      auto survived = std::make_shared<Blob>();
      survived->bytes.assign(blob->bytes.begin(),
                             blob->bytes.begin() + static_cast<std::ptrdiff_t>(blob->synced));
      survived->synced = blob->synced;
      blob = survived;
    }
    durable_ = visible_;
    left_ = -1;
  }

  // For damaging what is stored; null when there is none.
  std::vector<std::byte>* Bytes(const std::string& path) {
    const auto it = visible_.find(path);
    return it == visible_.end() ? nullptr : &it->second->bytes;
  }
  [[nodiscard]] std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const auto& [path, blob] : visible_) paths.push_back(path);
    return paths;
  }

  absl::StatusOr<std::unique_ptr<BlobWriter>> Create(const std::string& path) override {
    if (!Step()) return Gone();
    return std::make_unique<Writer>(*this, path);
  }
  absl::StatusOr<std::unique_ptr<BlobReader>> Open(const std::string& path) override {
    if (!Step()) return Gone();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = visible_.find(path);
    if (it == visible_.end()) return absl::NotFoundError(absl::StrCat("open(", path, ")"));
    return std::make_unique<Reader>(it->second);
  }
  absl::Status CreateDirectory(const std::string& /*path*/) override {
    return Step() ? absl::OkStatus() : Gone();
  }
  absl::Status SyncDirectory(const std::string& path) override {
    if (!Step()) return Gone();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto inside = [&](const std::string& name) {
      return name.rfind(path + "/", 0) == 0 && name.find('/', path.size() + 1) == std::string::npos;
    };
    std::erase_if(durable_, [&](const auto& entry) {
      return inside(entry.first) && visible_.count(entry.first) == 0;
    });
    for (const auto& [name, blob] : visible_) {
      if (inside(name)) durable_[name] = blob;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    if (!Step()) return Gone();
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, blob] : visible_) {
      if (name.rfind(path + "/", 0) != 0) continue;
      std::string rest = name.substr(path.size() + 1);
      rest = rest.substr(0, rest.find('/'));
      if (names.empty() || names.back() != rest) names.push_back(rest);
    }
    if (names.empty()) return absl::NotFoundError(absl::StrCat("opendir(", path, ")"));
    return names;
  }
  absl::Status Remove(const std::string& path) override {
    if (!Step()) return Gone();
    const std::lock_guard<std::mutex> lock(mutex_);
    return visible_.erase(path) > 0 ? absl::OkStatus()
                                    : absl::NotFoundError(absl::StrCat("unlink(", path, ")"));
  }
  absl::Status RemoveTree(const std::string& path) override {
    if (!Step()) return Gone();
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(visible_,
                  [&](const auto& entry) { return entry.first.rfind(path + "/", 0) == 0; });
    return absl::OkStatus();
  }

 private:
  struct Blob {
    std::vector<std::byte> bytes;
    std::size_t synced = 0;
  };

  class Writer final : public BlobWriter {
   public:
    Writer(CrashingBlobStore& store, std::string path) : store_(store), path_(std::move(path)) {}
    absl::Status Append(std::span<const std::byte> bytes) override {
      if (!store_.Step()) return Gone();
      blob_->bytes.insert(blob_->bytes.end(), bytes.begin(), bytes.end());
      return absl::OkStatus();
    }
    absl::Status Sync() override {
      if (!store_.Step()) return Gone();
      blob_->synced = blob_->bytes.size();
      return absl::OkStatus();
    }
    absl::Status Publish() override {
      if (!store_.Step()) return Gone();
      const std::lock_guard<std::mutex> lock(store_.mutex_);
      store_.visible_[path_] = blob_;
      return absl::OkStatus();
    }

   private:
    CrashingBlobStore& store_;
    std::string path_;
    std::shared_ptr<Blob> blob_ = std::make_shared<Blob>();
  };

  class Reader final : public BlobReader {
   public:
    explicit Reader(std::shared_ptr<Blob> blob) : blob_(std::move(blob)) {}
    [[nodiscard]] std::uint64_t size_bytes() const override { return blob_->bytes.size(); }
    absl::Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) override {
      if (offset > blob_->bytes.size() || bytes.size() > blob_->bytes.size() - offset) {
        return absl::DataLossError("the blob ends before the range");
      }
      if (!bytes.empty()) std::memcpy(bytes.data(), blob_->bytes.data() + offset, bytes.size());
      return absl::OkStatus();
    }

   private:
    std::shared_ptr<Blob> blob_;
  };

  static absl::Status Gone() { return absl::InternalError("the machine is gone"); }
  bool Step() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++operations_;
    if (left_ < 0) return true;
    if (left_ == 0) return false;
    --left_;
    return true;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Blob>> visible_;
  std::map<std::string, std::shared_ptr<Blob>> durable_;
  int left_ = -1;
  int operations_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_FAKES_CRASHING_BLOB_STORE_H_
