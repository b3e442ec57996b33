#include "client/render/queues.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/render/table.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

bool IsOfInterest(const v1::QueueUsage& usage) {
  return usage.quota() > 0 || usage.has_max() || usage.used() > 0 || usage.yielding() > 0 ||
         usage.waiting() > 0;
}

std::string MaxText(const v1::QueueUsage& usage) {
  return usage.has_max() ? absl::StrCat(usage.max()) : "-";
}

std::vector<std::string> Row(const v1::Queue& queue, const v1::QueueUsage* usage,
                             const Style& style) {
  std::vector<std::string> row = {
      queue.configured() ? queue.spec().name()
                         : style.Yellow(absl::StrCat(queue.spec().name(), " (unknown)"))};
  if (usage == nullptr) {
    row.insert(row.end(), {"-", "-", "-", "-", "-", "-", "-"});
  } else {
    row.insert(row.end(),
               {EnumText(usage->device()), absl::StrCat(usage->quota()), MaxText(*usage),
                absl::StrCat(usage->used()), absl::StrCat(usage->borrowed()),
                absl::StrCat(usage->waiting()), absl::StrFormat("%.2f", usage->share())});
  }
  row.push_back(absl::StrCat(queue.jobs_running()));
  row.push_back(absl::StrCat(queue.jobs_waiting()));
  return row;
}

std::string PreemptionText(const v1::PreemptionSpec& preemption) {
  std::string text = absl::StrCat("reclaims ", EnumText(preemption.reclaim()),
                                  ", within the queue ", EnumText(preemption.within_queue()));
  absl::StrAppend(&text, "; its jobs: grace ",
                  preemption.has_grace_seconds() ? absl::StrCat(preemption.grace_seconds(), " s")
                                                 : "their own");
  if (preemption.min_run_seconds() > 0) {
    absl::StrAppend(&text, ", spared for ", preemption.min_run_seconds(), " s");
  }
  absl::StrAppend(&text, preemption.without_checkpoint() ? ", also those without checkpoint.dir"
                                                         : ", none without checkpoint.dir");
  return text;
}

}  // namespace

std::string QueueTable(const std::vector<v1::Queue>& queues, const Style& style) {
  Table table({{"QUEUE"},
               {"DEVICE"},
               {"QUOTA", true},
               {"MAX", true},
               {"USED", true},
               {"BORROWED", true},
               {"WANTED", true},
               {"SHARE", true},
               {"RUN", true},
               {"WAIT", true}});
  for (const v1::Queue& queue : queues) {
    bool any = false;
    for (const v1::QueueUsage& usage : queue.usage()) {
      if (!IsOfInterest(usage)) continue;
      table.AddRow(Row(queue, &usage, style));
      any = true;
    }
    if (!any) table.AddRow(Row(queue, nullptr, style));
  }
  return table.Render();
}

std::string QueueFacts(const v1::Queue& queue) {
  if (!queue.configured()) return "";
  std::string text;
  for (const v1::QueueUsage& usage : queue.usage()) {
    if (!IsOfInterest(usage)) continue;
    const std::string max = usage.has_max() ? absl::StrCat("max ", usage.max()) : "no max";
    absl::StrAppendFormat(&text, "%s%s %d of quota %d (%s), %d borrowed, %.2f of its fair share",
                          text.empty() ? "" : "; ", EnumText(usage.device()), usage.used(),
                          usage.quota(), max, usage.borrowed(), usage.share());
  }
  return absl::StrCat(queue.spec().name(), text.empty() ? "" : ": ", text);
}

std::string QueueDescription(const v1::Queue& queue, const Style& style) {
  std::string page = absl::StrFormat("%-14s%s\n", "Queue:", queue.spec().name());
  if (!queue.configured()) {
    absl::StrAppendFormat(&page, "%-14s%s\n", "Configured:", style.Yellow("no: only jobs name it"));
  } else {
    absl::StrAppendFormat(&page, "%-14s%g\n", "Weight:", queue.spec().weight());
    absl::StrAppendFormat(&page, "%-14s%s\n",
                          "Preemption:", PreemptionText(queue.spec().preemption()));
  }
  return absl::StrCat(page, "\n", QueueTable({queue}, style));
}

std::string MaintenanceFacts(const v1::Maintenance& maintenance) {
  if (maintenance.mode() != v1::MAINTENANCE_MODE_HOLD &&
      maintenance.mode() != v1::MAINTENANCE_MODE_CLOSED) {
    return "";
  }
  const bool closed = maintenance.mode() == v1::MAINTENANCE_MODE_CLOSED;
  return absl::StrCat(closed ? "closed" : "hold", " since ", TimeText(maintenance.start_time()),
                      maintenance.owner().empty() ? "" : " by ", maintenance.owner(),
                      maintenance.reason().empty() ? "" : ": ", Printable(maintenance.reason()),
                      closed ? " (no jobs are taken, nothing is placed)" : " (nothing is placed)");
}

std::string ArrayFacts(const v1::Job& job) {
  if (!job.has_array()) return "";
  const v1::ArrayStatus& array = job.array();
  const int ended = array.succeeded() + array.failed() + array.cancelled();
  std::string text = absl::StrCat(ended, "/", array.count(), " done");
  if (array.active() > 0) absl::StrAppend(&text, ", ", array.active(), " run");
  if (array.failed() > 0) absl::StrAppend(&text, ", ", array.failed(), " failed");
  return text;
}

}  // namespace fsdp
