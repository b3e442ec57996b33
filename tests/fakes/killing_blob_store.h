#ifndef FSDPCTL_TESTS_FAKES_KILLING_BLOB_STORE_H_
#define FSDPCTL_TESTS_FAKES_KILLING_BLOB_STORE_H_

// A store that kills its process at a named point: one of the operations that change what it holds.
// It names them itself, "rename manifest.json #1" for the first of this kind with this name, so
// that a run without a kill says which points there are. Thread-safe.

#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/checkpoint/blob_store.h"

namespace fsdp {

class KillingBlobStore final : public BlobStore {
 public:
  // `point` empty: nothing is killed.
  explicit KillingBlobStore(BlobStore& inner, std::string point = "")
      : inner_(inner), point_(std::move(point)) {}

  // Reached so far, in order.
  [[nodiscard]] std::vector<std::string> points() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return points_;
  }

  absl::StatusOr<std::unique_ptr<BlobWriter>> Create(const std::string& path) override {
    Reach("create", path);
    ASSIGN_OR_RETURN(auto writer, inner_.Create(path));
    return std::make_unique<Writer>(*this, path, std::move(writer));
  }
  absl::StatusOr<std::unique_ptr<BlobReader>> Open(const std::string& path) override {
    return inner_.Open(path);
  }
  absl::Status CreateDirectory(const std::string& path) override {
    Reach("mkdir", path);
    return inner_.CreateDirectory(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    Reach("fsync", path);
    return inner_.SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return inner_.List(path);
  }
  absl::Status Remove(const std::string& path) override {
    Reach("unlink", path);
    return inner_.Remove(path);
  }
  absl::Status RemoveTree(const std::string& path) override {
    Reach("remove", path);
    return inner_.RemoveTree(path);
  }

 private:
  class Writer final : public BlobWriter {
   public:
    Writer(KillingBlobStore& store, std::string path, std::unique_ptr<BlobWriter> inner)
        : store_(store), path_(std::move(path)), inner_(std::move(inner)) {}
    // Killed in the middle of the bytes.
    absl::Status Append(std::span<const std::byte> bytes) override {
      RETURN_IF_ERROR(inner_->Append(bytes.first(bytes.size() / 2)));
      store_.Reach("write", path_);
      return inner_->Append(bytes.subspan(bytes.size() / 2));
    }
    absl::Status Sync() override {
      store_.Reach("fsync", path_);
      return inner_->Sync();
    }
    absl::Status Publish() override {
      store_.Reach("rename", path_);
      return inner_->Publish();
    }

   private:
    KillingBlobStore& store_;
    const std::string path_;
    const std::unique_ptr<BlobWriter> inner_;
  };

  void Reach(const char* operation, const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string kind = absl::StrCat(operation, " ", path.substr(path.rfind('/') + 1));
    points_.push_back(absl::StrCat(kind, " #", ++counts_[kind]));
    if (points_.back() == point_) ::kill(::getpid(), SIGKILL);
  }

  BlobStore& inner_;
  const std::string point_;
  std::mutex mutex_;  // guards the two below
  std::map<std::string, int> counts_;
  std::vector<std::string> points_;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_FAKES_KILLING_BLOB_STORE_H_
