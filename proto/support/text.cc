#include "proto/support/text.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp {

std::string EnumText(const google::protobuf::EnumDescriptor& type, int value) {
  const auto* known = type.FindValueByNumber(value);
  if (known == nullptr) return absl::StrCat(value);
  if (value == 0) return "-";
  // The prefix is what the zero value has before UNSPECIFIED.
  static constexpr std::size_t kUnspecified = sizeof("UNSPECIFIED") - 1;
  const std::size_t prefix = type.FindValueByNumber(0)->name().size() - kUnspecified;
  return known->name().substr(prefix);
}

std::string BytesText(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (std::abs(bytes) < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (std::abs(value) < 100) return absl::StrFormat("%.1f %s", value, kUnits[unit]);
  return absl::StrFormat("%.0f %s", value, kUnits[unit]);
}

std::string CountText(std::int64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool group = i > (count < 0 ? 1U : 0U) && (digits.size() - i) % 3 == 0;
    if (group) text += ',';
    text += digits[i];
  }
  return text;
}

std::string ShortNumber(double value) {
  static constexpr std::array<const char*, 7> kSuffixes = {"", "K", "M", "G", "T", "P", "E"};
  std::size_t suffix = 0;
  while (std::abs(value) >= 999.5 && suffix + 1 < kSuffixes.size()) {
    value /= 1000;
    ++suffix;
  }
  const double magnitude = std::abs(value);
  const bool whole = magnitude >= 99.95 || (suffix == 0 && value == std::floor(value));
  if (whole) return absl::StrFormat("%.0f%s", value, kSuffixes[suffix]);
  if (magnitude >= 9.995) return absl::StrFormat("%.1f%s", value, kSuffixes[suffix]);
  return absl::StrFormat("%.2f%s", value, kSuffixes[suffix]);
}

std::string DurationText(absl::Duration duration) {
  if (duration < absl::ZeroDuration()) return absl::StrCat("-", DurationText(-duration));
  if (duration == absl::InfiniteDuration()) return "-";
  if (duration < absl::Seconds(1)) {
    return absl::StrCat(absl::ToInt64Milliseconds(duration), "ms");
  }
  const std::int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds / 3600 % 24);
}

std::string SecondsText(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  return DurationText(absl::Seconds(seconds));
}

std::string StepSecondsText(double seconds) {
  if (!(seconds >= 0 && seconds < 99.95)) return SecondsText(seconds);
  const bool short_one = seconds < 0.9995;
  const double value = short_one ? seconds * 1e3 : seconds;
  const int decimals = value < 0.9995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f%s", decimals, value, short_one ? "ms" : "s");
}

double UnsignedNan(double value) { return std::isnan(value) ? std::abs(value) : value; }

std::string LossText(double loss) { return std::isnan(loss) ? "-" : absl::StrFormat("%.4f", loss); }

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return "-";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", ToTime(time), absl::UTCTimeZone());
}

std::string AgeText(const google::protobuf::Timestamp& time, absl::Time now) {
  if (time.seconds() == 0 && time.nanos() == 0) return "-";
  const absl::Duration age = now - ToTime(time);
  // Clocks of two machines differ a little.
  return age < absl::Seconds(1) ? "0s" : DurationText(age);
}

std::string IdOf(const std::string& resource_name) {
  const std::size_t slash = resource_name.rfind('/');
  return slash == std::string::npos ? resource_name : resource_name.substr(slash + 1);
}

std::string Printable(const std::string& text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\t') || byte == 0x7f;
    result.push_back(control ? '?' : c);
  }
  return result;
}

int DisplayWidth(const std::string& text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x1b) {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    // Continuation bytes of UTF-8 take no column.
    if ((byte & 0xc0) != 0x80) ++width;
  }
  return width;
}

}  // namespace fsdp
