#ifndef FSDPCTL_WORKER_CHECKPOINT_BLOB_STORE_H_
#define FSDPCTL_WORKER_CHECKPOINT_BLOB_STORE_H_

// Where checkpoints live: named byte strings that appear whole or not at all. The posix
// implementation writes "<name>.tmp.<pid>" and renames; the fake in tests/fakes loses whatever was
// not synced.
//
// Thread rule: a store is thread-safe; a reader is (ReadAt is pread); a writer is one thread's.
// Errors: NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk full, quota), ALREADY_EXISTS and
// INTERNAL as the system call said, message "call(path): text"; DATA_LOSS from ReadAt when the blob
// ends before the range does.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

// Destroying a writer that was not published removes what it wrote.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  // The bytes so far survive a crash of the machine (fsync).
  virtual absl::Status Sync() = 0;
  // Makes the blob visible under its name, replacing an older one in one step. Durable only after
  // BlobStore::SyncDirectory of its folder. Nothing may be appended afterwards.
  virtual absl::Status Publish() = 0;
};

class BlobReader {
 public:
  virtual ~BlobReader() = default;
  [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;
  // Fills the whole of `bytes` from `offset`.
  virtual absl::Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) = 0;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;
  virtual absl::StatusOr<std::unique_ptr<BlobWriter>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<BlobReader>> Open(const std::string& path) = 0;
  // With parents; no error when it exists.
  virtual absl::Status CreateDirectory(const std::string& path) = 0;
  // Names published or removed in `path` survive a crash.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Names (not paths) in a folder, sorted; files of unpublished writers are left out.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // One blob. NOT_FOUND when there is none.
  virtual absl::Status Remove(const std::string& path) = 0;
  // A folder and everything in it, unpublished files too; no error when it does not exist.
  virtual absl::Status RemoveTree(const std::string& path) = 0;

  // The local file system; never destroyed.
  static BlobStore& Posix();
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_CHECKPOINT_BLOB_STORE_H_
