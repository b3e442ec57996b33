#ifndef FSDPCTL_PROTO_SUPPORT_FRAMED_SOCKET_H_
#define FSDPCTL_PROTO_SUPPORT_FRAMED_SOCKET_H_

// Protobuf messages over a connected stream socket: a 4-byte little-endian length, then that many
// bytes. The link between the worker daemon and its trainer, and between the daemons of one host.
// No gRPC here: trainers link this.

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace fsdp {

// The largest payload of a frame. A longer one is refused on both sides.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{16} << 20;

// `message` as one frame, length included.
//   RESOURCE_EXHAUSTED  longer than kMaxFrameBytes
//   INVALID_ARGUMENT    cannot be serialized (a string that is not UTF-8 is only logged by
//   protobuf)
absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message);

// Cuts a byte stream into frames, for readers that poll. Not thread-safe.
class FrameDecoder {
 public:
  void Append(std::string_view bytes) { buffer_.append(bytes); }

  // The next whole payload; nullopt: more bytes are needed.
  //   RESOURCE_EXHAUSTED  the length prefix exceeds kMaxFrameBytes: not our protocol, or corrupt.
  //   The
  //                       decoder stays in this state.
  absl::StatusOr<std::optional<std::string>> Next();

  // Bytes of an unfinished frame.
  [[nodiscard]] std::size_t num_pending_bytes() const { return buffer_.size() - begin_; }

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
};

// Owns the descriptor, which may be blocking or not: both calls wait as long as they need.
// Thread-safe: Write by any number of threads, Read by one at a time; Shutdown by anybody.
class FramedSocket {
 public:
  struct Options {
    // A peer that takes no bytes for this long counts as gone (it may be stopped, its socket buffer
    // full). Infinite: wait for ever.
    absl::Duration write_timeout = absl::InfiniteDuration();
  };

  // Takes `fd`, a connected stream socket, and closes it in the destructor.
  explicit FramedSocket(int fd) : FramedSocket(fd, Options{}) {}
  FramedSocket(int fd, Options options);
  ~FramedSocket();
  FramedSocket(const FramedSocket&) = delete;
  FramedSocket& operator=(const FramedSocket&) = delete;

  // Frames of concurrent writers never mix. SIGPIPE is not raised.
  //   RESOURCE_EXHAUSTED   the message is longer than kMaxFrameBytes; the link stays usable
  //   UNAVAILABLE          the peer has closed, or Shutdown was called
  //   DEADLINE_EXCEEDED    write_timeout passed; the link is unusable from now on
  //   FAILED_PRECONDITION  an earlier write ended in the middle of a frame
  absl::Status Write(const google::protobuf::MessageLite& message);

  // Waits for the next message and parses it into `message`.
  //   OUT_OF_RANGE        the peer closed between two messages: the regular end
  //   DATA_LOSS           it closed inside a message, or the bytes are no message of this type
  //   RESOURCE_EXHAUSTED  length prefix above kMaxFrameBytes
  //   UNAVAILABLE         connection reset
  absl::Status Read(google::protobuf::MessageLite* message);

  // Ends both directions: a waiting Read returns OUT_OF_RANGE, the peer sees end of file.
  void Shutdown();

  // For poll(2). Readers that poll take the bytes with recv(2) and a FrameDecoder instead of Read.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  absl::Status ReadExactly(char* to, std::size_t num_bytes, bool at_boundary);
  absl::Status SendAll(std::string_view bytes);

  const int fd_;
  const Options options_;
  std::mutex write_mutex_;
  // Guarded by write_mutex_: part of a frame went out and the rest never will.
  bool write_broken_ = false;
};

// Two connected descriptors, close-on-exec both.
//   RESOURCE_EXHAUSTED  no descriptors left
absl::StatusOr<std::pair<int, int>> MakeSocketPair();

// Parses a payload that FrameDecoder gave.
//   DATA_LOSS  the bytes are no message of this type
absl::Status ParsePayload(std::string_view payload, google::protobuf::MessageLite* message);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_FRAMED_SOCKET_H_
