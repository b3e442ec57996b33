#include "coordinator/security/call_limiter.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/errors/api_error.h"

namespace fsdp::coordinator {
namespace {

// Beyond this those who are idle are forgotten: a full bucket is what a new one is.
constexpr std::size_t kRemembered = 4096;

}  // namespace

std::optional<absl::Duration> TokenBucket::Take(double rate, double burst, MonotonicTime now) {
  if (now > time_) {
    tokens_ = std::min(burst, tokens_ + rate * absl::ToDoubleSeconds(now - time_));
    time_ = now;
  }
  if (tokens_ < 1) return absl::Seconds((1 - tokens_) / rate);
  tokens_ -= 1;
  return std::nullopt;
}

bool TokenBucket::Full(double rate, double burst, MonotonicTime now) const {
  return tokens_ + rate * absl::ToDoubleSeconds(now - time_) >= burst;
}

CallLimiter::Caller& CallLimiter::FindLocked(const std::string& caller, MonotonicTime now) {
  if (const auto found = callers_.find(caller); found != callers_.end()) return found->second;
  if (callers_.size() >= kRemembered) {
    std::erase_if(callers_, [&](const auto& entry) {
      return entry.second.streams == 0 &&
             entry.second.bucket.Full(options_.requests_per_second, options_.burst, now);
    });
  }
  return callers_.emplace(caller, Caller{TokenBucket(options_.burst, now)}).first->second;
}

absl::Status CallLimiter::Request(const std::string& caller) {
  if (options_.requests_per_second <= 0) return absl::OkStatus();
  const MonotonicTime now = clock_.Now();
  std::optional<absl::Duration> wait;
  {
    const std::lock_guard lock(mutex_);
    wait = FindLocked(caller, now).bucket.Take(options_.requests_per_second, options_.burst, now);
  }
  if (!wait) return absl::OkStatus();
  const std::string rate = absl::StrFormat("%g", options_.requests_per_second);
  return WithRetryAfter(
      WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                   caller, " sends more than ", rate, " requests a second: try again in ",
                   absl::FormatDuration(absl::Ceil(*wait, absl::Milliseconds(1))))),
               "RATE_LIMITED", {{"caller", caller}, {"requests_per_second", rate}}),
      *wait);
}

absl::Status CallLimiter::OpenStream(const std::string& caller) {
  if (options_.streams <= 0) return absl::OkStatus();
  const MonotonicTime now = clock_.Now();
  const std::lock_guard lock(mutex_);
  Caller& entry = FindLocked(caller, now);
  if (entry.streams < options_.streams) {
    ++entry.streams;
    return absl::OkStatus();
  }
  return WithRetryAfter(
      WithInfo(absl::ResourceExhaustedError(
                   absl::StrCat(caller, " has ", entry.streams,
                                " streams open, which is the limit: close some, or raise the "
                                "coordinator's --max-streams-per-caller")),
               "STREAM_LIMIT", {{"caller", caller}, {"streams", absl::StrCat(options_.streams)}}),
      absl::Seconds(1));
}

void CallLimiter::CloseStream(const std::string& caller) {
  if (options_.streams <= 0) return;
  const std::lock_guard lock(mutex_);
  if (const auto found = callers_.find(caller); found != callers_.end()) --found->second.streams;
}

absl::Status CallLimiter::CheckSpecBytes(std::int64_t bytes) const {
  if (options_.spec_bytes <= 0 || bytes <= options_.spec_bytes) return absl::OkStatus();
  return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                      "the job spec has ", bytes, " bytes, the limit is ", options_.spec_bytes,
                      ": a spec names files, it does not hold them")),
                  "SPEC_TOO_LARGE",
                  {{"bytes", absl::StrCat(bytes)}, {"limit", absl::StrCat(options_.spec_bytes)}});
}

std::size_t CallLimiter::num_callers() const {
  const std::lock_guard lock(mutex_);
  return callers_.size();
}

}  // namespace fsdp::coordinator
