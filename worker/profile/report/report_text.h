#ifndef FSDPCTL_WORKER_PROFILE_REPORT_REPORT_TEXT_H_
#define FSDPCTL_WORKER_PROFILE_REPORT_REPORT_TEXT_H_

// Numbers and names as the pictures of a profile have them. Names come from users (jobs, hosts,
// notes): what is written into HTML, SVG or JSON goes through one of markup.h's escapes.
// Thread-safe (no state).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/v1/job_record.pb.h"
#include "fsdp/v1/profile.pb.h"
#include "proto/support/markup.h"

namespace fsdp::report {

using fsdp::CleanText;
using fsdp::HtmlEscaped;
using fsdp::JsonQuoted;

// Three digits and a unit: "1.23 s", "45.6 ms", "789 us", "0 us"; with a sign where it is negative.
std::string TimeText(double seconds);
// Decimal prefixes: "312 T", "1.23 G"; "-" for zero, which stands for not counted.
std::string RateText(double value);
// "12.3 %"; "-" where the value is not finite.
std::string PercentText(double ratio);
// "1.5 GiB".
std::string BytesText(double bytes);
// "24", "23.8": calls of a step.
std::string CallsText(double calls);

// "memory", "compute", ...; "-" when unspecified.
std::string BoundText(v1::Bound bound);
std::string SourceText(v1::MetricSource source);
// "the driver's records of each kernel", ...
std::string TimingText(v1::ProfileTiming timing);
// "compute", "gather", ...
std::string TrackText(v1::ProfileTrack track);
// strings[index]; empty where there is none.
const std::string& StringAt(const v1::RankProfile& rank, std::uint32_t index);

struct TextColumn {
  std::string title;
  bool is_number = true;
};
using TextRows = std::vector<std::vector<std::string>>;
// `cells_of` the first `limit` of `items`.
template <typename Items, typename CellsOf>
TextRows RowsOf(const Items& items, std::size_t limit, const CellsOf& cells_of) {
  TextRows rows;
  rows.reserve(std::min(limit, items.size()));
  for (const auto& item : items) {
    if (rows.size() == limit) break;
    rows.push_back(cells_of(item));
  }
  return rows;
}
inline constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();
// Rows of as many cells as there are columns, aligned; every cell but the last ends with two
// blanks. Characters are taken as one column wide.
std::string AlignedTable(const std::vector<TextColumn>& columns, const TextRows& rows);
// The text's first `width` characters; what is cut ends with "…".
std::string Shortened(std::string_view text, std::size_t width);

}  // namespace fsdp::report

#endif  // FSDPCTL_WORKER_PROFILE_REPORT_REPORT_TEXT_H_
