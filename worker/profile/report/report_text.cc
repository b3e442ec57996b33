#include "worker/profile/report/report_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fsdp::report {
namespace {

std::size_t CountCharacters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string ThreeDigits(double value) {
  const double magnitude = std::abs(value);
  const int decimals = magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string Padded(const std::string& cell, std::size_t width, bool left) {
  const std::size_t have = CountCharacters(cell);
  const std::string blanks(width > have ? width - have : 0, ' ');
  return left ? cell + blanks : blanks + cell;
}

}  // namespace

std::string TimeText(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  const double magnitude = std::abs(seconds);
  if (magnitude < 0.5e-9) return "0 us";
  if (magnitude >= 0.9995) return absl::StrCat(ThreeDigits(seconds), " s");
  if (magnitude >= 0.9995e-3) return absl::StrCat(ThreeDigits(seconds * 1e3), " ms");
  return absl::StrCat(ThreeDigits(seconds * 1e6), " us");
}

std::string RateText(double value) {
  static constexpr std::array<const char*, 7> kPrefixes = {"", "k", "M", "G", "T", "P", "E"};
  if (!std::isfinite(value) || value == 0) return "-";
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return absl::StrCat(ThreeDigits(value), prefix == 0 ? "" : " ", kPrefixes[prefix]);
}

std::string PercentText(double ratio) {
  return std::isfinite(ratio) ? absl::StrFormat("%.1f %%", ratio * 100) : "-";
}

std::string BytesText(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1023.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, bytes, kUnits[unit]);
}

std::string CallsText(double calls) {
  return std::abs(calls - std::round(calls)) < 1e-6 ? absl::StrFormat("%.0f", calls)
                                                    : absl::StrFormat("%.1f", calls);
}

std::string BoundText(v1::Bound bound) {
  switch (bound) {
    case v1::BOUND_MEMORY:
      return "memory";
    case v1::BOUND_COMPUTE:
      return "compute";
    case v1::BOUND_COMMUNICATION:
      return "communication";
    case v1::BOUND_LATENCY:
      return "latency";
    case v1::BOUND_BALANCED:
      return "balanced";
    default:
      return "-";
  }
}

std::string SourceText(v1::MetricSource source) {
  switch (source) {
    case v1::METRIC_SOURCE_ANALYTIC:
      return "analytic";
    case v1::METRIC_SOURCE_GPM:
      return "gpm";
    case v1::METRIC_SOURCE_PM_SAMPLING:
      return "pm_sampling";
    default:
      return "-";
  }
}

std::string TimingText(v1::ProfileTiming timing) {
  switch (timing) {
    case v1::PROFILE_TIMING_HOST:
      return "clock reads around each launch on the CPU";
    case v1::PROFILE_TIMING_EVENTS:
      return "device events around each launch, without graphs";
    case v1::PROFILE_TIMING_ACTIVITY:
      return "the driver's records of each kernel";
    default:
      return "unknown";
  }
}

std::string TrackText(v1::ProfileTrack track) {
  switch (track) {
    case v1::PROFILE_TRACK_HOST:
      return "host";
    case v1::PROFILE_TRACK_COMPUTE:
      return "compute";
    case v1::PROFILE_TRACK_GATHER:
      return "gather";
    case v1::PROFILE_TRACK_SCATTER:
      return "scatter";
    case v1::PROFILE_TRACK_COPY:
      return "copy";
    case v1::PROFILE_TRACK_PHASE:
      return "phases";
    default:
      return "other";
  }
}

const std::string& StringAt(const v1::RankProfile& rank, std::uint32_t index) {
  static const auto& empty = *new std::string;
  return index < static_cast<std::uint32_t>(rank.strings_size())
             ? rank.strings(static_cast<int>(index))
             : empty;
}

std::string AlignedTable(const std::vector<TextColumn>& columns, const TextRows& rows) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    widths.push_back(CountCharacters(columns[i].title));
    for (const auto& row : rows) widths[i] = std::max(widths[i], CountCharacters(row[i]));
  }
  std::string text;
  const auto append = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? "" : "  ",
                      Padded(cell_of(i), widths[i], !columns[i].is_number));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  };
  append([&](std::size_t i) { return columns[i].title; });
  for (const auto& row : rows) append([&](std::size_t i) { return row[i]; });
  return text;
}

std::string Shortened(std::string_view text, std::size_t width) {
  std::string clean = CleanText(text);
  if (CountCharacters(clean) <= width) return clean;
  std::size_t bytes = 0;
  for (std::size_t count = 0; count + 1 < width; ++count) {
    bytes += SequenceLength(std::string_view(clean).substr(bytes));
  }
  return clean.substr(0, bytes) + "…";
}

}  // namespace fsdp::report
