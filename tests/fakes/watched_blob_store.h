#ifndef FSDPCTL_TESTS_FAKES_WATCHED_BLOB_STORE_H_
#define FSDPCTL_TESTS_FAKES_WATCHED_BLOB_STORE_H_

// A store whose reads are seen, and may be changed on their way: what was read of which file.
// `on_read` is called on the reader's thread, after the bytes were read. All else is the inner
// store's.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/support/status.h"
#include "worker/checkpoint/blob_store.h"

namespace fsdp {

class WatchedBlobStore final : public BlobStore {
 public:
  using OnRead = std::function<void(const std::string& path, std::uint64_t offset,
                                    std::span<std::byte> bytes)>;

  // `inner` outlives it and its readers, as it does.
  WatchedBlobStore(BlobStore& inner, OnRead on_read)
      : inner_(inner), on_read_(std::move(on_read)) {}

  absl::StatusOr<std::unique_ptr<BlobReader>> Open(const std::string& path) override {
    ASSIGN_OR_RETURN(auto reader, inner_.Open(path));
    return std::make_unique<Reader>(*this, path, std::move(reader));
  }
  absl::StatusOr<std::unique_ptr<BlobWriter>> Create(const std::string& path) override {
    return inner_.Create(path);
  }
  absl::Status CreateDirectory(const std::string& path) override {
    return inner_.CreateDirectory(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return inner_.SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return inner_.List(path);
  }
  absl::Status Remove(const std::string& path) override { return inner_.Remove(path); }
  absl::Status RemoveTree(const std::string& path) override { return inner_.RemoveTree(path); }

 private:
  class Reader final : public BlobReader {
   public:
    Reader(WatchedBlobStore& store, std::string path, std::unique_ptr<BlobReader> inner)
        : store_(store), path_(std::move(path)), inner_(std::move(inner)) {}
    [[nodiscard]] std::uint64_t size_bytes() const override { return inner_->size_bytes(); }
    absl::Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) override {
      RETURN_IF_ERROR(inner_->ReadAt(offset, bytes));
      store_.on_read_(path_, offset, bytes);
      return absl::OkStatus();
    }

   private:
    WatchedBlobStore& store_;
    const std::string path_;
    const std::unique_ptr<BlobReader> inner_;
  };

  BlobStore& inner_;
  const OnRead on_read_;
};

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_FAKES_WATCHED_BLOB_STORE_H_
