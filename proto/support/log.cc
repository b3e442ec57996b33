#include "proto/support/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

const char* BaseName(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;  // Nowhere left to complain.
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

bool LogEnabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void LogLine(LogLevel level, const char* file, int line, std::string_view text) {
  const char letter = "DIWE"[static_cast<int>(level)];
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  WriteAll(absl::StrFormat("%c %s %s:%d] %s\n", letter, time, BaseName(file), line, ToAbsl(text)));
}

void CheckFailed(const char* file, int line, const char* condition, std::string_view text) {
  LogLine(LogLevel::kError, file, line,
          absl::StrFormat("CHECK failed: %s %s", condition, ToAbsl(text)));
  std::abort();
}

}  // namespace fsdp
