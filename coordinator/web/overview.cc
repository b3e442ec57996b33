#include "coordinator/web/overview.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/lifecycle/job_state.h"
#include "proto/support/spec.h"
#include "proto/support/text.h"

namespace fsdp::coordinator {
namespace {

constexpr std::size_t kMaxFilterText = 100;
constexpr char kLive[] = "live";

Html ProgressCell(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  Html cell;
  if (progress.step() == 0 && progress.total_steps() == 0) return cell.Markup("-");
  if (progress.total_steps() == 0) return cell.Text(CountText(progress.step()));
  cell.Text(CountText(progress.step())).Markup("/").Text(CountText(progress.total_steps()));
  cell.Markup(" <progress max=\"").Text(absl::StrCat(progress.total_steps()));
  cell.Markup("\" value=\"").Text(absl::StrCat(progress.step()));
  return cell.Markup("\" aria-hidden=\"true\"></progress>");
}

std::string LossOf(const v1::Job& job) {
  return job.progress().step() > 0 ? LossText(job.progress().loss()) : "";
}

std::string RateOf(const v1::Job& job) {
  const double rate = job.progress().tokens_per_second();
  return job.state() == v1::JOB_STATE_RUNNING && rate > 0 ? ShortNumber(rate) : "";
}

std::string RanksOf(const v1::Job& job) {
  return absl::StrCat(job.ranks().empty() ? JobWorldSize(job.spec())
                                          : static_cast<std::int64_t>(job.ranks_size()));
}

Html Option(const std::string& value, const std::string& title, const std::string& chosen) {
  Html option;
  option.Markup("<option value=\"").Text(value).Markup("\"");
  if (value == chosen) option.Markup(" selected");
  return option.Markup(">").Text(title).Markup("</option>");
}

Html FilterForm(const JobFilter& filter) {
  Html form;
  form.Markup("<form class=\"filter\" method=\"get\" action=\"/\" role=\"search\">\n");
  form.Markup("<label>Job, queue or owner <input type=\"search\" name=\"q\" maxlength=\"100\" ");
  form.Markup("autocomplete=\"off\" value=\"").Text(filter.text).Markup("\"></label>\n");
  form.Markup("<label>State <select name=\"state\">");
  form.Add(Option("", "all", filter.state)).Add(Option(kLive, "not finished", filter.state));
  const auto& states = *v1::JobState_descriptor();
  for (int i = 1; i < states.value_count(); ++i) {
    const std::string name = EnumText(static_cast<v1::JobState>(states.value(i)->number()));
    form.Add(Option(name, name, filter.state));
  }
  form.Markup("</select></label>\n<button>Filter</button>");
  const bool filtered = !filter.text.empty() || !filter.state.empty() || filter.before > 0;
  if (filtered) form.Markup(" <a href=\"/\">Show all</a>");
  return form.Markup("\n</form>\n");
}

Html Jobs(const OverviewView& view) {
  std::vector<std::vector<Html>> rows;
  for (const ListedJob& listed : view.jobs) {
    if (static_cast<std::int64_t>(rows.size()) == kListedJobs) break;
    const v1::Job& job = *listed.job;
    rows.push_back({JobLink(job.name()), StateBadge(job.state()), ProgressCell(job),
                    TextCell(LossOf(job)), TextCell(RateOf(job)), TextCell(RanksOf(job)),
                    TextCell(job.spec().spec().queue()), TextCell(job.owner()),
                    TextCell(AgeText(job.create_time(), view.now))});
  }
  Html html = HtmlTable("Jobs",
                        {{"Job"},
                         {"State"},
                         {"Step", true},
                         {"Loss", true},
                         {"Tokens/s", true},
                         {"Ranks", true},
                         {"Queue"},
                         {"Owner"},
                         {"Age", true}},
                        rows, "No job.");
  if (static_cast<std::int64_t>(view.jobs.size()) <= kListedJobs) return html;
  html.Markup("<p><a rel=\"next\" href=\"/?q=").UrlPart(view.filter.text).Markup("&amp;state=");
  html.UrlPart(view.filter.state).Markup("&amp;before=");
  html.Text(absl::StrCat(view.jobs[kListedJobs - 1].position)).Markup("\">Older jobs</a></p>\n");
  return html;
}

Html Queue(const OverviewView& view) {
  std::vector<std::vector<Html>> rows;
  for (const JobSnapshot& job : view.queued) {
    rows.push_back({JobLink(job->name()), TextCell(job->spec().spec().queue()),
                    TextCell(absl::StrCat(job->queue_position())),
                    TextCell(absl::StrCat(job->spec().spec().priority())), TextCell(RanksOf(*job)),
                    TextCell(AgeText(job->create_time(), view.now)), TextCell(job->reason())});
  }
  return HtmlTable("Jobs that wait",
                   {{"Job"},
                    {"Queue"},
                    {"Position", true},
                    {"Priority", true},
                    {"Ranks", true},
                    {"Waits", true},
                    {"Waits for", false, true}},
                   rows, "No job waits.");
}

Html WorkerState(const v1::Worker& worker) {
  Html cell;
  cell.Markup("<span class=\"badge w-").Text(absl::AsciiStrToLower(EnumText(worker.state())));
  cell.Markup("\">").Text(EnumText(worker.state())).Markup("</span>");
  if (worker.cordoned()) cell.Markup(" <span class=\"badge w-cordoned\">CORDONED</span>");
  return cell;
}

std::string DeviceOf(const v1::Worker& worker) {
  const v1::DeviceInfo& device = worker.device();
  return absl::StrCat(EnumText(device.type()), ":", device.index(),
                      device.model().empty() ? "" : "  ", device.model());
}

Html Workers(const OverviewView& view) {
  std::vector<std::vector<Html>> rows;
  for (const v1::Worker& worker : view.cluster->workers) {
    const bool runs = !worker.job().empty() && view.sees_job(worker.job());
    rows.push_back({TextCell(IdOf(worker.name())), WorkerState(worker), TextCell(worker.host()),
                    TextCell(DeviceOf(worker)), TextCell(BytesText(worker.device().memory_bytes())),
                    runs ? JobLink(worker.job()) : TextCell(""),
                    TextCell(!runs               ? ""
                             : worker.rank() < 0 ? "spare"
                                                 : absl::StrCat(worker.rank())),
                    TextCell(AgeText(worker.heartbeat_time(), view.now)),
                    TextCell(worker.unplaceable_reason())});
  }
  return HtmlTable("Workers",
                   {{"Worker"},
                    {"State"},
                    {"Host"},
                    {"Device"},
                    {"Memory", true},
                    {"Job"},
                    {"Rank", true},
                    {"Heartbeat", true},
                    {"Why not", false, true}},
                   rows, "No worker has connected.");
}

Html Facts(const OverviewView& view) {
  const v1::GetClusterResponse& cluster = view.cluster->cluster;
  const auto text = [](const std::string& value) { return Html().Text(value); };
  Html html;
  html.Markup("<div id=\"facts\" data-live>\n");
  html.Add(FactList(
      {{"Jobs",
        text(absl::StrCat(cluster.jobs_running(), " running, ", cluster.jobs_queued(), " queued"))},
       {"Workers",
        text(absl::StrCat(cluster.workers_busy(), " busy, ", cluster.workers_ready(), " ready"))},
       {"Coordinator",
        text(absl::StrCat(cluster.version(), ", up ", AgeText(cluster.start_time(), view.now)))}}));
  return html.Markup("</div>\n");
}

}  // namespace

Html StateBadge(v1::JobState state) {
  Html badge;
  badge.Markup("<span class=\"badge s-").Text(absl::AsciiStrToLower(EnumText(state)));
  return badge.Markup("\">").Text(EnumText(state)).Markup("</span>");
}

Html JobLink(const std::string& job_name) {
  const std::string id = IdOf(job_name);
  Html link;
  link.Markup("<a href=\"/jobs/").UrlPart(id).Markup("\">").Text(id).Markup("</a>");
  return link;
}

JobFilter FilterOf(const std::map<std::string, std::string>& fields) {
  JobFilter filter;
  const auto field = [&](const char* name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  };
  filter.text = field("q").substr(0, kMaxFilterText);
  const std::string state = field("state");
  v1::JobState known{};
  if (state == kLive || v1::JobState_Parse(absl::StrCat("JOB_STATE_", state), &known)) {
    filter.state = state;
  }
  if (!absl::SimpleAtoi(field("before"), &filter.before) || filter.before < 0) filter.before = 0;
  return filter;
}

bool Matches(const JobFilter& filter, const v1::Job& job) {
  if (filter.state == kLive) {
    if (IsTerminal(job.state())) return false;
  } else if (!filter.state.empty() && EnumText(job.state()) != filter.state) {
    return false;
  }
  if (filter.text.empty()) return true;
  const auto has = [&](const std::string& text) {
    return absl::StrContains(absl::AsciiStrToLower(text), absl::AsciiStrToLower(filter.text));
  };
  return has(IdOf(job.name())) || has(job.spec().spec().queue()) || has(job.owner());
}

Html OverviewMain(const OverviewView& view) {
  Html main;
  main.Markup("<h1>Status</h1>\n").Add(Facts(view)).Add(FilterForm(view.filter));
  main.Add(Section("jobs", "Jobs", Jobs(view)));
  main.Add(Section("queue", "Queue", Queue(view)));
  main.Add(Section("workers", "Workers", Workers(view)));
  return main;
}

}  // namespace fsdp::coordinator
