#ifndef FSDPCTL_WORKER_DATA_BYTE_STREAM_H_
#define FSDPCTL_WORKER_DATA_BYTE_STREAM_H_

// One or more files, without their headers, as one read-only run of bytes. Read with pread, not
// mapped: a file that is cut while training runs gives an error that names it, where a mapping
// would end the process.
//
// Thread rule: thread-safe once its headers are skipped.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

class ByteStream {
 public:
  struct File {
    std::string path;
    int fd = -1;
    std::int64_t header_bytes = 0;  // skipped
    std::int64_t begin = 0;         // in the stream
    std::int64_t size_bytes = 0;    // in the stream
    std::int64_t modified_ns = 0;
  };

  // `path` is what the job calls them.
  //   NOT_FOUND, PERMISSION_DENIED  as the system says
  //   INVALID_ARGUMENT   not a regular file
  static absl::StatusOr<std::shared_ptr<ByteStream>> Open(const std::string& path,
                                                          const std::vector<std::string>& files);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Leaves out the first bytes of each file; once, before the stream is shared. A file has at least
  // as many.
  void SkipHeaders(std::span<const std::int64_t> header_bytes);

  [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<File>& files() const { return files_; }

  // Fills `bytes` from `offset`; the range lies in the stream.
  //   DATA_LOSS  a file shrank, or another read error; names file and offset
  absl::Status ReadAt(std::int64_t offset, std::span<std::byte> bytes) const;
  //   DATA_LOSS  a file's size or time of change differs from when it was opened
  [[nodiscard]] absl::Status CheckUnchanged() const;
  // "train.bin, byte 512": the place in its file of a byte of the stream.
  [[nodiscard]] std::string Describe(std::int64_t offset) const;

 private:
  ByteStream() = default;
  absl::Status AddFile(const std::string& path);
  [[nodiscard]] const File& FileAt(std::int64_t offset) const;

  std::string path_;
  std::vector<File> files_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_DATA_BYTE_STREAM_H_
