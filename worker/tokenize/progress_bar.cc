#include "worker/tokenize/progress_bar.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace fsdp {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kMaxBarColumns = 24;

std::string SizesText(std::int64_t done, std::int64_t total) {
  double unit = 1e6;
  const char* name = "MB";
  if (total >= 10'000'000'000) {
    unit = 1e9;
    name = "GB";
  }
  return absl::StrFormat("%.1f of %.1f %s", static_cast<double>(done) / unit,
                         static_cast<double>(total) / unit, name);
}

}  // namespace

std::string ProgressBarText(const TokenizeProgress& progress, double bytes_per_second,
                            int columns) {
  const double fraction = progress.total_bytes > 0
                              ? std::clamp(static_cast<double>(progress.done_bytes) /
                                               static_cast<double>(progress.total_bytes),
                                           0.0, 1.0)
                              : 1.0;
  std::string text = absl::StrFormat("%3.0f%%  %s", std::floor(fraction * 100),
                                     SizesText(progress.done_bytes, progress.total_bytes));
  if (bytes_per_second > 0) absl::StrAppendFormat(&text, "  %.1f MB/s", bytes_per_second / 1e6);
  absl::StrAppend(&text, "  ", progress.shards, progress.shards == 1 ? " shard" : " shards");
  const auto left = static_cast<double>(progress.total_bytes - progress.done_bytes);
  if (bytes_per_second > 0 && left > 0) {
    absl::StrAppend(&text, "  ETA ",
                    absl::FormatDuration(absl::Seconds(std::ceil(left / bytes_per_second))));
  }
  const int room = columns - 1 - static_cast<int>(text.size()) - 2;
  std::string bar;
  const int width = std::min(room, kMaxBarColumns);
  const int full = static_cast<int>(fraction * width);
  for (int i = 0; i < width; ++i) bar += i < full ? "━" : "╌";
  return width < 8 ? text : absl::StrCat(bar, "  ", text);
}

ProgressBar::ProgressBar(std::ostream* out, bool terminal, int columns,
                         std::function<double()> seconds)
    : out_(*out),
      terminal_(terminal),
      columns_(columns),
      seconds_(std::move(seconds)),
      began_(seconds_()) {}

void ProgressBar::Show(const TokenizeProgress& progress) {
  if (first_bytes_ < 0) {
    // The first block is in already; its time is too short to tell a rate.
    first_bytes_ = progress.done_bytes;
    began_ = seconds_();
    shards_ = progress.shards;
  }
  const double now = seconds_();
  const bool is_last = progress.done_bytes == progress.total_bytes;
  const double rate =
      now > began_ ? static_cast<double>(progress.done_bytes - first_bytes_) / (now - began_) : 0;
  if (terminal_ && (is_last || now - shown_ >= kRedrawSeconds)) {
    out_ << "\r\x1b[K" << ProgressBarText(progress, rate, columns_) << std::flush;
    shown_ = now;
    line_open_ = true;
  } else if (!terminal_ && progress.shards > shards_) {
    // Without a width there is no bar.
    out_ << ProgressBarText(progress, rate, 0) << "\n" << std::flush;
  }
  shards_ = progress.shards;
}

void ProgressBar::End() {
  if (line_open_) out_ << "\n" << std::flush;
  line_open_ = false;
}

}  // namespace fsdp
