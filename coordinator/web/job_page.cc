#include "coordinator/web/job_page.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/web/overview.h"
#include "coordinator/web/page_pictures.h"
#include "proto/support/job_text.h"
#include "proto/support/text.h"

namespace fsdp::coordinator {
namespace {

std::string PercentText(double ratio) { return absl::StrFormat("%.0f %%", ratio * 100); }

std::string StepFact(const v1::Progress& progress) {
  if (progress.step() == 0 && progress.total_steps() == 0) return "";
  return progress.total_steps() > 0
             ? absl::StrCat(CountText(progress.step()), " of ", CountText(progress.total_steps()))
             : CountText(progress.step());
}

std::string CheckpointFact(const v1::CheckpointInfo& checkpoint) {
  if (checkpoint.path().empty()) return "";
  return absl::StrCat(checkpoint.path(), " (step ", checkpoint.step(), ", ",
                      BytesText(checkpoint.size_bytes()), ")");
}

std::string RestartsFact(const v1::RestartCounts& counts) {
  if (counts.infrastructure() + counts.user() + counts.free() == 0) return "";
  return absl::StrCat(counts.infrastructure(), " infrastructure, ", counts.user(), " user, ",
                      counts.free(), " free");
}

Html Facts(const v1::Job& job, absl::Time now) {
  const v1::Progress& progress = job.progress();
  const bool runs = job.state() == v1::JOB_STATE_RUNNING;
  const auto text = [](const std::string& value) { return Html().Text(value); };
  const auto when = [](bool shown, const std::string& value) { return shown ? value : ""; };
  return FactList(
      {{"Step", text(StepFact(progress))},
       {"Loss", text(when(progress.step() > 0, LossText(progress.loss())))},
       {"Validation loss",
        text(when(progress.has_validation_loss(), LossText(progress.validation_loss())))},
       {"Tokens per second", text(when(runs && progress.tokens_per_second() > 0,
                                       ShortNumber(progress.tokens_per_second())))},
       {"MFU", text(when(progress.mfu() > 0, absl::StrFormat("%.1f %%", progress.mfu() * 100)))},
       {"ETA", text(when(runs && progress.eta_seconds() > 0, SecondsText(progress.eta_seconds())))},
       {"Queue", text(job.spec().spec().queue())},
       {"Owner", text(job.owner())},
       {"Created", text(absl::StrCat(TimeText(job.create_time()), ", ",
                                     AgeText(job.create_time(), now), " ago"))},
       {"Ended", text(when(job.has_end_time(), TimeText(job.end_time())))},
       {"Attempt",
        text(when(job.attempt() > 0, absl::StrCat(job.attempt(), ", epoch ", job.epoch())))},
       {"Restarts", text(RestartsFact(job.restarts()))},
       {"Checkpoint", text(CheckpointFact(job.checkpoint()))}});
}

Html Head(const v1::Job& job, absl::Time now) {
  Html html;
  html.Markup("<div id=\"head\" data-live>\n<h1>").Text(IdOf(job.name())).Markup("</h1>\n<p>");
  html.Add(StateBadge(job.state()));
  if (job.state() == v1::JOB_STATE_QUEUED && job.queue_position() > 0) {
    html.Markup(" ").Text(absl::StrCat(job.queue_position(), " in line."));
  }
  if (!job.reason().empty()) html.Markup(" ").Text(job.reason());
  html.Markup("</p>\n").Add(Facts(job, now));
  for (const std::string& warning : job.warnings()) {
    html.Markup("<p class=\"warning\">").Text(warning).Markup("</p>\n");
  }
  return html.Markup("</div>\n");
}

// Of the whole run once it is over.
const google::protobuf::RepeatedPtrField<v1::FamilyVerdict>& FamiliesOf(const v1::Job& job) {
  return job.families().empty() ? job.result().families() : job.families();
}

Html Families(const v1::Job& job) {
  double total = 0;
  for (const v1::FamilyVerdict& family : FamiliesOf(job)) total += family.seconds();
  std::vector<std::vector<Html>> rows;
  for (const v1::FamilyVerdict& family : FamiliesOf(job)) {
    if (!(total > 0)) break;
    rows.push_back({TextCell(family.family()), TextCell(PercentText(family.seconds() / total)),
                    TextCell(absl::AsciiStrToLower(EnumText(family.bound()))),
                    TextCell(PercentText(family.compute_ratio())),
                    TextCell(PercentText(family.memory_ratio())),
                    TextCell(PercentText(family.savable_seconds() / total)),
                    TextCell(absl::AsciiStrToLower(EnumText(family.source()))),
                    TextCell(family.remedy())});
  }
  return HtmlTable("Kernel families",
                   {{"Family"},
                    {"Time", true},
                    {"Bound by"},
                    {"Compute", true},
                    {"Memory", true},
                    {"Savable", true},
                    {"Source"},
                    {"Remedy", false, true}},
                   rows, "No verdict yet.");
}

Html Anatomy(const v1::Job& job) {
  const Html bar = AnatomyBar(job.progress().phases());
  Html html;
  if (bar.empty()) return html.Markup("<p class=\"none\">No step has finished.</p>\n");
  return html.Markup("<p>The last step of rank 0.</p>\n").Add(bar);
}

Html Ranks(const v1::Job& job) {
  std::vector<std::vector<Html>> rows;
  for (const v1::RankStatus& rank : job.ranks()) {
    const std::string peak =
        rank.memory_peak_bytes() > 0 ? BytesText(rank.memory_peak_bytes()) : "";
    const std::string score =
        rank.straggler_score() > 0 ? absl::StrFormat("%.2f", rank.straggler_score()) : "";
    rows.push_back({TextCell(absl::StrCat(rank.rank())), TextCell(EnumText(rank.state())),
                    TextCell(IdOf(rank.worker())), TextCell(rank.host()), TextCell(rank.device()),
                    TextCell(CountText(rank.step())), TextCell(peak), TextCell(score)});
  }
  return HtmlTable("Ranks",
                   {{"Rank", true},
                    {"State"},
                    {"Worker"},
                    {"Host"},
                    {"Device"},
                    {"Step", true},
                    {"Peak memory", true},
                    {"Straggler score", true}},
                   rows, "No rank is placed.");
}

Html Attempts(const v1::Job& job, absl::Time now) {
  std::vector<std::vector<Html>> rows;
  for (const v1::Attempt& attempt : job.attempts()) {
    const absl::Time end = attempt.has_end_time() ? ToTime(attempt.end_time()) : now;
    const bool has_steps = attempt.last_step() > 0 && attempt.last_step() >= attempt.first_step();
    rows.push_back(
        {TextCell(absl::StrCat(attempt.attempt())), TextCell(absl::StrCat(attempt.epoch())),
         TextCell(EnumText(attempt.state())),
         TextCell(has_steps ? absl::StrCat(attempt.first_step(), "-", attempt.last_step()) : ""),
         TextCell(TimeText(attempt.start_time())),
         TextCell(attempt.has_start_time() ? DurationText(end - ToTime(attempt.start_time())) : ""),
         TextCell(EnumText(attempt.cause()))});
  }
  return HtmlTable("Attempts",
                   {{"Attempt", true},
                    {"Epoch", true},
                    {"State"},
                    {"Steps"},
                    {"Started"},
                    {"Took", true},
                    {"Cause"}},
                   rows, "No attempt yet.");
}

Html Failure(const v1::Job& job) {
  const v1::RootCause& cause = job.root_cause();
  Html html;
  html.Markup("<p>").Text(RootCauseText(cause)).Markup("</p>\n");
  if (!cause.collective().empty()) {
    html.Markup("<p>In collective: ").Text(cause.collective()).Markup("</p>\n");
  }
  if (cause.last_lines().empty()) return html;
  html.Markup("<p>Last lines of the trainer:</p>\n");
  html.Markup("<pre tabindex=\"0\" role=\"region\" aria-label=\"Last lines of the trainer\">");
  for (const std::string& line : cause.last_lines()) html.Text(line).Markup("\n");
  return html.Markup("</pre>\n");
}

Html Events(const HistoryView& history) {
  std::vector<std::vector<Html>> rows;
  for (auto event = history.events.rbegin(); event != history.events.rend(); ++event) {
    rows.push_back({TextCell(TimeText(event->time())), TextCell(EnumText(event->severity())),
                    TextCell(event->type()),
                    TextCell(event->step() > 0 ? CountText(event->step()) : ""),
                    TextCell(event->has_rank() ? absl::StrCat(event->rank()) : ""),
                    TextCell(event->message())});
  }
  return HtmlTable(
      "Events, newest first",
      {{"Time"}, {"Severity"}, {"Event"}, {"Step", true}, {"Rank", true}, {"Message", false, true}},
      rows, "No event.");
}

}  // namespace

Html JobMain(const v1::Job& job, const HistoryView& history, absl::Time now) {
  Html main;
  main.Markup("<p><a href=\"/\">All jobs</a></p>\n").Add(Head(job, now));
  if (job.root_cause().cause() != v1::FAILURE_CAUSE_UNSPECIFIED) {
    const Html failure = Failure(job);
    main.Add(RootCauseIsCurrent(job) ? Section("failure", "Root cause", failure)
                                     : Section("failure", "Last failure", failure));
  }
  main.Add(Section("loss", "Loss", LossCurve(history)));
  main.Add(Section("anatomy", "Where a step's time goes", Anatomy(job)));
  main.Add(Section("families", "What bounds the kernel families", Families(job)));
  main.Add(Section("ranks", "Ranks", Ranks(job)));
  main.Add(Section("attempts", "Attempts", Attempts(job, now)));
  main.Add(Section("events", "Events", Events(history)));
  return main;
}

}  // namespace fsdp::coordinator
