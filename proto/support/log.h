#ifndef FSDPCTL_PROTO_SUPPORT_LOG_H_
#define FSDPCTL_PROTO_SUPPORT_LOG_H_

// Logging to stderr, one line a message: "I 2026-01-02T03:04:05.678Z file.cc:12] text".
// Thread-safe; a line is written with one write(2). Also the CHECK of "we are wrong": it logs and
// aborts.

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below this level are dropped. Default kInfo.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* file, int line, std::string_view text);
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view text);

}  // namespace fsdp

#define FSDP_LOG_AT_(level, ...)                                                \
  do {                                                                          \
    if (::fsdp::LogEnabled(level))                                              \
      ::fsdp::LogLine(level, __FILE__, __LINE__, absl::StrFormat(__VA_ARGS__)); \
  } while (false)

// Arguments as absl::StrFormat's.
#define LOG_DEBUG(...) FSDP_LOG_AT_(::fsdp::LogLevel::kDebug, __VA_ARGS__)
#define LOG_INFO(...) FSDP_LOG_AT_(::fsdp::LogLevel::kInfo, __VA_ARGS__)
#define LOG_WARNING(...) FSDP_LOG_AT_(::fsdp::LogLevel::kWarning, __VA_ARGS__)
#define LOG_ERROR(...) FSDP_LOG_AT_(::fsdp::LogLevel::kError, __VA_ARGS__)

// Aborts with the condition and the text when `condition` is false. Extra arguments as
// absl::StrCat's.
#define FSDP_CHECK(condition, ...)                                                    \
  do {                                                                                \
    if (!(condition)) [[unlikely]]                                                    \
      ::fsdp::CheckFailed(__FILE__, __LINE__, #condition, absl::StrCat(__VA_ARGS__)); \
  } while (false)

#endif  // FSDPCTL_PROTO_SUPPORT_LOG_H_
