#ifndef FSDPCTL_WORKER_DAEMON_LINE_SPLITTER_H_
#define FSDPCTL_WORKER_DAEMON_LINE_SPLITTER_H_

// Cuts a trainer's output into log lines.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace fsdp::daemon {

// A line longer than this is split.
inline constexpr std::size_t kMaxLineBytes = std::size_t{16} << 10;

// Not thread-safe.
class LineSplitter {
 public:
  // `text`: without its newline, valid UTF-8 (bytes that are not become '?'), at most `max_bytes`.
  // `continued`: the line goes on in the next call.
  using Sink = std::function<void(std::string text, bool continued)>;

  explicit LineSplitter(Sink sink, std::size_t max_bytes = kMaxLineBytes)
      : sink_(std::move(sink)), max_bytes_(max_bytes) {}

  void Append(std::string_view bytes);
  // The last line may lack its newline.
  void Finish();

 private:
  void EmitFullPieces();

  Sink sink_;
  const std::size_t max_bytes_;
  std::string line_;
};

// `text` with every byte that is not part of valid UTF-8 replaced by '?'; the length stays.
std::string ToValidUtf8(std::string text);

}  // namespace fsdp::daemon

#endif  // FSDPCTL_WORKER_DAEMON_LINE_SPLITTER_H_
