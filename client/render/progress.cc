#include "client/render/progress.h"

#include <algorithm>
#include <cstddef>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/exit_code.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

std::string Bar(const v1::Progress& progress, int width) {
  if (progress.total_steps() <= 0 || width < 8) return "";
  const double fraction = std::clamp(
      static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps()), 0.0, 1.0);
  const int full = static_cast<int>(fraction * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "━" : "╌";
  return bar;
}

std::string StateText(const v1::Job& job) {
  std::string text = EnumText(job.state());
  if (job.state() == v1::JOB_STATE_QUEUED && job.queue_position() > 0) {
    absl::StrAppend(&text, " (", job.queue_position(), " in line)");
  }
  if (job.state() == v1::JOB_STATE_RECOVERING && job.cause() != v1::FAILURE_CAUSE_UNSPECIFIED) {
    absl::StrAppend(&text, " from ", EnumText(job.cause()));
  }
  return text;
}

}  // namespace

std::string ProgressText(const v1::Progress& progress) {
  std::string text = absl::StrCat("step ", progress.step());
  if (progress.step() > progress.total_steps() && progress.total_steps() > 0) {
    absl::StrAppend(&text, " (limit ", progress.total_steps(), ")");
  } else if (progress.total_steps() > 0) {
    absl::StrAppend(&text, "/", progress.total_steps());
  }
  if (progress.step() > 0) absl::StrAppend(&text, "  loss ", LossText(progress.loss()));
  if (progress.has_validation_loss()) {
    absl::StrAppend(&text, "  val ", LossText(progress.validation_loss()));
  }
  if (progress.tokens_per_second() > 0) {
    absl::StrAppend(&text, "  ", ShortNumber(progress.tokens_per_second()), " tok/s");
  }
  if (progress.mfu() > 0) absl::StrAppendFormat(&text, "  MFU %.1f%%", progress.mfu() * 100);
  if (progress.eta_seconds() > 0) {
    absl::StrAppend(&text, "  ETA ", SecondsText(progress.eta_seconds()));
  }
  return text;
}

void ProgressLine::Show(const v1::Job& job) {
  const bool state_changed = job.state() != state_ || job.epoch() != epoch_;
  // The reason of a waiting job tells what it waits for; a running one's is old news.
  const bool reason_changed = job.reason() != reason_ && job.state() != v1::JOB_STATE_RUNNING;
  if (state_changed || reason_changed) {
    std::string text = absl::StrCat(options_.style.State(job.state()),
                                    StateText(job).substr(EnumText(job.state()).size()));
    if (!job.reason().empty()) absl::StrAppend(&text, "  ", Printable(job.reason()));
    Note(text);
  }
  state_ = job.state();
  reason_ = job.reason();
  epoch_ = job.epoch();
  if (!job.has_progress()) return;
  if (options_.terminal) {
    ShowOnTerminal(job);
  } else {
    ShowPlain(job);
  }
}

void ProgressLine::ShowPlain(const v1::Job& job) {
  const MonotonicTime now = clock_.Now();
  const bool due = step_ < 0 || now - last_plain_ >= options_.plain_interval;
  if (job.progress().step() == step_ || (!due && !IsFinished(job.state()))) return;
  step_ = job.progress().step();
  last_plain_ = now;
  out_ << ProgressText(job.progress()) << "\n" << std::flush;
}

void ProgressLine::ShowOnTerminal(const v1::Job& job) {
  const std::string text = ProgressText(job.progress());
  const int room = options_.columns - 1 - DisplayWidth(text) - 2;
  const std::string bar = Bar(job.progress(), std::min(room, 30));
  // A line longer than the terminal could not be rewritten.
  const std::string shown =
      bar.empty() ? text.substr(0, static_cast<std::size_t>(std::max(options_.columns - 1, 10)))
                  : absl::StrCat(options_.style.Cyan(bar), "  ", text);
  out_ << "\r\x1b[K" << shown << std::flush;
  line_open_ = true;
}

void ProgressLine::Note(const std::string& text) {
  if (line_open_) out_ << "\r\x1b[K";
  line_open_ = false;
  out_ << text << "\n" << std::flush;
}

void ProgressLine::End() {
  if (line_open_) out_ << "\n" << std::flush;
  line_open_ = false;
}

}  // namespace fsdp
