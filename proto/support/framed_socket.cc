#include "proto/support/framed_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/message_lite.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr std::size_t kPrefixBytes = 4;

std::uint32_t DecodeLength(const char* bytes) {
  const auto* b = reinterpret_cast<const unsigned char*>(bytes);
  return b[0] | (b[1] << 8) | (b[2] << 16) | (static_cast<std::uint32_t>(b[3]) << 24);
}

absl::Status TooLong(std::size_t num_bytes) {
  return absl::ResourceExhaustedError(absl::StrFormat(
      "a frame of %d bytes exceeds the limit of %d bytes", num_bytes, kMaxFrameBytes));
}

// Waits until `fd` is ready for `events` or in error.
//   DEADLINE_EXCEEDED  `timeout` passed
absl::Status WaitFor(int fd, short events, absl::Duration timeout) {
  pollfd entry{fd, events, 0};
  const int timeout_ms =
      timeout == absl::InfiniteDuration()
          ? -1
          : static_cast<int>(std::min<std::int64_t>(absl::ToInt64Milliseconds(timeout),
                                                    std::numeric_limits<int>::max()));
  while (true) {
    const int ready = ::poll(&entry, 1, timeout_ms);
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) return absl::DeadlineExceededError("the peer takes no bytes");
    if (errno != EINTR) return ErrnoToStatus(errno, "poll");
  }
}

}  // namespace

absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message) {
  const std::size_t num_bytes = message.ByteSizeLong();
  if (num_bytes > kMaxFrameBytes) return TooLong(num_bytes);
  std::string frame;
  frame.reserve(kPrefixBytes + num_bytes);
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    frame.push_back(static_cast<char>((num_bytes >> (8 * i)) & 0xff));
  }
  if (!message.AppendToString(&frame)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot serialize a ", message.GetTypeName(), " message"));
  }
  return frame;
}

absl::StatusOr<std::optional<std::string>> FrameDecoder::Next() {
  const std::size_t available = num_pending_bytes();
  if (available < kPrefixBytes) return std::optional<std::string>();
  const std::size_t num_bytes = DecodeLength(buffer_.data() + begin_);
  if (num_bytes > kMaxFrameBytes) return TooLong(num_bytes);
  if (available < kPrefixBytes + num_bytes) return std::optional<std::string>();
  std::optional<std::string> payload = buffer_.substr(begin_ + kPrefixBytes, num_bytes);
  begin_ += kPrefixBytes + num_bytes;
  // Moving the rest down only now and then keeps a burst of small frames linear.
  if (begin_ == buffer_.size() || begin_ > (std::size_t{1} << 16)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return payload;
}

absl::Status ParsePayload(std::string_view payload, google::protobuf::MessageLite* message) {
  if (message->ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrFormat("%d bytes are no %s message", payload.size(), message->GetTypeName()));
}

FramedSocket::FramedSocket(int fd, Options options) : fd_(fd), options_(options) {}

FramedSocket::~FramedSocket() { ::close(fd_); }

void FramedSocket::Shutdown() { ::shutdown(fd_, SHUT_RDWR); }

absl::Status FramedSocket::Write(const google::protobuf::MessageLite& message) {
  ASSIGN_OR_RETURN(const std::string frame, EncodeFrame(message));
  const std::lock_guard<std::mutex> lock(write_mutex_);
  if (write_broken_) {
    return absl::FailedPreconditionError("an earlier write ended inside a frame");
  }
  return SendAll(frame);
}

absl::Status FramedSocket::SendAll(std::string_view bytes) {
  const std::size_t total = bytes.size();
  const auto fail = [&](absl::Status status) {
    write_broken_ = bytes.size() < total || absl::IsDeadlineExceeded(status);
    return status;
  };
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const absl::Status ready = WaitFor(fd_, POLLOUT, options_.write_timeout);
      if (!ready.ok()) return fail(ready);
    } else if (errno != EINTR) {
      return fail(ErrnoToStatus(errno, "send"));
    }
  }
  return absl::OkStatus();
}

absl::Status FramedSocket::Read(google::protobuf::MessageLite* message) {
  char prefix[kPrefixBytes];
  RETURN_IF_ERROR(ReadExactly(prefix, kPrefixBytes, /*at_boundary=*/true));
  const std::size_t num_bytes = DecodeLength(prefix);
  if (num_bytes > kMaxFrameBytes) return TooLong(num_bytes);
  std::string payload(num_bytes, '\0');
  RETURN_IF_ERROR(ReadExactly(payload.data(), num_bytes, /*at_boundary=*/false));
  return ParsePayload(payload, message);
}

absl::Status FramedSocket::ReadExactly(char* to, std::size_t num_bytes, bool at_boundary) {
  std::size_t done = 0;
  while (done < num_bytes) {
    const ssize_t got = ::recv(fd_, to + done, num_bytes - done, 0);
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      if (at_boundary && done == 0) return absl::OutOfRangeError("the peer closed the link");
      return absl::DataLossError(absl::StrFormat(
          "the peer closed the link inside a message, %d of %d bytes read", done, num_bytes));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(WaitFor(fd_, POLLIN, absl::InfiniteDuration()));
    } else if (errno != EINTR) {
      return ErrnoToStatus(errno, "recv");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::pair<int, int>> MakeSocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoToStatus(errno, "socketpair");
  }
  return std::pair<int, int>(fds[0], fds[1]);
}

}  // namespace fsdp
